"""From the tables to one shared ``transitions.Machine`` per kind.

The machines have no models: a record is a plain object with a ``state``, and
``PARENT_MACHINE.events["defer"].trigger(record)`` moves it. ``SlimEvent`` is what makes that cheap; the rest
of the machine is stock, so whatever ``transitions`` offers for looking at a machine works on it.

Importing this module validates the tables (``validate``); a contradiction is an ``InvalidDefinition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from transitions import Event, EventData, Machine, Transition

from cfg_fsm import tables
from cfg_fsm.audit.record import Journal
from cfg_fsm.errors import InvalidDefinition, InvalidTransition
from cfg_fsm.states import FailureReason, MachineKind, Trigger
from cfg_fsm.tables import Classification, CouplingRow, DeadlineRow, Row


class SlimEvent(Event):
    """A trigger that looks its row up in ``transitions``, sets the state, and notes and audits the move.

    The stock event does it through some twenty calls, for callbacks that these machines do not have. Two
    differences are meant: a trigger without a row raises ``InvalidTransition`` (a ``MachineError``), and so does
    a row whose guard is false, where the stock event returns ``False`` and says nothing.
    """

    note = staticmethod(Journal.transition)

    def trigger(
        self,
        model: Any,
        now: float | None = None,
        journal: Journal | None = None,
        reason: FailureReason | None = None,
    ) -> bool:
        """Move ``model``, any object with a ``state``, along the row for that state.

        ``now``: monotonic seconds, kept in ``model.since`` if the state is another one. ``journal``: gets the
        transition, with ``reason``. Returns ``True``. Raises ``InvalidTransition``, and then nothing has changed.
        """
        source = model.state
        rows = self.transitions.get(source)
        if rows is None:
            raise self._refusal(model)
        row = rows[0]  # the only one: ``validate_rows``
        if row.conditions and not self._admits(row, model):
            raise self._refusal(model)
        dest = row.dest
        if dest != source:
            model.state = dest
            if now is not None:
                model.since = now
        if journal is not None:
            self.note(journal, model, self.name, source, reason)
        return True

    def _refusal(self, model: Any) -> InvalidTransition:
        return InvalidTransition(
            machine=str(self.machine.name).removesuffix(": "),
            state=model.state,
            trigger=self.name,
            request_id=getattr(model, "request_id", None),
        )

    def _admits(self, row: Transition, model: Any) -> bool:
        """Whether the guard of the row holds."""
        return row._eval_conditions(EventData(None, self, self.machine, model, (), {}))


class SlimMachine(Machine):
    """A ``transitions.Machine`` whose triggers are ``SlimEvent``."""

    event_cls = SlimEvent


def _own_code(function: Any) -> Any:
    """The same function with a code object of its own.

    The interpreter specialises code for the types it meets there (PEP 659). Records of parents and companions are
    two types, so code that both kinds of machine share is never specialised: a third of the time of a trigger.
    """
    return FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__
    )


def _machine_for_one_type() -> type[SlimMachine]:
    """A ``SlimMachine`` whose triggers run code that no other machine runs."""
    own = {"trigger": _own_code(SlimEvent.trigger), "note": staticmethod(_own_code(Journal.transition))}
    return type("SlimMachine", (SlimMachine,), {"event_cls": type("SlimEvent", (SlimEvent,), own)})


def build_machine(kind: MachineKind, machine_cls: type[Machine] | None = None) -> Machine:
    """A new machine without models, made from the rows of ``kind``. ``machine_cls=Machine``: the stock engine."""
    return (machine_cls or _machine_for_one_type())(
        model=None,
        states=[str.__str__(state) for state in tables.STATES[kind]],
        initial=None,
        transitions=[
            {
                "trigger": row.trigger.value,
                "source": str.__str__(row.source),
                "dest": str.__str__(row.dest),
                "conditions": row.guard,
            }
            for row in tables.ROWS[kind]
        ],
        auto_transitions=False,
        name=kind.value,
    )


# ---------------------------------------------------------------------------
# Validation
# ---------------------------------------------------------------------------


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


validate()

PARENT_MACHINE: Machine = build_machine(tables.PARENT)
COMPANION_MACHINE: Machine = build_machine(tables.COMPANION)
MACHINES: dict[MachineKind, Machine] = {tables.PARENT: PARENT_MACHINE, tables.COMPANION: COMPANION_MACHINE}
