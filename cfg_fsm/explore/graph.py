"""The real engine as a graph: its states, and what each signal leads to, each step held against the rules once.

The environment has many more states than the engine. What the engine does with a signal depends on its own state
alone, so a step that was taken once is remembered, and a search only asks again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cfg_fsm.actions import Dispatched, ReleaseRequests
from cfg_fsm.engine.journal import AuditRecord, Journal
from cfg_fsm.engine.registry import Registry
from cfg_fsm.events import ClockTicked
from cfg_fsm.explore import alphabet, canon
from cfg_fsm.explore.coverage import Coverage
from cfg_fsm.explore.environment import Signal
from cfg_fsm.explore.scenario import Scenario
from cfg_fsm.rules.checker import PROPERTIES
from cfg_fsm.rules.history import History
from cfg_fsm.rules.step import Broken, Picture, Step, take_picture

_NOBODY_ENDED = 8
"""More ticks than any scenario has parents."""


class Edge(NamedTuple):
    """Where a signal leads."""

    to: int
    rejected: bool
    over: tuple[int, ...]
    """The places of the parents whose end was told."""


class State:
    """One state of the engine, with what is needed to go on from it."""

    __slots__ = ("edges", "history", "others", "picture", "registry", "slots")

    def __init__(self, registry: Registry, history: History, slots: tuple[int, ...], others: int) -> None:
        self.registry, self.history = registry, history
        self.slots, self.others = slots, others
        """The parts of its key, as numbers."""
        self.edges: dict[Signal, Edge] = {}
        self.picture: Picture | None = None


class BrokenStep(Exception):
    """A step after which rules do not hold. ``rules``: those, by the names of ``PROPERTIES`` and the like."""

    def __init__(self, rules: list[str], why: str, more: list[Signal] | None = None) -> None:
        super().__init__(why)
        self.rules, self.why = rules, why
        self.signals = more or []
        """The one that was asked about, and those after it up to the step that is broken."""


class EngineGraph:
    """The states of the engine that were reached so far. State 0 is a new registry."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.coverage = Coverage()
        self.states: list[State] = []
        self.checked = 0
        """Steps held against the rules."""
        self._ids: dict[Any, int] = {}
        self._slots: dict[Any, int] = {}
        self.slot_keys: list[tuple[int, tuple[int, ...]]] = []
        """Of each slot's key: a number for its head, and one for each companion."""
        self._parts: dict[Any, int] = {}
        registry = Registry(scenario.limits)
        self._add(registry, History(registry.limits))
        self._strange = list(alphabet.strange(scenario)) if scenario.faults.strange else []
        self._free = alphabet.free(scenario)
        self._free_edges: dict[int, tuple[list[tuple[Signal, Edge]], int]] = {}

    def _add(self, registry: Registry, history: History) -> int:
        slots, others = canon.key(registry, history, self.scenario)
        numbers = tuple(self._slot(slot) for slot in slots)
        other = self._parts.setdefault(others, len(self._parts))
        orders = tuple(slot.order for slot in slots)
        found = self._ids.setdefault((numbers, orders, other), len(self.states))
        if found == len(self.states):
            self.states.append(State(registry, history, numbers, other))
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
        if state.picture is None:
            state.picture = take_picture(state.registry, state.registry.copy())
        event = alphabet.make(self.scenario, signal, state.history.now, next_due(state.history))
        registry = state.registry.copy()
        records = watch(registry)
        step = take_step(registry, event, state, records)
        self.checked += 1
        self.coverage.note(records)
        registry._ledger.step.journal = None
        known = len(self.states)
        to = self._add(registry, step.present)
        if to == known and self.scenario.limits.total_s is not None:
            r10_ticks_alone_end_every_parent(registry)
        return Edge(to, step.answer.disposition == "rejected", self._over(step.answer))

    def _over(self, answer: Dispatched) -> tuple[int, ...]:
        if answer.disposition != "accepted":
            return ()
        released = [
            request_id
            for action in answer.actions
            if isinstance(action, ReleaseRequests)
            for request_id in action.request_ids
        ]
        return tuple(place for place, name in enumerate(self.scenario.parent_ids) if name in released)


def next_due(history: History) -> float | None:
    """When the next deadline comes, by the account."""
    return min((due.when for life in history.lives.values() for due in life.deadlines()), default=None)


def watch(registry: Registry) -> list[AuditRecord]:
    """Give a copy of a registry an observer; what it collects."""
    records: list[AuditRecord] = []
    registry._ledger.step.journal = Journal([records.append])
    return records


def take_step(registry: Registry, event: Any, state: State, records: list[AuditRecord]) -> Step:
    """Dispatch the event, and hold the step against all rules. Raises ``BrokenStep``.

    ``registry`` is a copy of that of ``state``, and ``records`` are what it gives its observer.
    """
    assert state.picture is not None
    past, before = state.history, state.picture
    present = past.copy()
    foreseen = present.take(event)
    alike = True
    try:
        answer = registry.dispatch(event)
        # A second registry is asked the same (R12), and then for its next deadline: that tidies its heap, and must
        # not tidy that of the first. Where there are no deadlines and nothing was done, it would only take time.
        twin = None
        if answer.disposition == "accepted" or registry.limits.bounds_time:
            twin = state.registry.copy()
            twin_records = watch(twin)
            alike = twin.dispatch(event) == answer and twin_records == records
        after = take_picture(registry, twin)
    except Exception as error:
        raise BrokenStep([R5], f"R5: nothing raises out of the engine: {error!r}") from error
    step = Step(registry, event, answer, before, after, past, present, foreseen)
    broken: dict[str, str] = {}
    for holds in PROPERTIES:
        try:
            holds(step)
        except Broken as error:
            broken[holds.__name__] = error.rule
        except Exception as error:  # noqa: BLE001 - whatever it is, a rule
            if not broken:  # a rule may rely on those before it
                broken[holds.__name__] = repr(error)
    if not alike:
        broken[R12] = "R12: the same events give the same actions and audit records"
    if broken:
        raise BrokenStep(list(broken), "; ".join(rule.splitlines()[0] for rule in broken.values()))
    present.forget(set(after.tombstones))
    return step


def r10_ticks_alone_end_every_parent(registry: Registry) -> None:
    """R10: from here a tick at each next deadline ends at least one parent, until none is left."""
    registry = registry.copy()
    ticks: list[Signal] = []
    while registry.requests():
        due, live = registry.next_deadline(), registry.counters()["live_parents"]
        if due is None or len(ticks) == _NOBODY_ENDED:
            raise BrokenStep([R10], "R10: a parent is live and no deadline will end it", ticks)
        ticks.append(("tick", "due"))
        try:
            registry.dispatch(ClockTicked(at=max(due, registry.now)))
        except Exception as error:
            raise BrokenStep([R5], f"R5: nothing raises out of the engine: {error!r}", ticks) from error
        if registry.counters()["live_parents"] >= live:
            raise BrokenStep([R10], "R10: a tick at the next deadline ends nobody", ticks)


R5 = "r5_nothing_raises"
R12 = "r12_the_same_events_give_the_same_answers"
R10 = r10_ticks_alone_end_every_parent.__name__
