"""The registry: ids to groups, replicas, tombstones, limits; ``dispatch`` takes an event and answers with actions.

Not thread-safe: one owner dispatches. Nothing here reads a clock, starts a thread or calls user code before a
step is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

from cfg_fsm import events as ev
from cfg_fsm import tables, wording
from cfg_fsm.actions import (
    AbortOutcome,
    AbortRequests,
    AcknowledgeAbort,
    Action,
    Dispatched,
    Disposition,
    ReleaseRequests,
    accepted,
)
from cfg_fsm.audit.record import Journal, Observer
from cfg_fsm.deadlines import Deadlines
from cfg_fsm.door import Door, Registration, is_known_pair, is_same_registration
from cfg_fsm.errors import NotAnEvent
from cfg_fsm.events import Event, LifeEvent, Limits
from cfg_fsm.group import Cause, Companion, Group, Replica
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason
from cfg_fsm.tables import Choice, Verdict
from cfg_fsm.tombstones import Tombstone, Tombstones
from cfg_fsm.views import RequestView, view

Record = Group | Companion


class Registry:
    """Owns every live group.

    ``limits``: bounds in time and size, see ``Limits``; without them no parent ends by itself.
    ``observers``: callables that get each ``AuditRecord`` once its step is complete. One that raises is logged
    and counted (``counters()["observer_errors"]``), nothing else happens.
    """

    def __init__(self, limits: Limits | None = None, observers: Iterable[Observer] = ()) -> None:
        self.limits = Limits() if limits is None else limits
        observers = tuple(observers)
        self._journal = Journal(observers) if observers else None
        self._now = 0.0
        self._requests: dict[str, Record] = {}
        self._timed = _timed(self.limits)
        self._deadlines: Deadlines[Group] = Deadlines()
        self._tombstones = Tombstones(self.limits.tombstones, self.limits.tombstone_s)
        self._door: Door = Door(self._requests, self._tombstones, self.limits)
        self._registered = 0
        self._parents = 0
        self._events = 0
        self._forwarded = 0
        self._finished = 0
        self._failed: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()

    # -- what a host calls --------------------------------------------------------------------------------

    def dispatch(self, event: Event) -> Dispatched:
        """Take in one event and say what the host has to do.

        Never raises for a well-formed event: what must not be obeyed is ``rejected``, what changes nothing is
        ``ignored``, each with a code. Raises ``NotAnEvent`` (a ``TypeError``) for anything that is not an event,
        and ``ReentrantDispatch`` when an observer calls it.
        """
        route = _ROUTES.get(type(event))
        if route is None:
            raise NotAnEvent(event)
        journal = self._journal
        at = event.at
        if at is None or at < self._now:  # time never goes back
            at = self._now
        if journal is not None:
            journal.begin(event.type, at)
        self._now = at
        if self._tombstones.expire_at <= self._now:
            self._tombstones.expire(self._now)
        self._events += 1
        if journal is None:
            return route.take(self, event, route)
        journal.event(event)
        answer = route.take(self, event, route)
        journal.deliver()
        return answer

    def dispatch_many(self, events: Iterable[Event]) -> list[Dispatched]:
        """Dispatch in order; one answer for each event."""
        return [self.dispatch(event) for event in events]

    @property
    def now(self) -> float:
        """The latest time that an event brought, monotonic seconds. It never goes back."""
        return self._now

    def next_deadline(self) -> float | None:
        """When the next ``clock_ticked`` will end a parent, monotonic seconds; ``None``: no deadline is set."""
        return self._deadlines.next()

    def requests(self) -> list[RequestView]:
        """The live requests, for people: groups in order of registration, a parent before its companions."""
        return view((r for r in self._requests.values() if isinstance(r, Group)), self._now)

    def counters(self) -> dict[str, Any]:
        """What is there and what has happened so far, as numbers.

        ``ignored``, ``rejected`` and ``failed`` are dictionaries by code; all others are plain integers.
        """
        refused = self._ignored.total() + self._rejected.total()
        return {
            "live": len(self._requests),
            "live_parents": self._parents,
            "live_companions": len(self._requests) - self._parents,
            "deadlines": len(self._deadlines),
            "tombstones": len(self._tombstones),
            "events": self._events,
            "accepted": self._events - refused,
            "ignored": dict(sorted(self._ignored.items())),
            "rejected": dict(sorted(self._rejected.items())),
            "parents_registered": self._registered,
            "forwards": self._forwarded,
            "finished": self._finished,
            "failed": dict(sorted(self._failed.items())),
            "observer_errors": 0 if self._journal is None else self._journal.errors,
        }

    # -- events about one request -------------------------------------------------------------------------

    def _take_named(self, event: LifeEvent, route: _Route) -> Dispatched:
        """The way of every event that names one request: find it, classify, then refuse or carry out."""
        request_id = route.subject(event)
        record = self._requests.get(request_id)
        if record is None:
            cell = self._cell_of_gone(event, route, request_id)
        else:
            life = event.life
            if life is not None and route.checks_life and life != record.life:
                return self._refuse(event, record, _OTHER_LIFE)
            cell = route.cells[record.machine][record.state]
        for guard, choice in cell:  # noqa: B007 - used behind the loop: the last choice has no guard
            if guard is None or guard(self, record, event):
                break
        if choice.verdict is Verdict.MOVES or choice.verdict is Verdict.STAYS:
            return route.effect(self, record, event, choice)
        return self._refuse(event, record, choice)

    def _cell_of_gone(self, event: LifeEvent, route: _Route, request_id: str) -> _Cell:
        """The cell for an id that has ended, or that was never heard of."""
        tombstone = self._tombstones.get(request_id)
        if tombstone is None:
            return route.absent
        if event.is_terminal and event.life in (None, tombstone.life):
            tombstone.heard(request_id)
        kind = tables.PARENT if tombstone.parent_id == request_id else tables.COMPANION
        return route.cells[kind.value][_CLEANED]

    def _refuse(self, event: LifeEvent, record: Record | None, choice: Choice) -> Dispatched:
        """Ignore or reject: count, audit, and answer for a request that would run without an owner."""
        subject: str = getattr(event, cast(str, event.subject_field))
        reason = choice.reason or self._door.why_not(cast(Registration, event))
        assert reason is not None  # a guard has just said so
        request_id = getattr(event, "companion_id", subject)
        actions: list[Action] = []
        if choice.answer and request_id not in self._requests:
            actions = [_ANSWERS[name]([request_id]) for name in choice.answer]
        parent_id, life = getattr(event, "parent_id", None), None
        if record is not None:
            parent_id, life = record.parent_id, record.life
        elif (tombstone := self._tombstones.get(subject)) is not None:
            parent_id, life = tombstone.parent_id, tombstone.life
        return self._refused(choice.verdict, reason, actions, record, request_id, parent_id, life)

    def _refused(
        self,
        verdict: Verdict,
        reason: IgnoredReason | RejectedReason,
        actions: list[Action],
        record: Record | None = None,
        request_id: str | None = None,
        parent_id: str | None = None,
        life: int | None = None,
    ) -> Dispatched:
        (self._ignored if verdict is Verdict.IGNORED else self._rejected)[reason.value] += 1
        if self._journal is not None:
            self._journal.refused(
                verdict.value, reason.value, request_id=request_id, record=record, parent_id=parent_id, life=life
            )
            for action in actions:
                self._journal.action(action, parent_id, life)
        return Dispatched(cast(Disposition, verdict.value), reason, tuple(actions), life)

    def _register_parent(self, _: Record | None, event: ev.ParentRegistered, __: Choice) -> Dispatched:
        last = self._tombstones.get(event.parent_id)
        life = event.life if event.life is not None else 1 if last is None else last.life + 1
        limits = self._timed
        if event.limits is not None:
            limits = _timed(self.limits.with_overrides(event.limits))
        self._registered += 1
        self._parents += 1
        group = Group(
            event.parent_id,
            life,
            self._registered,
            self._now,
            event.companions is not None,
            event.streaming,
            event.limits,
            limits,
        )
        self._admit(group)
        if event.companions:
            for role, companion_id in event.companions.items():
                self._admit(group.join(role, companion_id, self._now))
        return accepted(group.life)

    def _register_companion(self, record: Record, event: ev.CompanionRegistered, _: Choice) -> Dispatched:
        companion = record.group.join(event.role, event.companion_id, self._now)
        self._admit(companion)
        return accepted(record.life)

    def _admit(self, record: Record) -> None:
        self._requests[record.request_id] = record
        self._tombstones.forget(record.request_id)
        if self._journal is not None:
            self._journal.created(record)
        self._arm(record)

    def _seal(self, record: Record, event: ev.CompanionsSealed, _: Choice) -> Dispatched:
        actions: list[Action] = []
        record.group.seal(self._now, self._journal, actions)
        return self._answer(record.group, actions)

    def _start(self, record: Record, event: ev.RequestStarted, _: Choice) -> Dispatched:
        replica = None if event.replica_id is None else (event.stage_id, event.replica_id)
        record.group.start(record, replica, self._now, self._journal)
        self._arm(record)
        return accepted(record.life)

    def _progress(self, record: Record, event: ev.RequestProgressed | ev.KvReady, _: Choice) -> Dispatched:
        record.group.progress(record, self._now)
        return accepted(record.life)

    def _parent_output(self, record: Record, event: ev.ParentOutputReady, _: Choice) -> Dispatched:
        actions: list[Action] = []
        record.group.defer(event.stage_id, event.engine_outputs, event.context, self._now, self._journal, actions)
        self._arm(record)
        return self._answer(record.group, actions)

    def _companion_output(self, record: Companion, event: ev.CompanionOutputReady, choice: Choice) -> Dispatched:
        group = record.group
        if choice.guard is not None:
            reason = tables.FAILED_FINISH[event.finish_reason]
            error = f"{wording.name(record)} ended with finish reason {event.finish_reason}"
            return self._fail(record, Cause(reason, error))
        actions: list[Action] = []
        group.complete(record, event.output, self._now, self._journal, actions)
        return self._answer(group, actions)

    def _request_failed(self, record: Record, event: ev.RequestFailed, _: Choice) -> Dispatched:
        error = event.error if record is record.group else f"{wording.name(record)} failed: {event.error}"
        return self._fail(
            record,
            Cause(FailureReason.ERROR, error, event.stage_id, event.error_type, event.status_code),
        )

    def _forward_rejected(self, record: Record, event: ev.ForwardRejected, _: Choice) -> Dispatched:
        error = f"the bundle could not be handed to the next stage: {event.error}"
        return self._fail(record, Cause(FailureReason.FORWARD_REJECTED, error))

    def _fail(self, record: Record, cause: Cause) -> Dispatched:
        return Dispatched("accepted", None, tuple(self._end(record, cause)), record.life)

    def _finish(self, record: Record, event: ev.ParentFinished, _: Choice) -> Dispatched:
        actions: list[Action] = []
        record.group.finish(self._now, self._journal, actions)
        return self._answer(record.group, actions)

    # -- events about several groups ----------------------------------------------------------------------

    def _take_abort(self, event: ev.RequestsAborted, route: _Route) -> Dispatched:
        """One event, one instant: what it names and what is live ends, whatever the order of the names; where
        it names a parent, that is the client's abort of the whole group."""
        outcomes: dict[str, AbortOutcome] = {}
        first: dict[int, Record] = {}  # by group, in order of first mention: what is to fail
        for request_id in event.request_ids:
            record = self._requests.get(request_id)
            if record is None or event.life not in (None, record.life):
                known = record or self._tombstones.get(request_id)
                ended = known is not None and (event.life is None or event.life <= known.life)
                outcomes[request_id] = "already_ended" if ended else "unknown"
                continue
            if not self._moves(record, event, route):
                outcomes[request_id] = "already_ended"
                continue
            outcomes[request_id] = "ended"
            if record is record.group or record.group.seq not in first:
                first[record.group.seq] = record
        actions: list[Action] = [AcknowledgeAbort(outcomes)]
        if not first:
            return self._refused(Verdict.IGNORED, IgnoredReason.NOTHING_ENDED, actions)
        if self._journal is not None:
            self._journal.action(actions[0], None, None)
        for record in first.values():
            error = "the client aborted the request"
            if record is not record.group:
                error = f"{wording.name(record)} was aborted before its output came"
            actions += self._end(record, Cause(FailureReason.ABORTED, error))
        return Dispatched("accepted", None, tuple(actions), None)

    def _take_replica_lost(self, event: ev.ReplicaLost, route: _Route) -> Dispatched:
        """What runs on the replica fails, group by group; a parent before its companions."""
        hit: dict[int, Group] = {}
        for record in self._requests.values():
            if self._moves(record, event, route):
                hit[record.group.seq] = record.group
        if not hit:
            return self._refused(Verdict.IGNORED, IgnoredReason.NOTHING_BOUND, [])
        lost = (event.stage_id, event.replica_id)
        what = f"replica {event.replica_id} of stage {event.stage_id}"
        why = f": {event.error}" if event.error else ""
        actions: list[Action] = []
        for _, group in sorted(hit.items()):
            record = next(r for r in group.members() if self._moves(r, event, route))
            error = f"{what} was lost{why}"
            if record is not group:
                error = f"{wording.name(record)} ran on {what}, which was lost{why}"
            actions += self._end(record, Cause(FailureReason.REPLICA_LOST, error, event.stage_id, lost=lost))
        return Dispatched("accepted", None, tuple(actions), None)

    def _moves(self, record: Record, event: LifeEvent, route: _Route) -> bool:
        """Whether an event about several requests moves this one."""
        if event.life not in (None, record.life):
            return False
        cell = route.cells[record.machine][record.state]
        choice = next(choice for guard, choice in cell if guard is None or guard(self, record, event))
        return choice.verdict is Verdict.MOVES

    def _take_tick(self, _: ev.ClockTicked, __: _Route) -> Dispatched:
        """Deadlines that have come end their parents, the earliest first. The heap knows who is ``due``."""
        actions: list[Action] = []
        for group in self._deadlines.due(self._now):
            due = group.first_due()
            assert due is not None
            cause = Cause(due.row.reason, wording.overdue(due), status_code=tables.DEADLINE_STATUS)
            actions += self._end(due.record, cause)
        return Dispatched("accepted", None, tuple(actions), None)

    # -- the end of a step --------------------------------------------------------------------------------

    def _end(self, record: Record, cause: Cause) -> list[Action]:
        """``record`` fails and its group ends."""
        actions: list[Action] = []
        record.group.fail(record, cause, self._now, self._journal, actions)
        self._close(record.group, actions)
        return actions

    def _answer(self, group: Group, actions: list[Action]) -> Dispatched:
        if not actions and not group.ended:
            return accepted(group.life)
        self._close(group, actions)
        return Dispatched("accepted", None, tuple(actions), group.life)

    def _arm(self, record: Record) -> None:
        """The state of ``record`` may have brought a new deadline."""
        group = record.group
        if group.limits is not None:
            for due in group.deadlines(record):
                self._deadlines.arm(group, due.when)

    def _close(self, group: Group, actions: list[Action]) -> None:
        """Count and audit what was said; if the group has ended, forget it but for its tombstone (R7)."""
        if group.ended:
            ids = group.request_ids()
            unheard = next((action.request_ids for action in actions if isinstance(action, AbortRequests)), None)
            for request_id in ids:
                del self._requests[request_id]
            self._parents -= 1
            if group.limits is not None:
                self._deadlines.disarm(group)
            self._tombstones.add(Tombstone(group.request_id, group.life, self._now, ids, unheard))
            group.companions.clear()  # the records refer to each other: let them go without the collector
            if group.reason is None:
                self._finished += 1
            else:
                self._failed[group.reason.value] += 1
            actions.append(ReleaseRequests(ids))
        else:
            self._forwarded += 1  # what else is said of a group that goes on
        if self._journal is not None:
            for action in actions:
                self._journal.action(action, group.request_id, group.life)


def _timed(limits: Limits) -> Limits | None:
    """The limits if one of them bounds time."""
    return limits if limits.bounds_time else None


# ---------------------------------------------------------------------------
# The classification, resolved once: guards and effects as functions
# ---------------------------------------------------------------------------

_Guard: TypeAlias = Callable[[Registry, Any, Any], bool]
_Effect: TypeAlias = Callable[[Registry, Any, Any, Choice], Dispatched]
_Cell: TypeAlias = "tuple[tuple[_Guard | None, Choice], ...]"

_CLEANED = str.__str__(tables.FINAL[tables.PARENT])
_OTHER_LIFE = Choice(Verdict.IGNORED, None, IgnoredReason.OTHER_LIFE)
_ANSWERS: dict[str, type[AbortRequests] | type[ReleaseRequests]] = {
    "abort_requests": AbortRequests,
    "release_requests": ReleaseRequests,
}


def _is_bound(registry: Registry, record: Any, event: ev.ReplicaLost) -> bool:
    lost: Replica = (event.stage_id, event.replica_id)
    return bool(record.replica == lost)


def _is_due(registry: Registry, record: Any, event: ev.ClockTicked) -> bool:
    due = record.group.first_due()
    return due is not None and due.record is record and due.when <= registry.now


#: The guards that ``tables.GUARDS`` names.
_GUARDS: dict[str, Callable[[Registry, Any, Any], bool]] = {
    "admissible": lambda registry, record, event: registry._door.why_not(event) is None,
    "same_registration": lambda registry, record, event: is_same_registration(record, event),
    "known_pair": lambda registry, record, event: is_known_pair(record, event),
    "joins": lambda registry, record, event: registry._door.why_not(event) is None,
    "unsealed": lambda registry, record, event: not record.group.sealed,
    "streaming": lambda registry, record, event: record.streaming,
    "failed_finish": lambda registry, record, event: event.finish_reason in tables.FAILED_FINISH,
    "bound": _is_bound,
    "due": _is_due,
}


class _Route(NamedTuple):
    """How the events of one type are taken in."""

    take: Callable[[Registry, Any, _Route], Dispatched]
    cells: dict[str, dict[str, _Cell]]
    """By kind of machine, then by state."""
    absent: _Cell
    subject: Callable[[Any], str]
    """Gives the id of the one request that it names."""
    effect: _Effect
    """Carries out what is not refused."""
    checks_life: bool


_EFFECTS: dict[type[ev.EventBase], Callable[[Registry, Any, Any, Choice], Dispatched]] = {
    ev.ParentRegistered: Registry._register_parent,
    ev.CompanionRegistered: Registry._register_companion,
    ev.CompanionsSealed: Registry._seal,
    ev.RequestStarted: Registry._start,
    ev.RequestProgressed: Registry._progress,
    ev.KvReady: Registry._progress,
    ev.ParentOutputReady: Registry._parent_output,
    ev.CompanionOutputReady: Registry._companion_output,
    ev.RequestFailed: Registry._request_failed,
    ev.ForwardRejected: Registry._forward_rejected,
    ev.ParentFinished: Registry._finish,
}
_SEVERAL: dict[type[ev.EventBase], Callable[[Registry, Any, _Route], Dispatched]] = {
    ev.RequestsAborted: Registry._take_abort,
    ev.ReplicaLost: Registry._take_replica_lost,
    ev.ClockTicked: Registry._take_tick,
}


def _resolved(cell: tables.Cell) -> _Cell:
    return tuple((None if choice.guard is None else _GUARDS[choice.guard], choice) for choice in cell)


def _not_named(*_: Any) -> Any:
    raise AssertionError("the event names no single request")  # pragma: no cover - only for ``_SEVERAL``


def _route(model: type[ev.EventBase]) -> _Route:
    classified = tables.CLASSIFICATION[ev.type_of(model)]
    columns = {tables.PARENT: classified.parent, tables.COMPANION: classified.companion}
    return _Route(
        _SEVERAL.get(model, Registry._take_named),
        {kind.value: {state: _resolved(cell) for state, cell in cells.items()} for kind, cells in columns.items()},
        _resolved(classified.absent),
        _not_named if model.subject_field is None else attrgetter(model.subject_field),
        _EFFECTS.get(model, _not_named),
        model is not ev.ParentRegistered,
    )


_ROUTES: dict[type[ev.EventBase], _Route] = {model: _route(model) for model in ev.EVENT_MODELS}
