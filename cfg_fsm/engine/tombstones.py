"""Bounded memory of ended ids, without any payload, so that a late event is recognised."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

from cfg_fsm.engine.confirmations import Told
from cfg_fsm.engine.step import Replica


class Tombstone:
    """What is remembered of the end of a group; all ids of the group share one."""

    __slots__ = ("ended_at", "life", "parent_id")

    def __init__(self, parent_id: str, life: int, ended_at: float) -> None:
        self.parent_id = parent_id
        self.life = life
        self.ended_at = ended_at
        """Monotonic seconds."""


class Tombstones:
    """Ended ids, the oldest first: at most ``limit`` of them, each for ``seconds`` (``None``: no bound in time).

    ``expire_at`` is never later than the time at which the oldest has to go; who owns this calls ``expire`` then.
    """

    __slots__ = ("_limit", "_parent_lives", "_seconds", "by_id", "expire_at", "told")

    def __init__(self, limit: int, seconds: float | None) -> None:
        self._limit = limit
        self._seconds = math.inf if seconds is None else seconds
        # Ordered, for its oldest entry is found at once however many have gone before it; a dict searches.
        self.by_id: OrderedDict[str, Tombstone] = OrderedDict()
        """Those remembered, the oldest first. To be read; it is changed by the methods."""
        self.told: dict[str, Told] = {}
        """Those of them that were told to abort and have not reported their end since (R9), by id."""
        self.expire_at = math.inf
        self._parent_lives: dict[str, int] = {}
        """Last lives of ids that were parents and have been companions since."""

    def copy(self) -> Tombstones:
        """An independent memory of the same."""
        twin = Tombstones(self._limit, self._seconds)
        twin.by_id.update(self.by_id)
        twin.told.update((request_id, told.copy()) for request_id, told in self.told.items())
        twin.expire_at = self.expire_at
        twin._parent_lives.update(self._parent_lives)
        return twin

    def __len__(self) -> int:
        return len(self.by_id)

    def get(self, request_id: str) -> Tombstone | None:
        """The tombstone of an id that has ended, as long as it is remembered."""
        return self.by_id.get(request_id)

    def last_life(self, request_id: str) -> int:
        """The greatest life that the id has had, as a parent or in a parent's group; 0 if it is not remembered."""
        stone = self.by_id.get(request_id)
        return 0 if stone is None else max(stone.life, self._parent_lives.get(request_id, 0))

    def may_report(self, request_id: str) -> bool:
        """Whether a terminal event of an earlier life of this id may still come (R9)."""
        return request_id in self.told

    def add(self, request_ids: Iterable[str], tombstone: Tombstone) -> None:
        """Remember that these ended, none of which is remembered. The oldest go if there are too many."""
        by_id = self.by_id
        for request_id in request_ids:
            by_id[request_id] = tombstone
        while len(by_id) > self._limit:
            request_id, _ = by_id.popitem(last=False)
            if self.told:
                self.told.pop(request_id, None)
            if self._parent_lives:
                self._parent_lives.pop(request_id, None)
        expire_at = tombstone.ended_at + self._seconds
        if expire_at < self.expire_at:
            self.expire_at = expire_at

    def tell(self, request_id: str, now: float, replica: Replica | None) -> None:
        """It is told to abort, if it is remembered. ``replica``: where it was last heard of, if that is known."""
        stone = self.by_id.get(request_id)
        if stone is not None:
            before = self.told.pop(request_id, None)
            if replica is None and before is not None:
                replica = before.replica
            self.told[request_id] = Told(request_id, stone.parent_id, stone.life, now, replica)

    def _drop(self, request_id: str) -> None:
        self._parent_lives.pop(request_id, None)
        if self.told:
            self.told.pop(request_id, None)
        del self.by_id[request_id]

    def forget(self, request_id: str, *, as_companion: bool = False) -> None:
        """The id is in use again. What was a parent and is a companion now keeps its number of lives."""
        stone = self.by_id.get(request_id)
        if not as_companion:
            self._parent_lives.pop(request_id, None)
        elif stone is not None and stone.parent_id == request_id:
            self._parent_lives[request_id] = stone.life
        self.told.pop(request_id, None)
        self.by_id.pop(request_id, None)

    def expire(self, now: float) -> None:
        """Forget those whose time is over."""
        by_id = self.by_id
        while by_id:
            request_id = next(iter(by_id))
            gone_at = by_id[request_id].ended_at + self._seconds
            if gone_at > now:
                self.expire_at = gone_at
                return
            self._drop(request_id)
        self.expire_at = math.inf
