"""The registry: ids to groups, replicas, tombstones, limits; ``dispatch`` takes an event and answers with actions.

Not thread-safe: one owner dispatches. Nothing here reads a clock, starts a thread or calls user code before a
step is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from cfg_fsm import events as ev
from cfg_fsm import tables
from cfg_fsm.actions import (
    AbortOutcome,
    AbortRequests,
    AcknowledgeAbort,
    Action,
    Dispatched,
    Disposition,
    ForwardParent,
    ReleaseRequests,
)
from cfg_fsm.audit.record import Journal, Observer
from cfg_fsm.deadlines import Deadlines
from cfg_fsm.door import Door, Registration, is_known_pair, is_same_registration
from cfg_fsm.errors import NotAnEvent
from cfg_fsm.events import Event, LifeEvent, Limits
from cfg_fsm.group import Cause, Companion, Due, Group, Replica
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason
from cfg_fsm.tables import Cell, Choice, Classification, Verdict
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
        take = _TAKE.get(type(event))
        if take is None:
            raise NotAnEvent(event)
        journal = self._journal
        if journal is not None:
            journal.check_idle()
        if event.at is not None and event.at > self._now:
            self._now = event.at
        if self._tombstones.expire_at <= self._now:
            self._tombstones.expire(self._now)
        self._events += 1
        if journal is None:
            return take(self, event)
        journal.begin(event.type, self._now)
        journal.event(event)
        answer = take(self, event)
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

    def _take_named(self, event: LifeEvent) -> Dispatched:
        """The way of every event that names one request: find it, classify, then refuse or carry out."""
        cells, effect, checks_life = _NAMED[type(event)]
        request_id: str = getattr(event, cast(str, event.subject_field))
        record = self._requests.get(request_id)
        if record is None:
            tombstone = self._tombstones.get(request_id)
            if tombstone is None:
                cell = cells.absent
            else:
                if event.is_terminal and event.life in (None, tombstone.life):
                    tombstone.heard(request_id)
                cell = (cells.parent if tombstone.parent_id == request_id else cells.companion)[_CLEANED]
        else:
            if event.life is not None and event.life != record.life and checks_life:
                return self._refuse(event, record, _OTHER_LIFE)
            cell = _cell(cells, record)
        choice = self._choose(cell, record, event)
        if choice.verdict in _REFUSALS:
            return self._refuse(event, record, choice)
        return effect(self, record, event, choice)

    def _choose(self, cell: Cell, record: Record | None, event: Any) -> Choice:
        """The first choice of the cell whose guard holds."""
        for choice in cell:
            if choice.guard is None or _GUARDS[choice.guard](self, record, event):
                return choice
        raise AssertionError("a cell ends in a choice without a guard")  # pragma: no cover - machines.validate()

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
        limits = self.limits.with_overrides(event.limits)
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
            limits if limits.bounds_time else None,
        )
        self._admit(group)
        for role, companion_id in (event.companions or {}).items():
            self._admit(group.join(role, companion_id, self._now))
        return self._accept(group, [])

    def _register_companion(self, record: Record, event: ev.CompanionRegistered, _: Choice) -> Dispatched:
        companion = record.group.join(event.role, event.companion_id, self._now)
        self._admit(companion)
        return self._accept(record.group, [])

    def _admit(self, record: Record) -> None:
        self._requests[record.request_id] = record
        self._tombstones.forget(record.request_id)
        if self._journal is not None:
            self._journal.created(record)
        self._arm(record)

    def _seal(self, record: Record, event: ev.CompanionsSealed, _: Choice) -> Dispatched:
        actions: list[Action] = []
        record.group.seal(self._now, self._journal, actions)
        return self._accept(record.group, actions)

    def _start(self, record: Record, event: ev.RequestStarted, _: Choice) -> Dispatched:
        replica = None if event.replica_id is None else (event.stage_id, event.replica_id)
        record.group.start(record, replica, self._now, self._journal)
        self._arm(record)
        return self._accept(record.group, [])

    def _progress(self, record: Record, event: ev.RequestProgressed | ev.KvReady, _: Choice) -> Dispatched:
        record.seen = self._now
        return self._accept(record.group, [])

    def _parent_output(self, record: Record, event: ev.ParentOutputReady, _: Choice) -> Dispatched:
        actions: list[Action] = []
        record.group.defer(event.stage_id, event.engine_outputs, event.context, self._now, self._journal, actions)
        self._arm(record)
        return self._accept(record.group, actions)

    def _companion_output(self, record: Companion, event: ev.CompanionOutputReady, choice: Choice) -> Dispatched:
        group = record.group
        if choice.guard is not None:
            reason = tables.FAILED_FINISH[event.finish_reason]
            error = f"{_name(record)} ended with finish reason {event.finish_reason}"
            return self._fail(record, Cause(reason, error))
        actions: list[Action] = []
        group.complete(record, event.output, self._now, self._journal, actions)
        return self._accept(group, actions)

    def _request_failed(self, record: Record, event: ev.RequestFailed, _: Choice) -> Dispatched:
        error = event.error if record is record.group else f"{_name(record)} failed: {event.error}"
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
        return self._accept(record.group, actions)

    # -- events about several groups ----------------------------------------------------------------------

    def _take_abort(self, event: ev.RequestsAborted) -> Dispatched:
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
            cell = _cell(tables.CLASSIFICATION[event.type], record)
            if self._choose(cell, record, event).verdict is not Verdict.MOVES:
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
                error = f"{_name(record)} was aborted before its output came"
            actions += self._end(record, Cause(FailureReason.ABORTED, error))
        return Dispatched("accepted", None, tuple(actions), None)

    def _take_replica_lost(self, event: ev.ReplicaLost) -> Dispatched:
        """What runs on the replica fails, group by group; a parent before its companions."""
        hit: dict[int, Group] = {}
        for record in self._requests.values():
            if self._meets(record, event):
                hit[record.group.seq] = record.group
        if not hit:
            return self._refused(Verdict.IGNORED, IgnoredReason.NOTHING_BOUND, [])
        lost = (event.stage_id, event.replica_id)
        what = f"replica {event.replica_id} of stage {event.stage_id}"
        why = f": {event.error}" if event.error else ""
        actions: list[Action] = []
        for _, group in sorted(hit.items()):
            record = next(r for r in group.members() if self._meets(r, event))
            error = f"{what} was lost{why}"
            if record is not group:
                error = f"{_name(record)} ran on {what}, which was lost{why}"
            actions += self._end(record, Cause(FailureReason.REPLICA_LOST, error, event.stage_id, lost=lost))
        return Dispatched("accepted", None, tuple(actions), None)

    def _meets(self, record: Record, event: ev.ReplicaLost) -> bool:
        if event.life not in (None, record.life):
            return False
        cell = _cell(tables.CLASSIFICATION[event.type], record)
        return self._choose(cell, record, event).verdict is Verdict.MOVES

    def _take_tick(self, event: ev.ClockTicked) -> Dispatched:
        """Deadlines that have come end their parents, the earliest first."""
        actions: list[Action] = []
        for group in self._deadlines.due(self._now):
            due = group.first_due()
            assert due is not None
            cause = Cause(due.row.reason, _overdue(due), status_code=tables.DEADLINE_STATUS)
            actions += self._end(due.record, cause)
        return Dispatched("accepted", None, tuple(actions), None)

    # -- the end of a step --------------------------------------------------------------------------------

    def _end(self, record: Record, cause: Cause) -> list[Action]:
        """``record`` fails and its group ends."""
        actions: list[Action] = []
        record.group.fail(record, cause, self._now, self._journal, actions)
        self._close(record.group, actions)
        return actions

    def _accept(self, group: Group, actions: list[Action]) -> Dispatched:
        if actions:
            self._close(group, actions)
        return Dispatched("accepted", None, tuple(actions), group.life)

    def _arm(self, record: Record) -> None:
        """The state of ``record`` may have brought a new deadline."""
        for due in record.group.deadlines(record):
            self._deadlines.arm(record.group, due.when)

    def _close(self, group: Group, actions: list[Action]) -> None:
        """Count and audit what was said; if the group has ended, forget it but for its tombstone (R7)."""
        unheard: list[str] | None = None
        for action in actions:
            if isinstance(action, ForwardParent):
                self._forwarded += 1
            elif isinstance(action, AbortRequests):
                unheard = action.request_ids
            if self._journal is not None:
                self._journal.action(action, group.request_id, group.life)
        if not group.ended:
            return
        if group.reason is None:
            self._finished += 1
        else:
            self._failed[group.reason.value] += 1
        ids = group.request_ids()
        for request_id in ids:
            del self._requests[request_id]
        self._parents -= 1
        self._deadlines.disarm(group)
        self._tombstones.add(Tombstone(group.request_id, group.life, self._now, ids, unheard))
        group.companions.clear()  # the records refer to each other: let them go without the collector


def _name(record: Record) -> str:
    return f"companion {record.request_id} (role {record.role})"


def _overdue(due: Due) -> str:
    """The sentence for the client and the audit: which limit, and what the bundle lacks."""
    group = due.record.group
    limit = f"{due.row.limit} = {getattr(group.limits, due.row.limit):g} s"
    missing = ", ".join(f"{role} ({request_id})" for role, request_id in group.missing().items())
    parts = [_OVERDUE[due.row.reason].format(limit=limit, name=_name(due.record))]
    if missing:
        parts.append(f"no output yet of {missing}")
    if not group.sealed:
        parts.append("the set of companions was never sealed")
    return "; ".join(parts)


_OVERDUE: dict[FailureReason, str] = {
    FailureReason.DEFERRED_DEADLINE: "the bundle was not complete within {limit} of the parent's output",
    FailureReason.TOTAL_DEADLINE: "the request did not end within {limit} of its registration",
    FailureReason.START_DEADLINE: "{name} did not start within {limit} of its registration",
    FailureReason.SILENT: "{name} gave no sign of life for {limit}",
}


_PARENT = tables.PARENT.value
_CLEANED = str.__str__(tables.FINAL[tables.PARENT])
_OTHER_LIFE = Choice(Verdict.IGNORED, None, IgnoredReason.OTHER_LIFE)
_REFUSALS = frozenset({Verdict.IGNORED, Verdict.REJECTED})
_ANSWERS: dict[str, type[AbortRequests] | type[ReleaseRequests]] = {
    "abort_requests": AbortRequests,
    "release_requests": ReleaseRequests,
}


def _cell(cells: Classification, record: Record) -> Cell:
    return (cells.parent if record.machine == _PARENT else cells.companion)[record.state]


def _is_bound(registry: Registry, record: Any, event: ev.ReplicaLost) -> bool:
    lost: Replica = (event.stage_id, event.replica_id)
    return bool(record.replica == lost)


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
}


class _Named(NamedTuple):
    """How an event about one request is taken in."""

    cells: Classification
    effect: Callable[[Registry, Any, Any, Choice], Dispatched]
    checks_life: bool = True


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
_NAMED: dict[type[ev.EventBase], _Named] = {
    model: _Named(tables.CLASSIFICATION[ev.type_of(model)], effect, model is not ev.ParentRegistered)
    for model, effect in _EFFECTS.items()
}
_TAKE: dict[type[ev.EventBase], Callable[[Registry, Any], Dispatched]] = {
    **dict.fromkeys(_NAMED, Registry._take_named),
    ev.RequestsAborted: Registry._take_abort,
    ev.ReplicaLost: Registry._take_replica_lost,
    ev.ClockTicked: Registry._take_tick,
}
