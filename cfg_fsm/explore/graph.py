"""The real engine as a graph: its states, and what each signal leads to, each step held against the rules once.

The environment has many more states than the engine. What the engine does with a signal depends on its own state
alone, so a step that was taken once is remembered, and a search only asks again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from cfg_fsm.actions import AbortRequests, Dispatched, ReleaseRequests
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.engine.registry import Registry
from cfg_fsm.engine.snapshot import Snapshot
from cfg_fsm.engine.views import RequestView
from cfg_fsm.explore import alphabet, canon
from cfg_fsm.explore.coverage import Coverage
from cfg_fsm.explore.environment import Signal
from cfg_fsm.explore.scenario import Scenario
from cfg_fsm.rules.checker import broken_by
from cfg_fsm.rules.history import History
from cfg_fsm.rules.rule import Broken
from cfg_fsm.rules.step import Repetition, Step
from cfg_fsm.rules.verdicts import r5_nothing_raises
from cfg_fsm.rules.walks import r10_ticks_alone_end_every_parent, r12_the_same_events_give_the_same_answers


class Edge(NamedTuple):
    """Where a signal leads."""

    to: int
    rejected: bool
    over: tuple[int, ...]
    """The places of the parents whose end was told."""


class State:
    """One state of the engine, with what is needed to go on from it."""

    __slots__ = ("edges", "held", "history", "others", "registry", "slots")

    def __init__(
        self, registry: Registry, held: Snapshot, history: History, slots: tuple[int, ...], others: int
    ) -> None:
        self.registry, self.held, self.history = registry, held, history
        self.slots, self.others = slots, others
        """The parts of its key, as numbers."""
        self.edges: dict[Signal, Edge] = {}


class BrokenStep(Exception):
    """A step after which rules do not hold."""

    def __init__(self, found: list[Broken]) -> None:
        self.why = "; ".join(broken.headline for broken in found)
        super().__init__(self.why)
        self.checks = [broken.check for broken in found if broken.check is not None]
        """Those that found it."""
        self.signals: list[Signal] = [("tick", "due")] * max(broken.ticks for broken in found)
        """The one that was asked about, and those after it up to the step that is broken."""


class EngineGraph:
    """The states of the engine that were reached so far. State 0 is a new registry."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.coverage = Coverage()
        self.states: list[State] = []
        self.checked = 0
        """Steps held against the rules."""
        self.before_step: Callable[[], object] | None = None
        """Called before each of them; what it raises passes through."""
        self._ids: dict[Any, int] = {}
        self._slots: dict[Any, int] = {}
        self.slot_keys: list[tuple[int, tuple[int, ...]]] = []
        """Of each slot's key: a number for its head, and one for each companion."""
        self._parts: dict[Any, int] = {}
        self._payloads: dict[int, str] = {}
        """Every payload so far, by its identity."""
        registry = Registry(scenario.limits)
        self._add(registry, registry.snapshot(), History(registry.limits))
        self._strange = list(alphabet.strange(scenario)) if scenario.faults.strange else []
        self._free = alphabet.free(scenario)
        self._free_edges: dict[int, tuple[list[tuple[Signal, Edge]], int]] = {}

    def _add(self, registry: Registry, held: Snapshot, history: History) -> int:
        slots, others = canon.key(held, history, self.scenario, self._payloads)
        numbers = tuple(self._slot(slot) for slot in slots)
        other = self._parts.setdefault(others, len(self._parts))
        orders = tuple(slot.order for slot in slots)
        found = self._ids.setdefault((numbers, orders, other), len(self.states))
        if found == len(self.states):
            self.states.append(State(registry, held, history, numbers, other))
        return found

    def _slot(self, slot: canon.Slot) -> int:
        parts = self._parts
        key = (
            parts.setdefault(slot.head, len(parts)),
            tuple(parts.setdefault(part, len(parts)) for part in slot.companions),
        )
        number = self._slots.setdefault(key, len(self._slots))
        if number == len(self.slot_keys):
            self.slot_keys.append(key)
        return number

    # -- steps --------------------------------------------------------------------------------------------

    def edge(self, source: int, signal: Signal) -> Edge:
        """Where the signal leads. Raises ``BrokenStep`` if the step breaks a rule."""
        state = self.states[source]
        found = state.edges.get(signal)
        if found is None:
            if self.before_step is not None:
                self.before_step()
            try:
                found = self._step(state, signal)
            except BrokenStep as broken:
                broken.signals.insert(0, signal)
                raise
            state.edges[signal] = found
        return found

    def free(self, source: int) -> tuple[list[tuple[Signal, Edge]], int]:
        """The edges that need no permission and lead on, and the number of those that lead nowhere."""
        found = self._free_edges.get(source)
        if found is None:
            history = self.states[source].history
            due = next_due(history)
            edges, idle = [], 0
            for signal in self._free:
                if signal == ("tick", "due") and due is None:
                    continue
                edge = self.edge(source, signal)
                if edge.to == source:
                    idle += 1
                else:
                    edges.append((signal, edge))
            for signal in self._strange:
                event = alphabet.make(self.scenario, signal, history.now, due)
                if history.copy().take(event).disposition != "accepted":
                    self.edge(source, signal)
                    idle += 1
            found = self._free_edges[source] = edges, idle
        return found

    def _step(self, state: State, signal: Signal) -> Edge:
        event = alphabet.make(self.scenario, signal, state.history.now, next_due(state.history))
        self._payloads.update((id(payload), payload) for payload in alphabet.payloads(event))
        records: list[AuditRecord] = []
        registry, step = take_step(state, event, records)
        self.checked += 1
        self.coverage.note(records)
        records.clear()  # the registry keeps its observer
        known = len(self.states)
        to = self._add(registry, step.after, step.present)
        if to == known and self.scenario.limits.total_s is not None:
            try:
                r10_ticks_alone_end_every_parent(registry)
            except Broken as broken:
                raise BrokenStep([broken]) from broken
        return Edge(to, step.answer.disposition == "rejected", self._over(step.answer))

    def _over(self, answer: Dispatched) -> tuple[int, ...]:
        if answer.disposition != "accepted":
            return ()
        ended = [  # some are released, and some are told to abort and are released later
            request_id
            for action in answer.actions
            if isinstance(action, AbortRequests | ReleaseRequests)
            for request_id in action.request_ids
        ]
        return tuple(place for place, name in enumerate(self.scenario.parent_ids) if name in ended)


def next_due(history: History) -> float | None:
    """When the next deadline comes, by the account."""
    deadlines = [due.when for life in history.lives.values() for due in life.deadlines()]
    return min((*deadlines, *(wait.deadline for wait in history.waiting.values())), default=None)


def take_step(state: State, event: Any, records: list[AuditRecord]) -> tuple[Registry, Step]:
    """Give the event to a copy of a state's registry, and hold the step against all rules. Raises ``BrokenStep``.

    ``records`` gets what the copy tells its observer.
    """
    registry = state.registry.copy(observers=[records.append])
    present = state.history.copy()
    foreseen = present.take(event)
    try:
        answer, after, views = r5_nothing_raises(partial(_look, registry, event))
        again = None
        # Where nothing was done and no deadline was looked at, a repetition shows nothing and takes its time.
        if answer.disposition == "accepted" or answer.actions or registry.limits.bounds_time:
            theirs: list[AuditRecord] = []
            twin = state.registry.copy(observers=[theirs.append])
            again = Repetition(r5_nothing_raises(partial(twin.dispatch, event)), records, theirs)
    except Broken as broken:
        raise BrokenStep([broken]) from broken
    step = Step(event, answer, state.held, after, views, state.history, present, foreseen)
    found = broken_by(step)
    if again is not None:
        try:
            r12_the_same_events_give_the_same_answers(step, again)
        except Broken as broken:
            found.append(broken)
    if found:
        raise BrokenStep(found)
    present.forget(set(after.tombstones))
    return registry, step


def _look(registry: Registry, event: Any) -> tuple[Dispatched, Snapshot, list[RequestView]]:
    return registry.dispatch(event), registry.snapshot(), registry.requests()
