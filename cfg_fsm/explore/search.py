"""Breadth first through every order of events, so that the first violation found is one of the shortest.

A node is a state of the engine, one of the environment for each group, and what is left of the budgets. Of a node
that was expanded only its key is kept, and how it was reached; registries are kept once for each state of the
engine.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from cfg_fsm.explore.alphabet import PASS
from cfg_fsm.explore.coverage import Coverage
from cfg_fsm.explore.environment import GroupState, Scheduler, Signal, unborn
from cfg_fsm.explore.graph import BrokenStep, Edge, EngineGraph
from cfg_fsm.explore.scenario import COUNTED, Scenario
from cfg_fsm.rules.rule import Check

MAX_STATES, MAX_ENGINE_STATES = 5_000_000, 100_000
"""Where the command stops: a state takes some 300 bytes, and one of the engine, with its registry, 20,000, which
makes 3.5 GB. The functions here stop where they are told to."""
_EVERY = 64
"""Nodes between two reports of how far it is."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The shortest way to a step after which rules do not hold."""

    signals: tuple[Signal, ...]
    checks: tuple[Check, ...]
    """Those that found it; ``check.rule`` is the rule that each belongs to."""
    why: str

    @property
    def rules(self) -> tuple[str, ...]:
        """The names of the checks."""
        return tuple(check.name for check in self.checks)


@dataclass(slots=True)
class Result:
    """What an exploration has found."""

    scenario: Scenario
    unique: int = 0
    """States, each counted once."""
    states: int = 0
    """States as they were reached, again and again: one for each event in each state, and the first."""
    engine_states: int = 0
    checked: int = 0
    """Steps of the real engine held against the rules: those that differ in the engine's state or the event."""
    depth: int = 0
    seconds: float = 0.0
    truncated: str | None = None
    """Why it stopped early; ``None``: it did not."""
    violation: Violation | None = None
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far it is."""

    unique: int
    frontier: int
    depth: int


class _Budgets:
    """What is left, packed into one number: a field for each kind of fault, one for all of them together, and one
    for the seconds that may pass. Above each is a bit that is always set, so that fields can be compared at once.
    """

    def __init__(self, scenario: Scenario) -> None:
        faults = scenario.faults
        most = {name: getattr(faults, name) for name in COUNTED}
        together = sum(most.values()) if faults.together is None else faults.together
        self.first, self.guards, shift = 0, 0, 0
        self._costs: dict[str, tuple[int, tuple[int, ...]]] = {}
        """For what is spent: the number to be subtracted, and the fields that must not be empty."""
        places: dict[str, tuple[int, int]] = {}
        for name, left in {**most, "together": together, "pass": scenario.passes}.items():
            width = left.bit_length()
            places[name] = 1 << shift, ((1 << width) - 1) << shift
            self.first |= left << shift
            self.guards |= 1 << (shift + width)
            shift += width + 1
        one, whole = places.pop("together")
        for name, (unit, mask) in places.items():
            self._costs[name] = (unit, (mask,)) if name == "pass" else (unit + one, (mask, whole))

    def spend(self, left: int, what: str) -> int:
        """What is left after it; -1: it is used up."""
        cost, masks = self._costs[what]
        for mask in masks:
            if not left & mask:
                return -1
        return left - cost

    def covers(self, one: int, other: int) -> bool:
        """Whether ``one`` leaves at least as much of everything as ``other``."""
        return ((one | self.guards) - other) & self.guards == self.guards


_Move = tuple[Signal, int, "str | None", int]
"""Signal, the group's next state as a number, the fault, and the next state if it is rejected (-1: the same)."""


class _Groups:
    """The states of the environment as numbers, and what each may do."""

    def __init__(self, scenario: Scenario) -> None:
        self._schedulers = [Scheduler(scenario, parent_id) for parent_id in scenario.parent_ids]
        self._numbers: dict[GroupState, int] = {}
        self.states: list[GroupState] = []
        self._moves: dict[tuple[int, int], list[_Move]] = {}
        self._over: dict[int, int] = {}

    def number(self, state: GroupState) -> int:
        found = self._numbers.setdefault(state, len(self.states))
        if found == len(self.states):
            self.states.append(state)
        return found

    def moves(self, slot: int, number: int) -> list[_Move]:
        found = self._moves.get((slot, number))
        if found is None:
            found = [
                (
                    move.signal,
                    self.number(move.after),
                    move.fault,
                    -1 if move.refused is None else self.number(move.refused),
                )
                for move in self._schedulers[slot].moves(self.states[number])
            ]
            self._moves[slot, number] = found
        return found

    def over(self, number: int) -> int:
        """The same when the host has heard of the end."""
        found = self._over.get(number)
        if found is None:
            found = self._over[number] = self.number(self.states[number].finished())
        return found


class _Truncated(Exception):
    """A bound was reached; its message says which."""


class Search:
    """One exploration."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.engine = EngineGraph(scenario)
        self.result = Result(scenario, coverage=self.engine.coverage)
        """What was found so far; complete when ``run`` has returned."""
        self._groups, self._budgets = _Groups(scenario), _Budgets(scenario)
        self._joint: dict[tuple[int, int], int] = {}
        self._parts: dict[object, int] = {}
        self._signals: dict[Signal, int] = {}
        self._seen: dict[int, int | tuple[int, ...]] = {}
        """By key, the budget with which it was reached, or those of which none covers another."""
        self._came_from = array("l", [-1])
        self._came_by = array("l", [-1])

    def run(
        self,
        max_states: int | None = None,
        max_seconds: float | None = None,
        clock: Callable[[], float] | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        max_engine_states: int | None = None,
    ) -> Result:
        """Explore. It ends when everything was seen, at the first violation, or at a bound; ``max_seconds`` and
        the time in the result need a ``clock``. The bounds are looked at before each step of the engine, too:
        those of one node can take seconds."""
        result = self.result
        began = clock() if clock is not None else 0.0

        def look() -> None:
            if max_seconds is not None and clock is not None and not clock() - began < max_seconds:
                raise _Truncated(f"after {max_seconds:g} seconds")
            if max_states is not None and len(self._came_from) >= max_states:
                raise _Truncated(f"at {max_states:,} states")
            if max_engine_states is not None and len(self.engine.states) >= max_engine_states:
                raise _Truncated(f"at {max_engine_states:,} states of the engine")

        self.engine.before_step = look
        try:
            self._explore(result, look, on_progress)
        except _Truncated as bound:
            result.truncated = str(bound)
        finally:
            result.unique = len(self._came_from)
            result.engine_states, result.checked = len(self.engine.states), self.engine.checked
            result.seconds = clock() - began if clock is not None else 0.0
        return result

    def _explore(
        self, result: Result, look: Callable[[], None], on_progress: Callable[[Progress], None] | None
    ) -> None:
        groups = (self._groups.number(unborn(self.scenario.companions)),) * self.scenario.parents
        frontier: list[tuple[int, _Node]] = [(0, (0, groups, self._budgets.first))]
        self._seen[self._key(0, groups)] = self._budgets.first
        result.states = 1
        expanded = 0
        while frontier:
            ahead: list[tuple[int, _Node]] = []
            for index, node in frontier:
                if on_progress is not None and expanded % _EVERY == 0:
                    on_progress(Progress(len(self._came_from), len(frontier) + len(ahead), result.depth))
                expanded += 1
                look()
                try:
                    result.states += self._expand(index, node, ahead)
                except BrokenStep as broken:
                    result.violation = self._violation(index, broken)
                    result.depth += 1
                    return
            frontier = ahead
            result.depth += bool(ahead)

    def _expand(self, index: int, node: _Node, ahead: list[tuple[int, _Node]]) -> int:
        """Add what comes next after a node to ``ahead``; the number of edges."""
        engine, groups, numbers, budget = self.engine, self._groups, node[1], node[2]
        source = node[0]
        edges = engine.states[source].edges
        free, count = engine.free(source)
        for signal, edge in free:
            self._reach(index, signal, edge, numbers, budget, ahead)
        count += len(free)
        for slot, number in enumerate(numbers):
            for signal, after, fault, refused in groups.moves(slot, number):
                left = budget if fault is None else self._budgets.spend(budget, fault)
                if left < 0:
                    continue
                count += 1
                found = edges.get(signal)
                if found is None:
                    found = engine.edge(source, signal)
                if found.rejected and refused >= 0:
                    after = refused
                if found.to == source and after == number:
                    continue  # back where it was, with no more budget than before
                self._reach(index, signal, found, (*numbers[:slot], after, *numbers[slot + 1 :]), left, ahead)
        left = self._budgets.spend(budget, "pass")
        if left >= 0:
            count += 1
            signal = PASS
            self._reach(index, signal, engine.edge(source, signal), numbers, left, ahead)
        return count

    def _reach(
        self,
        index: int,
        signal: Signal,
        edge: Edge,
        numbers: tuple[int, ...],
        budget: int,
        ahead: list[tuple[int, _Node]],
    ) -> None:
        for place in edge.over:
            numbers = (*numbers[:place], self._groups.over(numbers[place]), *numbers[place + 1 :])
        key = self._key(edge.to, numbers)
        seen, covers = self._seen.get(key), self._budgets.covers
        if seen is None:
            self._seen[key] = budget
        else:
            before = (seen,) if isinstance(seen, int) else seen
            for other in before:
                if covers(other, budget):
                    return  # with as much left, all of this was or will be seen
            self._seen[key] = (*(other for other in before if not covers(budget, other)), budget)
        ahead.append((len(self._came_from), (edge.to, numbers, budget)))
        self._came_from.append(index)
        self._came_by.append(self._signals.setdefault(signal, len(self._signals)))

    # -- keys ---------------------------------------------------------------------------------------------

    def _key(self, engine: int, numbers: tuple[int, ...]) -> int:
        if not self.scenario.symmetry:
            key = engine
            for number in numbers:
                key = key << 32 | number
            return key
        joint = self._joint
        parts = []
        for pair in zip(self.engine.states[engine].slots, numbers, strict=True):
            found = joint.get(pair)
            if found is None:
                found = joint[pair] = self._symmetric(*pair)
            parts.append(found)
        key = self.engine.states[engine].others
        for part in sorted(parts):
            key = key << 32 | part
        return key

    def _symmetric(self, slot: int, number: int) -> int:
        """A number for a group in the engine and in the environment that does not tell companions apart."""
        head, companions = self.engine.slot_keys[slot]
        state = self._groups.states[number]
        pairs = tuple(sorted(zip(companions, state.companions, strict=True)))
        return self._parts.setdefault((head, state._replace(companions=()), pairs), len(self._parts))

    # -- how it came to it --------------------------------------------------------------------------------

    def _violation(self, index: int, broken: BrokenStep) -> Violation:
        by_number = list(self._signals)
        signals = list(reversed(broken.signals))
        while index > 0:
            signals.append(by_number[self._came_by[index]])
            index = self._came_from[index]
        return Violation(tuple(reversed(signals)), tuple(broken.checks), broken.why)


_Node = tuple[int, tuple[int, ...], int]
"""State of the engine, states of the groups, and the budgets left, as numbers."""


def explore(
    scenario: Scenario,
    max_states: int | None = None,
    max_seconds: float | None = None,
    clock: Callable[[], float] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    max_engine_states: int | None = None,
) -> Result:
    """Explore one scenario from its beginning."""
    return Search(scenario).run(max_states, max_seconds, clock, on_progress, max_engine_states)
