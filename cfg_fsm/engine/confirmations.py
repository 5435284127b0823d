"""Requests that were told to abort and have not reported, and those among them whose release waits for the report.

With ``Limits.confirm_s`` what an aborted request holds is freed when it has reported its end, its replica is lost,
or that time has passed. What waits is kept here, apart from the tombstones: time bounds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from cfg_fsm.engine.step import Replica

#: Stale pairs that the heap may hold, beside as many as there are groups that wait, before it is rebuilt.
SLACK = 64


class Told:
    """A request that was told to abort and has not reported since."""

    __slots__ = ("life", "parent_id", "replica", "request_id", "since")

    def __init__(self, request_id: str, parent_id: str, life: int, since: float, replica: Replica | None) -> None:
        self.request_id = request_id
        self.parent_id = parent_id
        self.life = life
        self.since = since
        """When it was last told, monotonic seconds."""
        self.replica = replica
        """Where it was last heard of."""

    def copy(self) -> Told:
        """Another one that says the same."""
        return Told(self.request_id, self.parent_id, self.life, self.since, self.replica)


class Waiting:
    """The requests of an ended group whose release waits."""

    __slots__ = ("deadline", "life", "parent_id", "seq", "told")

    def __init__(self, seq: int, parent_id: str, life: int, deadline: float, told: dict[str, Told]) -> None:
        self.seq = seq
        """Number of the group's registration."""
        self.parent_id = parent_id
        self.life = life
        self.deadline = deadline
        """When they are released without a report, monotonic seconds."""
        self.told = told
        """By id, the parent first, then in role order."""


class Confirmations:
    """Groups whose release waits, in the order of their deadline, then of registration."""

    __slots__ = ("_groups", "_heap", "by_id")

    def __init__(self) -> None:
        self.by_id: dict[str, Waiting] = {}
        """The group of each request that waits. To be read; it is changed by the methods."""
        self._groups: dict[int, Waiting] = {}
        self._heap: list[tuple[float, int]] = []

    def __len__(self) -> int:
        return len(self.by_id)

    def copy(self) -> Confirmations:
        """The same, independent of these."""
        twin = Confirmations()
        for waiting in self._groups.values():
            told = {request_id: one.copy() for request_id, one in waiting.told.items()}
            twin.add(Waiting(waiting.seq, waiting.parent_id, waiting.life, waiting.deadline, told))
        return twin

    def add(self, waiting: Waiting) -> None:
        """Their release waits."""
        heapq.heappush(self._heap, (waiting.deadline, waiting.seq))
        for request_id in waiting.told:
            self.by_id[request_id] = waiting
        self._groups[waiting.seq] = waiting

    def remove(self, request_id: str) -> None:
        """It is released. Does nothing if it does not wait."""
        waiting = self.by_id.get(request_id)
        if waiting is not None:
            del waiting.told[request_id], self.by_id[request_id]
            if not waiting.told:
                self._groups.pop(waiting.seq, None)
            if len(self._heap) > 2 * len(self._groups) + SLACK:
                heap = [(group.deadline, seq) for seq, group in self._groups.items()]
                heapq.heapify(heap)
                self._heap = heap

    def first(self) -> Waiting | None:
        """The group whose deadline comes first; ``None``: none waits."""
        while self._heap:
            seq = self._heap[0][1]
            waiting = self._groups.get(seq)
            if waiting is not None and waiting.told:
                return waiting
            self._groups.pop(seq, None)
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[Waiting]:
        """Groups whose deadline has come. Each must have been released before the next is asked for."""
        while (waiting := self.first()) is not None and waiting.deadline <= now:
            yield waiting

    def on(self, replica: Replica) -> list[tuple[Waiting, list[str]]]:
        """Those last heard of on this replica, by group in order of deadline, then of registration."""
        found = [
            (waiting, [request_id for request_id, told in waiting.told.items() if told.replica == replica])
            for waiting in sorted(self._groups.values(), key=lambda waiting: (waiting.deadline, waiting.seq))
        ]
        return [(waiting, ids) for waiting, ids in found if ids]
