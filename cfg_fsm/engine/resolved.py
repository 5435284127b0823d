"""The tables, resolved once for the engine.

Triggers as bound callables, states as plain strings and sets, coupling and deadline rows by what may satisfy them.
Everything here follows from ``tables``; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from cfg_fsm import tables
from cfg_fsm.engine.machines import MACHINES, SlimEvent
from cfg_fsm.engine.step import Step
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.states import MachineKind, Trigger
from cfg_fsm.tables import CouplingRow, DeadlineRow, Quantifier


def plain(states: Iterable[str]) -> frozenset[str]:
    """The states as plain strings: a set of those is faster to ask than one of enumeration members."""
    return frozenset(str.__str__(state) for state in states)


def _fires(kind: MachineKind, trigger: Trigger) -> Callable[..., bool]:
    event = MACHINES[kind].events[trigger.value]
    assert isinstance(event, SlimEvent)
    return event.trigger


def _by_machine(trigger: Trigger) -> dict[str, Callable[..., bool]]:
    return {kind.value: _fires(kind, trigger) for kind in MachineKind}


START, FAIL = _by_machine(Trigger.START), _by_machine(Trigger.FAIL)
DEFER, FORWARD, FINISH = (
    _fires(tables.PARENT, trigger) for trigger in (Trigger.DEFER, Trigger.FORWARD, Trigger.FINISH)
)
CLEAN_PARENT, CLEAN_COMPANION = (_fires(kind, Trigger.CLEAN) for kind in (tables.PARENT, tables.COMPANION))
COMPLETE = _fires(tables.COMPANION, Trigger.COMPLETE)

INITIAL_PARENT, INITIAL_COMPANION = (
    str.__str__(tables.INITIAL[kind]) for kind in (tables.PARENT, tables.COMPANION)
)
FINAL_PARENT = str.__str__(tables.FINAL[tables.PARENT])
OPEN = plain(tables.OPEN_COMPANION)


class CoupledRow:
    """A coupling row, resolved."""

    __slots__ = ("companions", "effect", "every", "fires", "name", "parent", "reason", "sealed")

    effect: RowEffect
    """What it does when it is satisfied."""

    def __init__(self, row: CouplingRow) -> None:
        self.name = row.name
        self.parent = plain(row.parent)
        self.sealed = row.sealed
        self.every = row.quantifier is Quantifier.EVERY
        self.companions = plain(row.companions)
        self.reason = row.reason
        self.fires = (row.fires, row.trigger)


#: Group, row, the companions found (none if it asks for every one), step.
RowEffect: TypeAlias = Callable[[Any, CoupledRow, Sequence[Any], Step], None]

COUPLED_ROWS = tuple(CoupledRow(row) for row in tables.COUPLING_ROWS)
Rows: TypeAlias = tuple[CoupledRow, ...]
_PARENT_STATES, _COMPANION_STATES = (plain(tables.STATES[kind]) for kind in (tables.PARENT, tables.COMPANION))

#: Coupling rows by whether the group is sealed and by the parent's state. Every row names some of the parent's
#: states, so no other row can be satisfied.
COUPLED: dict[bool, dict[str, Rows]] = {
    sealed: {
        state: tuple(row for row in COUPLED_ROWS if state in row.parent and (sealed or not row.sealed))
        for state in _PARENT_STATES
    }
    for sealed in (False, True)
}
#: Those of them that the parent may satisfy by a move: by the state it left, then by the one it entered. Rows that
#: name the old state too are left out: they would have fired earlier.
ENABLED_BY: dict[bool, dict[str, dict[str, Rows]]] = {
    sealed: {
        source: {dest: tuple(row for row in rows if source not in row.parent) for dest, rows in coupled.items()}
        for source in _PARENT_STATES
    }
    for sealed, coupled in COUPLED.items()
}
#: Those of them that a companion may satisfy by entering a state: by its state, then by the parent's.
COUPLED_BY: dict[bool, dict[str, dict[str, Rows]]] = {
    sealed: {
        state: {parent: tuple(row for row in rows if state in row.companions) for parent, rows in coupled.items()}
        for state in _COMPANION_STATES
    }
    for sealed, coupled in COUPLED.items()
}


def bind_effects(effects: Mapping[tuple[str, Trigger], RowEffect]) -> None:
    """Give each coupling row its effect, by whose trigger it fires and which.

    Raises ``InvalidDefinition`` for a row without an effect and for an effect that no row has.
    """
    for row in COUPLED_ROWS:
        if row.fires not in effects:
            raise InvalidDefinition(
                f"{row.name}: there is no effect for {row.fires[1]!s} of the {row.fires[0]}", trigger=row.fires[1]
            )
        row.effect = effects[row.fires]
    for fires in effects.keys() - {row.fires for row in COUPLED_ROWS}:
        raise InvalidDefinition(f"no coupling row fires {fires[1]!s} of the {fires[0]}", trigger=fires[1])


#: States of a parent from which it can be forwarded.
WAITING = plain(row.source for row in tables.PARENT_ROWS if row.trigger is Trigger.FORWARD)
#: States of a parent from which it can finish.
CAN_FINISH = plain(row.source for row in tables.PARENT_ROWS if row.trigger is Trigger.FINISH)
#: States of a companion whose output is in the bundle.
DONE = frozenset().union(
    *(plain(row.companions) for row in tables.COUPLING_ROWS if row.trigger is Trigger.FORWARD)
)

DEADLINES: dict[tuple[str, str], tuple[DeadlineRow, ...]] = {
    (kind.value, state): tuple(row for row in tables.DEADLINE_ROWS if row.machine is kind and state in row.states)
    for kind in MachineKind
    for state in (str.__str__(state) for state in tables.STATES[kind])
}
