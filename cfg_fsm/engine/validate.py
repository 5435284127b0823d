"""Checks of the tables against each other. A contradiction is an ``InvalidDefinition``, raised at import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cfg_fsm import tables
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.states import MachineKind, Trigger
from cfg_fsm.tables import Classification, CouplingRow, DeadlineRow, Row


def validate_rows(kind: MachineKind, states: Sequence[str], rows: Iterable[Row], initial: str, final: str) -> None:
    """Raise ``InvalidDefinition`` for an unknown state, a row that can never be taken because an earlier one
    has its trigger and source, a state that cannot be reached, or one without a way to ``final``."""
    ahead: dict[str, set[str]] = {state: set() for state in states}
    back: dict[str, set[str]] = {state: set() for state in states}
    taken: set[tuple[Trigger, str]] = set()
    for state in (initial, final):
        if state not in ahead:
            raise InvalidDefinition(f"{kind}: unknown state {state!r}", machine=kind, state=state)
    for row in rows:
        for state in (row.source, row.dest):
            if state not in ahead:
                raise InvalidDefinition(
                    f"{kind}: row {row.trigger!s} names the unknown state {state!r}",
                    machine=kind,
                    state=state,
                    trigger=row.trigger,
                )
        if (row.trigger, row.source) in taken:
            raise InvalidDefinition(
                f"{kind}: two rows for trigger {row.trigger!s} in state {row.source!s}",
                machine=kind,
                state=row.source,
                trigger=row.trigger,
            )
        taken.add((row.trigger, row.source))
        ahead[row.source].add(row.dest)
        back[row.dest].add(row.source)
    for start, edges, what in ((initial, ahead, "cannot be reached"), (final, back, f"has no way to {final!s}")):
        reached, todo = {start}, [start]
        while todo:
            new = edges[todo.pop()] - reached
            reached |= new
            todo += new
        for state in states:
            if state not in reached:
                raise InvalidDefinition(f"{kind}: state {state!s} {what}", machine=kind, state=state)


def validate_classification(
    classification: Mapping[str, Classification], rows: Mapping[MachineKind, Iterable[Row]]
) -> None:
    """Raise ``InvalidDefinition`` for a state x event pair without a cell, a cell for an unknown state, a cell
    that does not end in an unguarded choice, an unknown guard, or a "moves" without its row."""
    for event, columns in classification.items():
        for kind, cells in ((tables.PARENT, columns.parent), (tables.COMPANION, columns.companion)):
            for state in (*tables.STATES[kind], *cells):
                if state not in cells or state not in tables.STATES[kind]:
                    raise InvalidDefinition(
                        f"{event}: the pair with {kind} {state!s} is "
                        + ("missing" if state not in cells else "of an unknown state"),
                        machine=kind,
                        state=state,
                    )
            sources = {(row.trigger, row.source) for row in rows[kind]}
            for state, cell in cells.items():
                for choice in cell:
                    if choice.trigger is not None and (choice.trigger, state) not in sources:
                        raise InvalidDefinition(
                            f"{event}: {kind} {state!s} has no row for {choice.trigger!s}",
                            machine=kind,
                            state=state,
                            trigger=choice.trigger,
                        )
        for cell in (*columns.parent.values(), *columns.companion.values(), columns.absent):
            guards = [choice.guard for choice in cell]
            if not cell or guards[-1] is not None or None in guards[:-1]:
                raise InvalidDefinition(f"{event}: a cell must end in its one choice without a guard")
            for guard in guards[:-1]:
                if guard not in tables.GUARDS:
                    raise InvalidDefinition(f"{event}: unknown guard {guard!r}")


def validate_coupling(
    coupling: Iterable[CouplingRow],
    deadlines: Iterable[DeadlineRow],
    rows: Mapping[MachineKind, Iterable[Row]],
) -> None:
    """Raise ``InvalidDefinition`` for a coupling or deadline row that names an unknown state, or fires a
    trigger that some state it names has no row for."""
    sources = {kind: {(row.trigger, row.source) for row in rows[kind]} for kind in rows}

    def check(name: str, kind: MachineKind, states: Iterable[str], trigger: Trigger | None) -> None:
        for state in states:
            if state not in tables.STATES[kind]:
                raise InvalidDefinition(f"{name}: unknown {kind} state {state!r}", machine=kind, state=state)
            if trigger is not None and (trigger, state) not in sources[kind]:
                raise InvalidDefinition(
                    f"{name}: {kind} {state!s} has no row for {trigger!s}",
                    machine=kind,
                    state=state,
                    trigger=trigger,
                )

    for row in coupling:
        check(row.name, tables.PARENT, row.parent, row.trigger if row.fires != "companion" else None)
        check(row.name, tables.COMPANION, row.companions, row.trigger if row.fires != "parent" else None)
    for deadline in deadlines:
        check(deadline.limit, deadline.machine, deadline.states, Trigger.FAIL)


def validate() -> None:
    """Check all tables against each other."""
    for kind in MachineKind:
        validate_rows(kind, tables.STATES[kind], tables.ROWS[kind], tables.INITIAL[kind], tables.FINAL[kind])
    validate_classification(tables.CLASSIFICATION, tables.ROWS)
    validate_coupling(tables.COUPLING_ROWS, tables.DEADLINE_ROWS, tables.ROWS)
