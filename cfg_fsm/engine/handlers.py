"""What each event does: the classification of ``tables``, resolved once to functions.

A *route* says how the events of one type are taken in. Those that name one request have cells and an effect;
``dispatch`` finds the record and the cell, and calls ``refuse`` or the effect. The others (several requests, a
replica, the clock) take themselves in.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeAlias

from cfg_fsm import events as ev
from cfg_fsm import tables
from cfg_fsm.actions import (
    AbortOutcome,
    AbortRequests,
    AcknowledgeAbort,
    Action,
    Dispatched,
    ReleaseRequests,
    accepted,
)
from cfg_fsm.engine import admission as door
from cfg_fsm.engine import messages as wording
from cfg_fsm.engine.group import Cause, Companion, Group
from cfg_fsm.engine.ledger import Books, Record, timed
from cfg_fsm.events import LifeEvent
from cfg_fsm.states import FailureReason, IgnoredReason
from cfg_fsm.tables import Choice, Verdict

# ---------------------------------------------------------------------------
# Events that name one request: what they do when they are not refused
# ---------------------------------------------------------------------------


def _register_parent(books: Books, _: Record | None, event: ev.ParentRegistered, __: Choice) -> Dispatched:
    life = event.life
    if life is None:
        life = books.tombstones.last_life(event.parent_id) + 1
    limits = books.timed if event.limits is None else timed(books.limits.with_overrides(event.limits))
    announced = event.companions is not None
    books.registered += 1
    books.parents += 1
    group = Group(
        event.parent_id, life, books.registered, books.now, announced, event.streaming, event.limits, limits
    )
    if event.companions:
        group.announce(event.companions, books.now)
    books.admit(group, *group.companions)
    return accepted(life)


def _register_companion(books: Books, record: Record, event: ev.CompanionRegistered, _: Choice) -> Dispatched:
    books.admit(record.group.join(event.role, event.companion_id, books.now))
    return accepted(record.life)


def _seal(books: Books, record: Record, _: ev.CompanionsSealed, __: Choice) -> Dispatched:
    actions: list[Action] = []
    record.group.seal(books.now, books.journal, actions)
    return books.answer(record.group, actions) if actions else accepted(record.life)


def _start(books: Books, record: Record, event: ev.RequestStarted, _: Choice) -> Dispatched:
    group = record.group
    replica = None if event.replica_id is None else (event.stage_id, event.replica_id)
    group.start(record, replica, books.now, books.journal)
    if group.limits is not None:
        books.arm(record)
    return accepted(group.life)


def _progress(books: Books, record: Record, _: ev.RequestProgressed | ev.KvReady, __: Choice) -> Dispatched:
    record.group.progress(record, books.now)
    return accepted(record.life)


def _parent_output(books: Books, record: Record, event: ev.ParentOutputReady, _: Choice) -> Dispatched:
    group = record.group
    if group.engine_outputs is not None or group.context is not None:
        books.dropped.append((group.engine_outputs, group.context))
    actions: list[Action] = []
    group.defer(event.stage_id, event.engine_outputs, event.context, books.now, books.journal, actions)
    if group.limits is not None:
        books.arm(group)
    return books.answer(group, actions) if actions else accepted(group.life)


def _companion_output(
    books: Books, record: Companion, event: ev.CompanionOutputReady, choice: Choice
) -> Dispatched:
    if choice.guard is not None:  # failed_finish
        reason = tables.FAILED_FINISH[event.finish_reason]
        return _fail(books, record, Cause(reason, wording.bad_finish(record, event.finish_reason), stopped=True))
    group = record.group
    actions: list[Action] = []
    group.complete(record, event.output, books.now, books.journal, actions)
    return books.answer(group, actions) if actions else accepted(group.life)


def _request_failed(books: Books, record: Record, event: ev.RequestFailed, _: Choice) -> Dispatched:
    error = wording.failed(record, event.error)
    cause = Cause(FailureReason.ERROR, error, event.stage_id, event.error_type, event.status_code, stopped=True)
    return _fail(books, record, cause)


def _forward_rejected(books: Books, record: Record, event: ev.ForwardRejected, _: Choice) -> Dispatched:
    return _fail(books, record, Cause(FailureReason.FORWARD_REJECTED, wording.forward_rejected(event.error)))


def _fail(books: Books, record: Record, cause: Cause) -> Dispatched:
    return Dispatched("accepted", None, tuple(books.fail(record, cause)), record.life)


def _finish(books: Books, record: Record, _: ev.ParentFinished, __: Choice) -> Dispatched:
    return books.finish(record.group)


def refuse(books: Books, event: LifeEvent, record: Record | None, option: Option) -> Dispatched:
    """Ignore or reject an event about one request, and answer for one that would run without an owner."""
    reason = option.reason or door.why_not(books, event)  # type: ignore[arg-type]  # a registration
    assert reason is not None  # a guard has just said so
    if record is not None and not option.answer and books.journal is None:
        return books.refused(option.verdict, reason, (), record.life)
    subject: str = getattr(event, event.subject_field or "")
    request_id = getattr(event, "companion_id", subject)
    actions: list[Action] = []
    if request_id not in books.requests:
        actions = [answer([request_id]) for answer in option.answer]
    known = record or books.tombstones.get(subject)
    parent_id = getattr(event, "parent_id", None) if known is None else known.parent_id
    life = None if known is None else known.life
    return books.refused(option.verdict, reason, actions, life, record, request_id, parent_id)


# ---------------------------------------------------------------------------
# Events about several groups
# ---------------------------------------------------------------------------


def _take_abort(books: Books, event: ev.RequestsAborted, route: Route) -> Dispatched:
    """One event, one instant: what it names and what is live ends, whatever the order of the names; where it
    names a parent, that is the client's abort of the whole group."""
    outcomes: dict[str, AbortOutcome] = {}
    failing: dict[int, Record | None] = {}  # by group, in order of first mention: what fails and takes it along
    for request_id in event.request_ids:
        record = books.requests.get(request_id)
        if record is not None:
            failing.setdefault(record.group.seq)
        if record is not None and _moves(books, record, event, route):
            outcomes[request_id] = "ended"
            if record is record.group or failing[record.group.seq] is None:
                failing[record.group.seq] = record
        else:
            known = record or books.tombstones.get(request_id)
            ended = known is not None and (event.life is None or event.life <= known.life)
            outcomes[request_id] = "already_ended" if ended else "unknown"
    actions: list[Action] = [AcknowledgeAbort(outcomes)]
    ending = [record for record in failing.values() if record is not None]
    if not ending:
        return books.refused("ignored", IgnoredReason.NOTHING_ENDED, actions)
    if books.journal is not None:
        books.journal.action(actions[0], None, None)
    for record in ending:
        actions += books.fail(record, Cause(FailureReason.ABORTED, wording.aborted(record)))
    return Dispatched("accepted", None, tuple(actions), None)


def _take_replica_lost(books: Books, event: ev.ReplicaLost, route: Route) -> Dispatched:
    """What runs on the replica fails, group by group in order of registration; a parent before its companions."""
    lost = (event.stage_id, event.replica_id)
    hit: dict[int, Group] = {}
    for record in books.requests.values():  # an index would cost every start something, for an event that is rare
        if record.replica == lost and _moves(books, record, event, route):
            hit[record.group.seq] = record.group
    if not hit:
        return books.refused("ignored", IgnoredReason.NOTHING_BOUND, ())
    actions: list[Action] = []
    for _, group in sorted(hit.items()):
        record = next(record for record in group.members() if _moves(books, record, event, route))
        error = wording.replica_lost(record, lost, event.error)
        cause = Cause(FailureReason.REPLICA_LOST, error, event.stage_id, lost=lost, stopped=True)
        actions += books.fail(record, cause)
    return Dispatched("accepted", None, tuple(actions), None)


def _moves(books: Books, record: Record, event: LifeEvent, route: Route) -> bool:
    """Whether an event about several requests moves this one."""
    if event.life is not None and event.life != record.life:
        return False
    cell = route.cells[record.machine][record.state]
    option = next(option for option in cell if option.guard is None or option.guard(books, record, event))
    return option.choice.verdict is Verdict.MOVES


def _take_tick(books: Books, _: ev.ClockTicked, __: Route) -> Dispatched:
    """Deadlines that have come end their parents, the earliest first. The heap knows who is ``due``."""
    actions: list[Action] = []
    for group in books.deadlines.due(books.now):
        due = group.first_due()
        assert due is not None
        cause = Cause(due.row.reason, wording.overdue(due), status_code=tables.DEADLINE_STATUS)
        actions += books.fail(due.record, cause)
    return Dispatched("accepted", None, tuple(actions), None)


# ---------------------------------------------------------------------------
# The classification, resolved
# ---------------------------------------------------------------------------

Guard: TypeAlias = Callable[[Books, Any, Any], bool]
Effect: TypeAlias = Callable[[Books, Any, Any, Choice], Dispatched]
Cell: TypeAlias = "tuple[Option, ...]"

#: The state in which ``tables.CLASSIFICATION`` speaks of ids that have ended.
CLEANED = str.__str__(tables.FINAL[tables.PARENT])

_ANSWERS: dict[str, type[AbortRequests] | type[ReleaseRequests]] = {
    "abort_requests": AbortRequests,
    "release_requests": ReleaseRequests,
}


def _is_admissible(books: Books, _: Any, event: Any) -> bool:
    return door.why_not(books, event) is None


def _is_unsealed(_: Books, record: Any, __: Any) -> bool:
    return not record.group.sealed


def _is_streaming(_: Books, record: Any, __: Any) -> bool:
    return bool(record.streaming)


def _has_failed_finish(_: Books, __: Any, event: Any) -> bool:
    return event.finish_reason in tables.FAILED_FINISH


def _is_bound(_: Books, record: Any, event: Any) -> bool:
    return bool(record.replica == (event.stage_id, event.replica_id))


def _is_due(books: Books, record: Any, _: Any) -> bool:
    due = record.group.first_due()
    return due is not None and due.record is record and due.when <= books.now


#: The guards that ``tables.GUARDS`` names.
GUARDS: dict[str, Guard] = {
    "admissible": _is_admissible,
    "same_registration": door.is_same_registration,
    "known_pair": door.is_known_pair,
    "joins": _is_admissible,
    "unsealed": _is_unsealed,
    "streaming": _is_streaming,
    "failed_finish": _has_failed_finish,
    "bound": _is_bound,
    "due": _is_due,
}

_EFFECTS: dict[type[ev.EventBase], Effect] = {
    ev.ParentRegistered: _register_parent,
    ev.CompanionRegistered: _register_companion,
    ev.CompanionsSealed: _seal,
    ev.RequestStarted: _start,
    ev.RequestProgressed: _progress,
    ev.KvReady: _progress,
    ev.ParentOutputReady: _parent_output,
    ev.CompanionOutputReady: _companion_output,
    ev.RequestFailed: _request_failed,
    ev.ForwardRejected: _forward_rejected,
    ev.ParentFinished: _finish,
}
_TAKE: dict[type[ev.EventBase], Callable[[Books, Any, Route], Dispatched]] = {
    ev.RequestsAborted: _take_abort,
    ev.ReplicaLost: _take_replica_lost,
    ev.ClockTicked: _take_tick,
}


class Option:
    """A choice of a cell, resolved."""

    __slots__ = ("answer", "choice", "guard", "reason", "refused", "verdict")

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.guard: Guard | None = None if choice.guard is None else GUARDS[choice.guard]
        self.refused = choice.verdict in (Verdict.IGNORED, Verdict.REJECTED)
        self.verdict: str = choice.verdict.value
        self.reason = choice.reason
        self.answer = tuple(_ANSWERS[name] for name in choice.answer)


#: An event of another life than the current one.
OTHER_LIFE = Option(Choice(Verdict.IGNORED, None, IgnoredReason.OTHER_LIFE))


class Route:
    """How the events of one type are taken in."""

    __slots__ = ("absent", "cells", "checks_life", "effect", "subject", "take")

    def __init__(self, model: type[ev.EventBase]) -> None:
        classified = tables.CLASSIFICATION[ev.type_of(model)]
        columns = {tables.PARENT: classified.parent, tables.COMPANION: classified.companion}
        self.take = _TAKE.get(model)
        """Takes in an event about several requests; ``None``: it names one, and what follows is for it."""
        self.cells: dict[str, dict[str, Cell]] = {
            kind.value: {state: _resolved(cell) for state, cell in cells.items()}
            for kind, cells in columns.items()
        }
        """By kind of machine, then by state."""
        self.absent = _resolved(classified.absent)
        """The cell for an id that was never heard of."""
        self.subject: Callable[[Any], str] = attrgetter(model.subject_field or "type")
        """Gives the id of the request that it names."""
        self.effect: Effect = _EFFECTS.get(model, _no_effect)
        """Does what the event does when it is not refused."""
        self.checks_life = model is not ev.ParentRegistered

    def cell_of_gone(self, books: Books, event: LifeEvent, request_id: str) -> Cell:
        """The cell for an id that has ended or was never heard of. Its report of its end is taken note of (R9)."""
        tombstone = books.tombstones.get(request_id)
        if tombstone is None or (self.checks_life and event.life is not None and event.life > tombstone.life):
            return self.absent  # nothing is known of it, or of that life
        if event.is_terminal and event.life in (None, tombstone.life):
            tombstone.heard(request_id)
        kind = tables.PARENT if tombstone.parent_id == request_id else tables.COMPANION
        return self.cells[kind.value][CLEANED]


def _no_effect(*_: Any) -> Dispatched:
    raise AssertionError("an event about several requests has no effect on one")  # pragma: no cover - see ``take``


def _resolved(cell: tables.Cell) -> Cell:
    return tuple(Option(choice) for choice in cell)


ROUTES: dict[type[ev.EventBase], Route] = {model: Route(model) for model in ev.EVENT_MODELS}
