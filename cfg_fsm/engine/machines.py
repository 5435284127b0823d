"""From the tables to one shared ``transitions.Machine`` per kind.

The machines have no models: a record is a plain object with a ``state``, and
``PARENT_MACHINE.events["defer"].trigger(record)`` moves it. ``SlimEvent`` is what makes that cheap; the rest
of the machine is stock, so whatever ``transitions`` offers for looking at a machine works on it.

Importing this module validates the tables (``validate``); a contradiction is an ``InvalidDefinition``.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from transitions import Event, EventData, Machine, Transition

from cfg_fsm import tables
from cfg_fsm.engine.journal import Journal
from cfg_fsm.engine.step import Step
from cfg_fsm.engine.validate import validate
from cfg_fsm.errors import InvalidTransition
from cfg_fsm.states import FailureReason, MachineKind


class SlimEvent(Event):
    """A trigger that looks its row up in ``transitions``, sets the state, and notes and audits the move.

    The stock event does it through some twenty calls, for callbacks that these machines do not have. Two
    differences are meant: a trigger without a row raises ``InvalidTransition`` (a ``MachineError``), and so does
    a row whose guard is false, where the stock event returns ``False`` and says nothing.
    """

    note = staticmethod(Journal.transition)

    def trigger(self, model: Any, step: Step | None = None, reason: FailureReason | None = None) -> bool:
        """Move ``model``, any object with a ``state``, along the row for that state.

        ``step``: gives the time, kept in ``model.since`` if the state is another one, and the journal, which gets
        the transition with ``reason``. Returns ``True``. Raises ``InvalidTransition``; nothing has changed then.
        In a step that runs again it returns ``False`` in its place: the trigger was fired before.
        """
        source = model.state
        rows = self.transitions.get(source)
        # The first row is the only one: see ``validate_rows``.
        if rows is None or ((row := rows[0]).conditions and not self._admits(row, model)):
            if step is not None and step.resumed:
                return False
            raise self._refusal(model)
        dest: Any = row.dest
        if step is not None:
            if step.journal is not None:
                self.note(step.journal, model, self.name, source, dest, reason)
            if dest != source:
                model.since = step.now
        model.state = dest
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


validate()

PARENT_MACHINE: Machine = build_machine(tables.PARENT)
COMPANION_MACHINE: Machine = build_machine(tables.COMPANION)
MACHINES: dict[MachineKind, Machine] = {tables.PARENT: PARENT_MACHINE, tables.COMPANION: COMPANION_MACHINE}
