"""Runs a trace: dispatches its events, plays the clock in between, and adds up what became of it."""

from __future__ import annotations

import math
import os
import time
from array import array
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO

from pydantic_core import to_json

from cfg_fsm.actions import ACTION_TYPES, Action, FailParent, ForwardParent, ReleaseRequests
from cfg_fsm.engine.clock import LONG
from cfg_fsm.engine.journal import Observer
from cfg_fsm.engine.registry import Registry
from cfg_fsm.errors import BadLine
from cfg_fsm.events import ClockTicked, Event, ParentOutputReady, ParentRegistered, RequestsAborted
from cfg_fsm.limits import TIMES, Limits
from cfg_fsm.lines import LineSource, printable
from cfg_fsm.states import FailureReason
from cfg_fsm.trace.reading import read_events
from cfg_fsm.trace.summary import Summary

_TIMES = (*TIMES, "confirm_s")
_PERCENTILES = (50, 90, 99)
_EXAMPLES = 5
_ABORTED = FailureReason.ABORTED.value


class ActionWriter:
    """Writes each action as a line of JSON, in the shape of ``Action.to_dict()``, to a binary stream.

    JSON has no word for a float that is not finite. One in a payload, which then came from Python and not from a
    trace, is written as ``null``: the line stays JSON, and the reader sees that there is no number.

    ``name``: what errors call the stream. Raises ``OSError`` if it cannot be written,
    ``PydanticSerializationError`` for a payload that is no JSON.
    """

    def __init__(self, stream: BinaryIO, name: str | None = None) -> None:
        self._write = stream.write
        self._name = name

    def __call__(self, action: Action) -> None:
        """Write one action."""
        try:
            self._write(to_json(action.to_dict(), inf_nan_mode="null") + b"\n")
        except OSError as error:
            error.filename = error.filename or self._name
            raise


def _nothing() -> None:
    """Nothing is to be done."""


class Run:
    """One run over a registry that has not dispatched anything yet.

    ``on_action``: gets every action, in order. ``before_tick``: called before each tick of the clock that the run
    plays. ``clock``: seconds, for the speed of the run. An exception of these or of the source of events passes
    through; the summary then tells what was done up to there.
    """

    def __init__(
        self,
        registry: Registry,
        on_action: Callable[[Action], object] | None = None,
        *,
        before_tick: Callable[[], object] = _nothing,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if registry.counters()["events"]:
            raise ValueError("a run needs a registry that has not dispatched anything yet")
        self.registry = registry
        self._on_action = on_action
        self._before_tick = before_tick
        self._clock = clock
        self._seconds = 0.0
        self._ticks = 0
        self._shortest = _shortest(registry.limits)
        self._quiet_until = self._shortest
        self._actions = {action.type: 0 for action in ACTION_TYPES}
        self._waiting: dict[str, float] = {}
        """Deferred parents and since when."""
        self._waits = array("d")
        self._longest = (-1.0, "")
        """The longest wait, and the parent that waited."""
        self._at_once = 0
        self._forwarded: set[str] = set()
        """Live parents that were forwarded."""
        self._ever_forwarded = 0
        self._failures: dict[str, str] = {}
        self._aborted: str | None = None
        """A parent that the client aborted."""
        self._first_line: dict[tuple[str, str], int] = {}
        self._latest: float | None = None
        self._clock_odd: dict[str, dict[str, Any]] = {}
        """The first event of each kind whose time is odd: ``{"line", "by_s"}``."""
        self._bad = 0
        self._bad_first: list[str] = []

    def feed(self, events: Iterable[tuple[int, Event]]) -> None:
        """Dispatch the events of ``(line number, event)`` pairs, each after the deadlines that come before it.

        An event at the very time of a deadline goes first (R11).
        """
        started = self._clock()
        registry = self.registry
        dispatch = registry.dispatch
        try:
            for line, event in events:
                at = event.at
                if at is not None:
                    if self._latest is not None and not 0 <= at - self._latest <= LONG:
                        self._note_time(line, at)
                    if self._latest is None or at > self._latest:
                        self._latest = at
                    if at > self._quiet_until:
                        self._play(at)
                elif self._shortest < math.inf:
                    self._note("undated", line, 0.0)
                answer = dispatch(event)
                if answer.actions:
                    self._take(answer.actions)
                if answer.disposition != "accepted":
                    self._first_line.setdefault((answer.disposition, str(answer.reason)), line)
                    continue
                if type(event) is ParentOutputReady:  # not isinstance: pydantic's is slow
                    if not answer.actions:
                        self._waiting.setdefault(event.parent_id, registry.now)
                elif type(event) is ParentRegistered:
                    if event.limits is not None:
                        self._heed(event.limits)
                elif type(event) is RequestsAborted and not self._aborted:
                    self._note_abort(answer.actions)
        finally:
            self._seconds += self._clock() - started

    def drain(self) -> None:
        """Play the clock through all deadlines that are left."""
        started = self._clock()
        try:
            self._play(math.inf)
        finally:
            self._seconds += self._clock() - started

    def _note_time(self, line: int, at: float) -> None:
        assert self._latest is not None
        self._note("behind" if at < self._latest else "jump", line, abs(at - self._latest))

    def _note(self, kind: str, line: int, by_s: float) -> None:
        known = self._clock_odd.setdefault(kind, {"count": 0, "line": line, "by_s": by_s})
        known["count"] += 1

    def skip(self, bad: BadLine) -> None:
        """Count a bad line that is passed over: the ``on_bad`` of ``read_events``."""
        self._bad += 1
        if len(self._bad_first) < _EXAMPLES:
            self._bad_first.append(printable(str(bad)))

    def _play(self, until: float) -> None:
        """Tick at each deadline before ``until``.

        Then note how long there is nothing to do: a deadline never moves to an earlier time, and a new one is
        at least the shortest limit away from the time at which it is set.
        """
        registry = self.registry
        while (due := registry.next_deadline()) is not None and due < until:
            self._before_tick()
            self._ticks += 1
            self._take(registry.dispatch(ClockTicked(at=due)).actions)
        self._quiet_until = min(math.inf if due is None else due, registry.now + self._shortest)

    def _heed(self, limits: Limits) -> None:
        """A parent brought limits of its own."""
        self._shortest = min(self._shortest, _shortest(limits))
        self._quiet_until = min(self._quiet_until, self.registry.now + self._shortest)

    def _take(self, actions: Iterable[Action]) -> None:
        on_action = self._on_action
        for action in actions:
            self._actions[action.type] += 1
            if isinstance(action, ForwardParent):
                self._note_forward(action.parent_id)
            elif isinstance(action, ReleaseRequests):
                self._waiting.pop(action.request_ids[0], None)
                self._forwarded.discard(action.request_ids[0])
            elif isinstance(action, FailParent):
                self._failures.setdefault(action.reason.value, action.parent_id)
            if on_action is not None:
                on_action(action)

    def _note_forward(self, parent_id: str) -> None:
        since = self._waiting.pop(parent_id, None)
        if since is None:
            self._at_once += 1
        else:
            wait = self.registry.now - since
            self._waits.append(wait)
            if wait > self._longest[0]:
                self._longest = (wait, parent_id)
        if parent_id not in self._forwarded:
            self._forwarded.add(parent_id)
            self._ever_forwarded += 1

    def _note_abort(self, actions: Iterable[Action]) -> None:
        """An example of a client's abort, which brings no ``fail_parent``: a group released without one."""
        failed = {action.parent_id for action in actions if isinstance(action, FailParent)}
        for action in actions:
            if isinstance(action, ReleaseRequests) and action.request_ids[0] not in failed:
                self._aborted = action.request_ids[0]
                return

    def summary(self) -> Summary:
        """What became of everything so far."""
        counters = self.registry.counters()
        failed = counters["failed"]
        aborted = failed.get(_ABORTED, 0)
        events = counters["events"] - self._ticks
        oldest = sorted((row for row in self.registry.requests() if row.role is None), key=lambda row: -row.age_s)[
            :_EXAMPLES
        ]
        return Summary(
            parents={
                "registered": counters["parents_registered"],
                "forwarded": self._ever_forwarded,
                "finished": counters["finished"],
                "failed": sum(failed.values()) - aborted,
                "aborted": aborted,
                "live": counters["live_parents"],
            },
            failures={
                reason: {"count": count, "example": self._failures.get(reason)}
                for reason, count in failed.items()
                if reason != _ABORTED
            },
            aborts={"count": aborted, "example": self._aborted},
            ignored=self._refused("ignored", counters),
            rejected=self._refused("rejected", counters),
            join_wait=self._join_wait(),
            live={
                "parents": counters["live_parents"],
                "companions": counters["live_companions"],
                "oldest": [
                    {name: getattr(row, name) for name in ("request_id", "state", "age_s", "missing", "sealed")}
                    for row in oldest
                ],
            },
            actions=dict(self._actions),
            events=events,
            ticks=self._ticks,
            bad_lines={"count": self._bad, "first": list(self._bad_first)},
            clock={kind: dict(found) for kind, found in self._clock_odd.items()},
            audit_errors=counters["observer_errors"],
            seconds=self._seconds,
            events_per_second=events / self._seconds if self._seconds > 0 else 0.0,
        )

    def _refused(self, disposition: str, counters: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {
            reason: {"count": count, "line": self._first_line.get((disposition, reason))}
            for reason, count in counters[disposition].items()
        }

    def _join_wait(self) -> dict[str, Any]:
        waits = sorted(self._waits)
        count = len(waits)
        wait: dict[str, Any] = {"forwards": self._at_once + count, "at_once": self._at_once, "waited": count}
        for percent in _PERCENTILES:
            wait[f"p{percent}_s"] = waits[math.ceil(count * percent / 100) - 1] if waits else None
        wait["max_s"] = waits[-1] if waits else None
        wait["slowest"] = self._longest[1] if waits else None
        return wait


def _shortest(limits: Limits) -> float:
    return min((value for name in _TIMES if (value := getattr(limits, name)) is not None), default=math.inf)


def run_trace(
    path: str | os.PathLike[str],
    *,
    limits: Limits | None = None,
    observers: Iterable[Observer] = (),
    on_action: Callable[[Action], object] | None = None,
    skip_bad: bool = False,
    drain: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Summary:
    """Run the trace at ``path`` (plain, gzip, or ``-``) over a new registry and sum it up.

    ``skip_bad``: count lines that are no events and go on; else they raise ``BadLine``. ``drain``: when the trace
    is over, let all deadlines come. Raises ``OSError`` if the trace cannot be read.
    """
    run = Run(Registry(limits, observers), on_action, clock=clock)
    with LineSource(path) as source:
        run.feed(read_events(source, run.skip if skip_bad else None))
    if drain:
        run.drain()
    return run.summary()
