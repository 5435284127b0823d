"""The classification of ``tables``, resolved once: from an event to the effect of its cell.

Most events name one request: ``Registry.dispatch`` finds its record and its cell in a ``Route``. The others are
about several (``tables.Subjects``): each of those meets its own cell here, in ``Several``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, TypeAlias

from cfg_fsm import events as ev
from cfg_fsm import tables
from cfg_fsm.actions import (
    AbortOutcome,
    AbortRequests,
    AcknowledgeAbort,
    Dispatched,
    Disposition,
    ReleaseRequests,
)
from cfg_fsm.engine import admission
from cfg_fsm.engine.group import Group
from cfg_fsm.engine.handlers import EFFECTS, FOR_ANYBODY, GUARDED, GUARDS, Effect, Guard
from cfg_fsm.engine.ledger import Ledger, Record
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.events import Event, EventBase
from cfg_fsm.states import IgnoredReason
from cfg_fsm.tables import Choice, Subjects, Verdict

#: The state in which ``tables.CLASSIFICATION`` speaks of ids that have ended.
CLEANED = str.__str__(tables.FINAL[tables.PARENT])

_ANSWERS: dict[str, type[AbortRequests] | type[ReleaseRequests]] = {
    answer.type: answer for answer in (AbortRequests, ReleaseRequests)
}


class Option:
    """A choice of a cell, resolved."""

    __slots__ = ("answer", "effect", "guard", "reason", "verdict")

    def __init__(self, event: str, choice: Choice) -> None:
        self.guard: Guard | None = None if choice.guard is None else GUARDS[choice.guard]
        self.verdict: Disposition = "accepted"
        self.effect: Effect | None = None
        """What happens; ``None``: the event is refused."""
        if choice.verdict is Verdict.IGNORED:
            self.verdict = "ignored"
        elif choice.verdict is Verdict.REJECTED:
            self.verdict = "rejected"
        else:
            self.effect = EFFECTS.get((event, choice.trigger))
            if self.effect is None:
                raise InvalidDefinition(
                    f"{event}: there is no effect for {choice.trigger or choice.verdict.value!s}",
                    trigger=choice.trigger,
                )
        self.reason = choice.reason
        try:
            self.answer = tuple(_ANSWERS[name] for name in choice.answer)
        except KeyError as error:
            raise InvalidDefinition(f"{event}: a refusal cannot bring {error}") from None


Cell: TypeAlias = tuple[Option, ...]

#: The cell of an event of another life than the current one.
OTHER_LIFE: Cell = (Option("", Choice(Verdict.IGNORED, None, IgnoredReason.OTHER_LIFE)),)


def _first(cell: Cell, ledger: Ledger, record: Record | None, event: Event) -> Option:
    """The first choice whose guard holds."""
    return next(option for option in cell if option.guard is None or option.guard(ledger, record, event))


class Route:
    """How the events of one type are taken in."""

    __slots__ = ("absent", "cells", "checks_life")

    def __init__(self, model: type[EventBase]) -> None:
        event = ev.type_of(model)
        classified = tables.CLASSIFICATION[event]
        self.cells: dict[str, dict[str, Cell]] = {
            kind.value: {state: _resolved(event, cell) for state, cell in cells.items()}
            for kind, cells in ((tables.PARENT, classified.parent), (tables.COMPANION, classified.companion))
        }
        """By kind of machine, then by state."""
        self.absent = _resolved(event, classified.absent)
        """The cell for an id that was never heard of."""
        self.checks_life = model is not ev.ParentRegistered
        """Whether its ``life`` says which life it is about; that of a registration is a new one."""

    def choose(self, ledger: Ledger, record: Record, event: Event) -> Option:
        """What the event means for this record, which is live."""
        if self.checks_life and event.life is not None and event.life != record.life:
            return OTHER_LIFE[0]
        return _first(self.cells[record.machine][record.state], ledger, record, event)


class Named(Route):
    """A route of events that name one request."""

    __slots__ = ("subject",)

    def __init__(self, model: type[EventBase]) -> None:
        super().__init__(model)
        if model.subject_field is None:
            raise InvalidDefinition(f"{ev.type_of(model)}: it is not about {Subjects.ONE.value}")
        self.subject: Callable[[Any], str] = attrgetter(model.subject_field)
        """Gives the id of the request."""

    def cell_of_gone(self, ledger: Ledger, event: Event, request_id: str) -> Cell:
        """The cell for an id that has ended or was never heard of. Its report of its end is taken note of (R9)."""
        known = ledger.ended(request_id)
        if known is None or (self.checks_life and event.life is not None and event.life > known.life):
            return self.absent  # nothing is known of it, or of that life
        is_parent = known.parent_id == request_id
        reports = event.is_terminal or (event.ends_parent and is_parent)
        if reports and event.life in (None, known.life):
            ledger.hear(request_id)
        return self.cells[(tables.PARENT if is_parent else tables.COMPANION).value][CLEANED]

    def option(self, ledger: Ledger, record: Record | None, event: Event, request_id: str) -> Option:
        """What the event means for the request it names, live or not. ``Registry.dispatch`` does it in line."""
        if record is not None:
            return self.choose(ledger, record, event)
        return _first(self.cell_of_gone(ledger, event, request_id), ledger, record, event)

    def refuse(self, ledger: Ledger, event: Event, record: Record | None, option: Option) -> Dispatched:
        """Ignore or reject an event, and answer for a request that would run without an owner."""
        reason = option.reason or admission.why_not(ledger, event)  # type: ignore[arg-type]  # a registration
        assert reason is not None  # a guard has just said so
        step = ledger.step
        if record is not None and not option.answer and step.journal is None:
            return ledger.refuse(option.verdict, reason, record.life)
        subject = self.subject(event)
        request_id, parent_id, _, _ = event.head()
        assert request_id is not None
        if option.answer and request_id not in ledger.requests and step.counted is None:
            for answer in option.answer:
                if answer is AbortRequests or request_id not in ledger.waiting.by_id:
                    step.say(answer([request_id]))
            ledger.tell(request_id, event.replica)
        known = record or ledger.ended(subject)
        life = None
        if known is not None:
            parent_id, life = known.parent_id, known.life
        return ledger.refuse(option.verdict, reason, life, record, request_id, parent_id)


# ---------------------------------------------------------------------------
# Events about several requests
# ---------------------------------------------------------------------------


class Several(Route):
    """A route of events about several requests: those of a group end together, in the order of the groups."""

    __slots__ = ("_find", "_nothing", "_release")

    def __init__(self, model: type[EventBase]) -> None:
        super().__init__(model)
        about = tables.CLASSIFICATION[ev.type_of(model)].about
        its_model, self._find, self._release, self._nothing = _FIND[about]
        if model is not its_model:
            raise InvalidDefinition(f"{ev.type_of(model)}: it is not about {about.value}")

    def take(self, ledger: Ledger, event: Any) -> Dispatched:
        """Take in an event: each request that it moves brings the effect of its cell. Last of all, what waits for
        something like it is released."""
        step = ledger.step
        if step.effect is not None and ledger.requests.get(step.record.parent_id) is step.record.group:
            step.effect(ledger, step.record, event)  # the step was broken off in the middle of this one
        for record, effect in self._find(self, ledger, event):
            step.effect, step.record = effect, record
            effect(ledger, record, event)
        if self._release is not None:
            self._release(ledger, event)
        if step.effect is None and not step.concluded and self._nothing is not None:
            return ledger.refuse("ignored", self._nothing)
        return Dispatched("accepted", None, tuple(step.actions), None)


_Found: TypeAlias = Iterator[tuple[Record, Effect]]


def _named(route: Several, ledger: Ledger, event: ev.RequestsAborted) -> _Found:
    """One event, one instant: what it names and what is live ends, whatever the order of the names; where it
    names a parent, that is the client's abort of the whole group. Every id is answered for."""
    outcomes: dict[str, AbortOutcome] = {}
    failing: dict[int, tuple[Record, Effect] | None] = {}  # by group, in order of first mention
    for request_id in event.request_ids:
        record = ledger.requests.get(request_id)
        effect = None
        if record is not None:
            failing.setdefault(record.group.seq)
            effect = route.choose(ledger, record, event).effect
        if record is not None and effect is not None:
            outcomes[request_id] = "ended"
            if record is record.group or failing[record.group.seq] is None:
                failing[record.group.seq] = record, effect
        else:
            known = record or ledger.ended(request_id)
            ended = known is not None and (event.life is None or event.life <= known.life)
            outcomes[request_id] = "already_ended" if ended else "unknown"
    ending = [found for found in failing.values() if found is not None]
    if not ledger.step.concluded:  # else it was said before the step was broken off
        ledger.step.say(AcknowledgeAbort(outcomes))
        if ending:
            ledger.step.conclude(None, None)
    yield from ending


def _bound(route: Several, ledger: Ledger, event: ev.ReplicaLost) -> _Found:
    """What runs on the replica, group by group in order of registration; a parent before its companions."""
    lost = (event.stage_id, event.replica_id)
    hit: dict[int, Group] = {}
    for record in ledger.requests.values():  # an index would cost every start something, for an event that is rare
        if record.replica == lost and route.choose(ledger, record, event).effect is not None:
            hit[record.group.seq] = record.group
    for _, group in sorted(hit.items()):
        for record in group.members():
            effect = route.choose(ledger, record, event).effect
            if effect is not None:
                yield record, effect
                break


def _due(route: Several, ledger: Ledger, event: ev.ClockTicked) -> _Found:
    """Whose deadlines have come, the earliest first. The heap knows them."""
    for group in ledger.deadlines.due(ledger.step.now):
        due = group.first_due()
        assert due is not None
        effect = route.choose(ledger, due.record, event).effect
        assert effect is not None
        yield due.record, effect


def _release_lost(ledger: Ledger, event: ev.ReplicaLost) -> None:
    ledger.release_lost((event.stage_id, event.replica_id))


def _release_overdue(ledger: Ledger, _: ev.ClockTicked) -> None:
    ledger.release_overdue()


#: Which events are about these, how the requests are found, what is released after them, and why an event that
#: moves and releases none is ignored.
_FIND: dict[
    Subjects,
    tuple[
        type[EventBase],
        Callable[[Several, Ledger, Any], _Found],
        Callable[[Ledger, Any], None] | None,
        IgnoredReason | None,
    ],
] = {
    Subjects.NAMED: (ev.RequestsAborted, _named, None, IgnoredReason.NOTHING_ENDED),
    Subjects.BOUND: (ev.ReplicaLost, _bound, _release_lost, IgnoredReason.NOTHING_BOUND),
    Subjects.DUE: (ev.ClockTicked, _due, _release_overdue, None),
}

# ---------------------------------------------------------------------------
# All of them
# ---------------------------------------------------------------------------


def _resolved(event: str, cell: tables.Cell) -> Cell:
    return tuple(Option(event, choice) for choice in cell)


def _check_guards() -> None:
    """Raise ``InvalidDefinition`` for a guard that cannot be asked where a cell asks it."""
    for event, columns in tables.CLASSIFICATION.items():
        gone = [columns.absent, columns.parent[CLEANED], columns.companion[CLEANED]]
        for cell in (*columns.parent.values(), *columns.companion.values(), columns.absent):
            for guard in (choice.guard for choice in cell if choice.guard is not None):
                if event not in GUARDED[guard] or (guard not in FOR_ANYBODY and cell in gone):
                    raise InvalidDefinition(f"{event}: the guard {guard!r} cannot be asked here")


def _check_effects() -> None:
    """Raise ``InvalidDefinition`` for an effect that no cell brings."""
    named = {
        (event, choice.trigger)
        for event, columns in tables.CLASSIFICATION.items()
        for cell in (*columns.parent.values(), *columns.companion.values(), columns.absent)
        for choice in cell
        if choice.verdict in (Verdict.MOVES, Verdict.STAYS)
    }
    for event, trigger in EFFECTS.keys() - named:
        raise InvalidDefinition(f"{event}: no cell brings the effect for {trigger!s}", trigger=trigger)


_check_guards()
_check_effects()
NAMED: dict[type[EventBase], Named] = {}
SEVERAL: dict[type[EventBase], Several] = {}
for _model in ev.EVENT_MODELS:
    if tables.CLASSIFICATION[ev.type_of(_model)].about is Subjects.ONE:
        NAMED[_model] = Named(_model)
    else:
        SEVERAL[_model] = Several(_model)
