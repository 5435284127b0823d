"""Bounded memory of ended ids, without any payload, so that a late event is recognised."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence


class Tombstone:
    """What is remembered of the end of a group; all ids of the group share one."""

    __slots__ = ("dropped", "ended_at", "ids", "life", "parent_id", "unheard")

    def __init__(
        self, parent_id: str, life: int, ended_at: float, ids: Sequence[str], unheard: list[str] | None = None
    ) -> None:
        self.parent_id = parent_id
        self.life = life
        self.ended_at = ended_at
        """Monotonic seconds."""
        self.ids = tuple(ids)
        self.dropped = 0
        """How many of the ids, from the first, are forgotten already."""
        self.unheard = unheard or None
        """Ids that were told to abort and have not reported their end since (R9)."""

    def heard(self, request_id: str) -> None:
        """The id has reported its end."""
        if self.unheard is not None and request_id in self.unheard:
            self.unheard = [other for other in self.unheard if other != request_id] or None


class Tombstones:
    """Ended ids, the oldest first: at most ``limit`` of them, each for ``seconds`` (``None``: no bound in time).

    ``expire_at`` is never later than the time at which the oldest has to go; who owns this calls ``expire`` then.
    """

    __slots__ = ("_by_id", "_limit", "_oldest_first", "_seconds", "expire_at")

    def __init__(self, limit: int, seconds: float | None) -> None:
        self._limit = limit
        self._seconds = math.inf if seconds is None else seconds
        self._by_id: dict[str, Tombstone] = {}
        self._oldest_first: deque[Tombstone] = deque()
        self.expire_at = math.inf

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, request_id: str) -> Tombstone | None:
        """The tombstone of an id that has ended, as long as it is remembered."""
        return self._by_id.get(request_id)

    def may_report(self, request_id: str) -> bool:
        """Whether a terminal event of an earlier life of this id may still come (R9)."""
        tombstone = self._by_id.get(request_id)
        return tombstone is not None and tombstone.unheard is not None and request_id in tombstone.unheard

    def add(self, tombstone: Tombstone) -> None:
        """Remember the end of a group. The oldest are forgotten if they become too many."""
        for request_id in tombstone.ids:
            self._by_id[request_id] = tombstone
        self._oldest_first.append(tombstone)
        # A tombstone whose ids are all in use again still stands in the queue, so the queue is bounded too.
        while len(self._by_id) > self._limit or len(self._oldest_first) > self._limit:
            self._drop_one()
        expire_at = tombstone.ended_at + self._seconds
        if expire_at < self.expire_at:
            self.expire_at = expire_at

    def forget(self, request_id: str) -> None:
        """The id is in use again."""
        self._by_id.pop(request_id, None)

    def expire(self, now: float) -> None:
        """Forget those whose time is over."""
        while self._oldest_first:
            gone_at = self._oldest_first[0].ended_at + self._seconds
            if gone_at > now:
                self.expire_at = gone_at
                return
            self._drop_one()
        self.expire_at = math.inf

    def _drop_one(self) -> None:
        oldest = self._oldest_first[0]
        if oldest.dropped == len(oldest.ids):
            self._oldest_first.popleft()
            return
        request_id = oldest.ids[oldest.dropped]
        oldest.dropped += 1
        if self._by_id.get(request_id) is oldest:  # else the id is in use again, or has ended again
            del self._by_id[request_id]
