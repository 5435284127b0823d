"""The registry's ledger: which request is live, which has ended, which deadline is set, what has happened.

It is kept here and nowhere else. Records come in by ``admit`` and go with their group by ``conclude``.
"""

from __future__ import annotations

from typing import Any

from cfg_fsm.actions import Dispatched, Disposition, ReleaseRequests
from cfg_fsm.engine.clock import Clock
from cfg_fsm.engine.confirmations import Confirmations, Told, Waiting
from cfg_fsm.engine.deadlines import Deadlines
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.journal import Journal
from cfg_fsm.engine.step import Replica, Step
from cfg_fsm.engine.tombstones import Tombstone, Tombstones
from cfg_fsm.limits import Limits
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason

Record = Group | Companion

_NUMBERS = ("events", "registered", "parents", "forwarded", "finished", "released_unconfirmed", "interrupted")
#: The reason of a release that was not waited for any longer.
_UNCONFIRMED = "unconfirmed"


class Ledger:
    """What a registry knows. ``journal``: ``None`` if nobody observes."""

    __slots__ = (
        "clock", "dated", "deadlines", "dropped", "events", "failed", "finished", "forwarded", "ignored",
        "interrupted", "limits", "parents", "registered", "rejected", "released_unconfirmed", "requests", "step",
        "timed", "tombstones", "waiting",
    )  # fmt: skip

    def __init__(self, limits: Limits, journal: Journal | None) -> None:
        self.limits = limits
        self.timed = timed(limits)
        """The limits if one of them bounds time."""
        self.dated = limits.bounds_time or limits.confirm_s is not None
        """Whether events should say when they happened: a limit in time is set, or a parent has brought one."""
        self.step = Step(journal)
        """The step under way; between two steps, the time of the last."""
        self.clock = Clock()
        self.requests: dict[str, Record] = {}
        """Every live request by its id; groups in order of registration."""
        self.deadlines = Deadlines()
        self.tombstones = Tombstones(limits.tombstones, limits.tombstone_s)
        self.waiting = Confirmations()
        """Ended requests whose release waits for their report."""
        self.dropped: list[object] = []
        """What the step let go of: kept until it is complete, for a payload may have a finalizer of the host's."""
        self.events = 0
        self.registered = 0
        """Parents so far; the last one's number is its group's ``seq``."""
        self.parents = 0
        """Live parents."""
        self.forwarded = 0
        self.finished = 0
        self.released_unconfirmed = 0
        """Requests that were released because nothing was heard of them in time."""
        self.interrupted = 0
        """Steps that were broken off and run again."""
        self.failed: dict[FailureReason, int] = {}
        self.ignored: dict[str, int] = {}
        self.rejected: dict[str, int] = {}

    def copy(self, journal: Journal | None = None) -> Ledger:
        """An independent ledger with the same entries and a journal of its own; payloads are shared."""
        twin = Ledger(self.limits, journal)
        twin.step.now, twin.clock, twin.dated = self.step.now, self.clock.copy(), self.dated
        for name in _NUMBERS:
            setattr(twin, name, getattr(self, name))
        for name in ("failed", "ignored", "rejected"):
            getattr(twin, name).update(getattr(self, name))
        groups = [record.copy() for record in self.requests.values() if isinstance(record, Group)]
        members = {member.request_id: member for group in groups for member in group.members()}
        twin.requests = {request_id: members[request_id] for request_id in self.requests}
        twin.deadlines = self.deadlines.copy(lambda record: members[record.request_id])
        twin.tombstones = self.tombstones.copy()
        twin.waiting = self.waiting.copy()
        return twin

    def open(
        self, parent_id: str, life: int | None, announced: bool, streaming: bool, own: Limits | None
    ) -> Group:
        """A new group, for ``admit``. ``life``: ``None``: the one after the last. ``own``: its own limits."""
        step = self.step
        if life is None:
            life = self.tombstones.last_life(parent_id) + 1
        limits = self.timed if own is None else timed(self.limits.with_overrides(own))
        if own is not None and (limits is not None or own.confirm_s is not None):
            self.dated = True
        number = self.registered + 1
        group = Group(parent_id, life, number, step.now, announced, streaming, own, limits)
        step.record, self.registered, self.parents = group, number, self.parents + 1
        return group

    def admit(self, *records: Record) -> None:
        """New records of one group are live."""
        group = records[0].group
        remembered = self.tombstones.by_id
        journal = self.step.journal
        for record in records:
            request_id = record.request_id
            self.requests[request_id] = record
            if request_id in remembered:
                self.tombstones.forget(request_id, as_companion=record is not group)
            if journal is not None:
                journal.created(record)
            if group.limits is not None:
                self.deadlines.update(record)

    def conclude(self, group: Group) -> None:
        """The group has spoken: count and audit it. If it has ended, forget it, but for its tombstone (R7), and
        have its ids released."""
        step = self.step
        self.forwarded, step.forwards = self.forwarded + step.forwards, 0
        if not group.ended:
            if group.limits is not None:
                self.deadlines.update(group)
            step.conclude(group.request_id, group.life)
            return
        ids = [group.request_id]
        for companion in group.companions:
            ids.append(companion.request_id)
        if step.counted is not group:
            self.tombstones.add(ids, Tombstone(group.request_id, group.life, step.now))
            released = self._told(group) if step.aborted else ids
            if released:
                step.say(ReleaseRequests(released))
            if group.limits is not None:
                for record in group.members():
                    self.deadlines.drop(record)
            self.dropped.append((group, group.companions))
            if group.reason is None:
                step.counted, self.parents, self.finished = group, self.parents - 1, self.finished + 1
            else:
                failed = self.failed.get(group.reason, 0) + 1
                step.counted, self.parents, self.failed[group.reason] = group, self.parents - 1, failed
        step.conclude(group.request_id, group.life)
        for request_id in reversed(ids):  # the parent last: until it is gone the group is not concluded
            self.requests.pop(request_id, None)
        group.companions, group.by_role = (), None  # they refer to each other: let them go without the collector

    def _told(self, group: Group) -> list[str]:
        """The host is told to abort some of the group, which has ended: remember whom. Who is released now."""
        step = self.step
        members = group.members()
        aborted = frozenset(step.aborted)
        told = {
            record.request_id: Told(record.request_id, group.request_id, group.life, step.now, record.replica)
            for record in members
            if record.request_id in aborted
        }
        remembered = self.tombstones.by_id
        self.tombstones.told.update(
            (request_id, one) for request_id, one in told.items() if request_id in remembered
        )
        confirm_s = self.limits.with_overrides(group.own_limits).confirm_s
        if confirm_s is None:
            return [record.request_id for record in members]
        self.waiting.add(Waiting(group.seq, group.request_id, group.life, step.now + confirm_s, told))
        return [record.request_id for record in members if record.request_id not in aborted]

    # -- what is heard of those that have ended -----------------------------------------------------------------

    def ended(self, request_id: str) -> Tombstone | Waiting | None:
        """What is known of an id that has ended."""
        return self.tombstones.by_id.get(request_id) or self.waiting.by_id.get(request_id)

    def hear(self, request_id: str) -> None:
        """It has reported its end: if its release waits for that, it waits no more."""
        self.tombstones.told.pop(request_id, None)
        if request_id in self.waiting.by_id:
            self.step.say(ReleaseRequests([request_id]))
            self.waiting.remove(request_id)

    def tell(self, request_id: str, replica: Replica | None) -> None:
        """It has ended and is told to abort again. ``replica``: where it is heard of now, if that is known."""
        self.tombstones.tell(request_id, self.step.now, replica)
        waiting = self.waiting.by_id.get(request_id)
        if waiting is not None:
            told = waiting.told[request_id]
            told.since, told.replica = self.step.now, replica or told.replica

    def release_lost(self, replica: Replica) -> None:
        """Release those that wait and were last heard of on a replica that is lost."""
        for waiting, ids in self.waiting.on(replica):
            self._release(waiting, ids, None)

    def release_overdue(self) -> None:
        """Release those that have waited for too long."""
        for waiting in self.waiting.due(self.step.now):
            self._release(waiting, list(waiting.told), _UNCONFIRMED)

    def _release(self, waiting: Waiting, ids: list[str], reason: str | None) -> None:
        step = self.step
        if step.counted is not waiting:
            step.say(ReleaseRequests(ids))
            overdue = 0 if reason is None else len(ids)
            step.counted, self.released_unconfirmed = waiting, self.released_unconfirmed + overdue
        step.conclude(waiting.parent_id, waiting.life, reason)
        for request_id in ids:
            self.waiting.remove(request_id)

    def next_deadline(self) -> float | None:
        """When the next tick has something to do, monotonic seconds; ``None``: no deadline is set."""
        first, waiting = self.deadlines.next(), self.waiting.first()
        if waiting is None:
            return first
        return waiting.deadline if first is None else min(first, waiting.deadline)

    def unconfirmed(self) -> dict[str, Told]:
        """Those that were told to abort and have not reported, by id."""
        told = dict(self.tombstones.told)
        for request_id, waiting in self.waiting.by_id.items():
            told.setdefault(request_id, waiting.told[request_id])
        return told

    def refuse(
        self,
        verdict: Disposition,
        reason: IgnoredReason | RejectedReason,
        life: int | None = None,
        record: Record | None = None,
        request_id: str | None = None,
        parent_id: str | None = None,
    ) -> Dispatched:
        """The answer to an event that is ignored or rejected, with what the step has said: counted and audited."""
        step = self.step
        if step.counted is None:
            counts = self.ignored if verdict == "ignored" else self.rejected
            count = counts.get(reason, 0) + 1
            step.counted, counts[reason] = reason, count
        if step.journal is not None:
            step.journal.refused(
                verdict, reason, request_id=request_id, record=record, parent_id=parent_id, life=life
            )
            step.conclude(parent_id, life)
        return Dispatched(verdict, reason, tuple(step.actions), life)

    def counters(self) -> dict[str, Any]:
        """What is there and what has happened so far, as numbers. See ``Registry.counters``."""
        journal = self.step.journal
        return {
            "live": len(self.requests),
            "live_parents": self.parents,
            "live_companions": len(self.requests) - self.parents,
            "deadlines": len(self.deadlines),
            "tombstones": len(self.tombstones),
            "events": self.events,
            "accepted": self.events - sum(self.ignored.values()) - sum(self.rejected.values()),
            "ignored": _by_code(self.ignored),
            "rejected": _by_code(self.rejected),
            "parents_registered": self.registered,
            "forwards": self.forwarded,
            "finished": self.finished,
            "failed": _by_code(self.failed),
            "waiting": len(self.waiting),
            "unconfirmed": len(self.unconfirmed()),
            "released_unconfirmed": self.released_unconfirmed,
            "observer_errors": 0 if journal is None else journal.errors,
            "interrupted_steps": self.interrupted,
            "clock": self.clock.counters(),
        }


def timed(limits: Limits) -> Limits | None:
    """The limits if one of them bounds time, else ``None``."""
    return limits if limits.bounds_time else None


def _by_code(counter: dict[Any, int]) -> dict[str, int]:
    return {code.value: count for code, count in sorted(counter.items())}
