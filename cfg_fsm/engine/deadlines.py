"""The deadlines of the live requests, in the order in which they come.

A deadline is set when its state is entered or a sign of life comes: at the registry's time, which never goes back.
So those with the same limit come in the order in which they were set, and a queue holds them: to set, to move and
to take away costs the same however many there are. There is a queue for each limit and value, and a heap of the
queues. The heap holds a *lower bound* for each queue, which is corrected when it comes to the top; so a tick with
nothing due looks at one number, and corrects at most one for each queue.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeAlias

from cfg_fsm import tables
from cfg_fsm.tables import DeadlineRow

_ROWS: dict[str, tuple[DeadlineRow, ...]] = {
    kind.value: tuple(row for row in tables.DEADLINE_ROWS if row.machine is kind) for kind in tables.ROWS
}
#: Stale pairs that the heap may hold, beside as many as there are queues, before it is rebuilt.
SLACK = 64


#: Name of a limit, and its value in seconds.
Key: TypeAlias = tuple[str, float]


class Queue:
    """Deadlines with one limit of one value, the earliest first."""

    __slots__ = ("alarm", "last", "sorted", "when")

    def __init__(self) -> None:
        self.when: OrderedDict[Any, float] = OrderedDict()
        """Of each record, monotonic seconds."""
        self.last = -math.inf
        self.sorted = True
        """Whether they are in order: a tracker's clock may go back."""
        self.alarm = math.inf
        """The lower bound that the heap holds."""

    def put(self, record: Any, when: float) -> None:
        """Set the record's deadline, or move it."""
        if self.when.get(record) != when:
            if when < self.last:
                self.sorted = False
            self.last = when
            self.when[record] = when
            self.when.move_to_end(record)

    def first(self) -> float:
        """The earliest of them; infinity: there is none."""
        if not self.sorted:
            self.when = OrderedDict(sorted(self.when.items(), key=lambda item: item[1]))
            self.last = next(reversed(self.when.values()), -math.inf)
            self.sorted = True
        return next(iter(self.when.values()), math.inf)


class Deadlines:
    """All deadlines of a registry or a tracker."""

    __slots__ = ("_heap", "_queues")

    def __init__(self) -> None:
        self._heap: list[tuple[float, Key]] = []
        self._queues: dict[Key, Queue] = {}

    def __len__(self) -> int:
        """How many deadlines are set."""
        return sum(len(queue.when) for queue in self._queues.values())

    def each(self) -> list[tuple[Any, str, float]]:
        """Every deadline: record, name of the limit, monotonic seconds. In no order."""
        return [
            (record, key[0], when) for key, queue in self._queues.items() for record, when in queue.when.items()
        ]

    def copy(self, twin_of: Callable[[Any], Any]) -> Deadlines:
        """The same deadlines for other records, which ``twin_of`` gives for these."""
        twin = Deadlines()
        for key, queue in self._queues.items():
            queue.first()
            for record, when in queue.when.items():
                twin._put(key, twin_of(record), when)
        return twin

    def update(self, record: Any) -> None:
        """The record has moved, or gave a sign of life: it has the deadlines of its state, and no others."""
        limits = record.group.limits
        state = record.state
        for row in _ROWS[record.machine]:
            limit = getattr(limits, row.limit)
            if limit is not None:
                if state in row.states:
                    self._put((row.limit, limit), record, getattr(record, row.since) + limit)
                else:
                    self._take_away((row.limit, limit), record)

    def drop(self, record: Any) -> None:
        """The record has ended: it has no deadline."""
        limits = record.group.limits
        for row in _ROWS[record.machine]:
            limit = getattr(limits, row.limit)
            if limit is not None:
                self._take_away((row.limit, limit), record)

    def _put(self, key: Key, record: Any, when: float) -> None:
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = Queue()
        queue.put(record, when)
        if when < queue.alarm:  # the alarm last: what is broken off before is done again
            heapq.heappush(self._heap, (when, key))
            queue.alarm = when
            self._tidy()

    def _take_away(self, key: Key, record: Any) -> None:
        queue = self._queues.get(key)
        if queue is not None:
            queue.when.pop(record, None)
            if not queue.when:
                queue.alarm = math.inf
                self._queues.pop(key, None)
                self._tidy()

    def _tidy(self) -> None:
        """Rebuild the heap if it holds too many pairs that are stale."""
        if len(self._heap) > 2 * len(self._queues) + SLACK:
            heap = [(queue.alarm, key) for key, queue in self._queues.items()]
            heapq.heapify(heap)
            self._heap = heap

    def next(self) -> float | None:
        """The earliest deadline of all, exactly; ``None``: there is none."""
        while self._heap:
            when, key = self._heap[0]
            queue = self._queues.get(key)
            if queue is not None and queue.alarm == when:
                first = queue.first()
                if first == when:
                    return when
                heapq.heappush(self._heap, (first, key))
                queue.alarm = first
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> list[Any]:
        """Groups with a deadline that has come by ``now``: in the order of these, then of registration."""
        if not self._heap or self._heap[0][0] > now:
            return []
        first = self.next()
        if first is None or first > now:
            return []
        groups: dict[int, tuple[float, int, Any]] = {}
        for queue in self._queues.values():
            queue.first()
            for record, when in queue.when.items():
                if when > now:
                    break
                group = record.group
                known = groups.get(group.seq)
                if known is None or when < known[0]:
                    groups[group.seq] = (when, group.seq, group)
        return [group for _, _, group in sorted(groups.values(), key=lambda found: found[:2])]
