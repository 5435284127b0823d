"""The heap of deadlines: one alarm per group.

A group knows its own earliest deadline (``Alarmed.earliest``). The heap holds a *lower bound* of it: when a
deadline moves later (a heartbeat) or goes away (an output) nothing is done, and the alarm is corrected when it
comes to the top. Only an earlier deadline costs a push. So a heartbeat is free, a tick with nothing due looks at
one number, and a group that ends is forgotten at once: what stays in the heap for a while is a pair of numbers,
and the heap is rebuilt when those outnumber the live ones.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

#: Stale pairs that a heap may hold, beside as many as it has live ones, before it is rebuilt.
SLACK = 64


class Alarmed(Protocol):
    """What the heap needs of a group."""

    seq: int
    """Number of its registration: breaks ties between equal deadlines."""
    alarm: float
    """When the heap will look at it; infinity: never. Owned by ``Deadlines``."""

    def earliest(self) -> float:
        """Its earliest deadline in monotonic seconds; infinity: it has none."""
        ...


G = TypeVar("G", bound=Alarmed)


class Deadlines(Generic[G]):
    """Alarms of the live groups, in the order of deadline, then registration."""

    __slots__ = ("_armed", "_heap")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._armed: dict[int, G] = {}

    def copy(self, twins: Mapping[int, G]) -> Deadlines[G]:
        """The same alarms for other groups, given by their ``seq``, that are copies of these."""
        twin: Deadlines[G] = Deadlines()
        twin._heap = list(self._heap)
        twin._armed = {seq: twins[seq] for seq in self._armed}
        return twin

    def __len__(self) -> int:
        """How many groups have an alarm."""
        return len(self._armed)

    @property
    def heap_size(self) -> int:
        """How many pairs the heap holds, stale ones included."""
        return len(self._heap)

    def arm(self, group: G, when: float) -> None:
        """See to it that ``group`` is looked at no later than ``when``."""
        if when < group.alarm:
            group.alarm = when
            self._armed[group.seq] = group
            heapq.heappush(self._heap, (when, group.seq))
            self._compact()

    def disarm(self, group: G) -> None:
        """Forget ``group``. Does nothing if it has no alarm."""
        if self._armed.pop(group.seq, None) is not None:
            group.alarm = math.inf
            self._compact()

    def _compact(self) -> None:
        if not self._armed:
            self._heap.clear()
        elif len(self._heap) > 2 * len(self._armed) + SLACK:
            self._heap = [(group.alarm, seq) for seq, group in self._armed.items()]
            heapq.heapify(self._heap)

    def first(self) -> G | None:
        """The group whose deadline comes first; its ``alarm`` is exact. ``None``: no deadline is set."""
        while self._heap:
            when, seq = self._heap[0]
            group = self._armed.get(seq)
            if group is not None and group.alarm == when:
                exact = group.earliest()
                if exact == when:
                    return group
                group.alarm = exact
                if exact < math.inf:
                    heapq.heappush(self._heap, (exact, seq))
                else:
                    del self._armed[seq]
            heapq.heappop(self._heap)
        return None

    def next(self) -> float | None:
        """The earliest deadline of all, exactly; ``None``: there is none."""
        group = self.first()
        return None if group is None else group.alarm

    def due(self, now: float) -> Iterator[G]:
        """Groups whose deadline has come by ``now``, the earliest first.

        Each must have ended before the next is asked for.
        """
        while self._heap and self._heap[0][0] <= now:
            group = self.first()
            if group is None or group.alarm > now:
                return
            yield group
