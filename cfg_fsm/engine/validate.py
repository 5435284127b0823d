"""Checks of the tables against each other. A contradiction is an ``InvalidDefinition``, raised at import."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cfg_fsm import tables
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.limits import TIMES
from cfg_fsm.states import IgnoredReason, MachineKind, RejectedReason, Trigger
from cfg_fsm.tables import (
    Choice,
    Classification,
    CouplingRow,
    DeadlineRow,
    Quantifier,
    Row,
    Subjects,
    Verdict,
)


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
            for choice in cell:
                _check_choice(event, choice)
        _check_where_nobody_lives(event, columns)


def _check_choice(event: str, choice: Choice) -> None:
    """A move or a stay has no reason and no answer; a refusal has no trigger, and a code of its own kind. Only a
    rejected registration may lack one: admission names it."""
    refused = choice.verdict in (Verdict.IGNORED, Verdict.REJECTED)
    codes = {Verdict.IGNORED: IgnoredReason, Verdict.REJECTED: RejectedReason}.get(choice.verdict)
    wrong = None
    if choice.trigger is not None and choice.verdict is not Verdict.MOVES:
        wrong = f"has a trigger, {choice.trigger!s}"
    elif not refused and (choice.reason is not None or choice.answer):
        wrong = "has a reason or an answer"
    elif refused and choice.reason is None and (event, choice.verdict) not in _NAMED_BY_ADMISSION:
        wrong = "has no reason"
    elif codes is not None and choice.reason is not None and not isinstance(choice.reason, codes):
        wrong = f"has the reason {choice.reason!s}"
    if wrong:
        raise InvalidDefinition(f"{event}: a choice that is {choice.verdict.value!r} {wrong}")


_NAMED_BY_ADMISSION = {("parent_registered", Verdict.REJECTED), ("companion_registered", Verdict.REJECTED)}


def _check_where_nobody_lives(event: str, columns: Classification) -> None:
    """An id that has ended or was never heard of has no machine: nothing moves it and nothing stays, but what is
    about everybody; a new machine may be made for it. Where one lives, none is made."""
    for kind, cells in ((tables.PARENT, columns.parent), (tables.COMPANION, columns.companion)):
        for state, cell in ((tables.ABSENT, columns.absent), *cells.items()):
            lives = state in tables.LIVE[kind]
            for choice in cell:
                stays = choice.verdict is Verdict.STAYS and columns.about is not Subjects.DUE
                moves = choice.verdict is Verdict.MOVES
                if (stays and state in (tables.ABSENT, tables.FINAL[kind])) or (
                    moves and (choice.trigger is None) is lives
                ):
                    raise InvalidDefinition(
                        f"{event}: {choice.verdict.value!r} is not for {kind} {state!s}", machine=kind, state=state
                    )


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
        if (row.fires, row.trigger) in _ASKS and row.quantifier not in _ASKS[row.fires, row.trigger]:
            raise InvalidDefinition(f"{row.name}: {row.trigger!s} cannot follow from {row.quantifier.value!r}")
        if (row.reason is not None) is not (row.fires == "companion" and row.trigger is Trigger.FAIL):
            raise InvalidDefinition(f"{row.name}: a reason is for the failure of companions, and for that only")
    for deadline in deadlines:
        check(deadline.limit, deadline.machine, deadline.states, Trigger.FAIL)
        if deadline.limit not in TIMES:
            raise InvalidDefinition(f"{deadline.limit}: there is no such limit in time", machine=deadline.machine)


#: What a coupling row must ask for so that whom it fires on is known.
_ASKS: dict[tuple[str, Trigger], tuple[Quantifier, ...]] = {
    ("parent", Trigger.FAIL): (Quantifier.ANY,),
    ("companion", Trigger.FAIL): (Quantifier.EACH,),
    ("group", Trigger.CLEAN): (Quantifier.EVERY,),
}


def validate_ticks(ticked: Classification, deadlines: Iterable[DeadlineRow]) -> None:
    """Raise ``InvalidDefinition`` where the cells of ``clock_ticked`` and the deadline rows differ."""
    rows = {(row.machine, str(state)) for row in deadlines for state in row.states}
    for kind, cells in ((tables.PARENT, ticked.parent), (tables.COMPANION, ticked.companion)):
        for state, cell in cells.items():
            fails = any(choice.guard == "due" and choice.trigger is Trigger.FAIL for choice in cell)
            if fails is not ((kind, state) in rows):
                raise InvalidDefinition(
                    f"clock_ticked: {kind} {state!s} "
                    + ("fails without a deadline row" if fails else "has a deadline row and does not fail"),
                    machine=kind,
                    state=state,
                )


def validate() -> None:
    """Check all tables against each other."""
    for kind in MachineKind:
        validate_rows(kind, tables.STATES[kind], tables.ROWS[kind], tables.INITIAL[kind], tables.FINAL[kind])
    validate_classification(tables.CLASSIFICATION, tables.ROWS)
    validate_coupling(tables.COUPLING_ROWS, tables.DEADLINE_ROWS, tables.ROWS)
    validate_ticks(tables.CLASSIFICATION["clock_ticked"], tables.DEADLINE_ROWS)
