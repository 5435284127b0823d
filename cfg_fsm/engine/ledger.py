"""The registry's ledger: which request is live, which has ended, which deadline is set, what has happened.

It is kept here and nowhere else. Records come in by ``admit`` and go with their group by ``conclude``.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from cfg_fsm.actions import Dispatched, Disposition, ReleaseRequests
from cfg_fsm.engine.deadlines import Deadlines
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.journal import Journal
from cfg_fsm.engine.step import Step
from cfg_fsm.engine.tombstones import Tombstone, Tombstones
from cfg_fsm.limits import Limits
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason

Record = Group | Companion


class Ledger:
    """What a registry knows. ``journal``: ``None`` if nobody observes."""

    __slots__ = (
        "deadlines", "dropped", "events", "failed", "finished", "forwarded", "ignored", "limits", "parents",
        "registered", "rejected", "requests", "step", "timed", "tombstones",
    )  # fmt: skip

    def __init__(self, limits: Limits, journal: Journal | None) -> None:
        self.limits = limits
        self.timed = timed(limits)
        """The limits if one of them bounds time."""
        self.step = Step(journal)
        """The step under way; between two steps, the time of the last."""
        self.requests: dict[str, Record] = {}
        """Every live request by its id; groups in order of registration."""
        self.deadlines: Deadlines[Group] = Deadlines()
        self.tombstones = Tombstones(limits.tombstones, limits.tombstone_s)
        self.dropped: list[object] = []
        """What the step let go of: kept until it is complete, for a payload may have a finalizer of the host's."""
        self.events = 0
        self.registered = 0
        """Parents so far; the last one's number is its group's ``seq``."""
        self.parents = 0
        """Live parents."""
        self.forwarded = 0
        self.finished = 0
        self.failed: Counter[FailureReason] = Counter()
        self.ignored: Counter[str] = Counter()
        self.rejected: Counter[str] = Counter()

    def copy(self, journal: Journal | None = None) -> Ledger:
        """An independent ledger with the same entries and a journal of its own; payloads are shared."""
        twin = Ledger(self.limits, journal)
        twin.step.now = self.step.now
        for name in ("events", "registered", "parents", "forwarded", "finished"):
            setattr(twin, name, getattr(self, name))
        for name in ("failed", "ignored", "rejected"):
            getattr(twin, name).update(getattr(self, name))
        groups = {record.seq: record.copy() for record in self.requests.values() if isinstance(record, Group)}
        members = {member.request_id: member for group in groups.values() for member in group.members()}
        twin.requests = {request_id: members[request_id] for request_id in self.requests}
        twin.deadlines = self.deadlines.copy(groups)
        twin.tombstones = self.tombstones.copy()
        return twin

    def open(
        self, parent_id: str, life: int | None, *, announced: bool, streaming: bool, own: Limits | None
    ) -> Group:
        """A new group, for ``admit``. ``life``: ``None``: the one after the last. ``own``: its own limits."""
        if life is None:
            life = self.tombstones.last_life(parent_id) + 1
        limits = self.timed if own is None else timed(self.limits.with_overrides(own))
        self.registered += 1
        self.parents += 1
        return Group(parent_id, life, self.registered, self.step.now, announced, streaming, own, limits)

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
                self.arm(record)

    def arm(self, record: Record) -> None:
        """The state of ``record`` may have brought a new deadline."""
        for due in record.group.deadlines(record):
            self.deadlines.arm(record.group, due.when)

    def conclude(self, group: Group) -> None:
        """The group has spoken: count and audit it. If it has ended, forget it, but for its tombstone (R7), and
        have its ids released."""
        step = self.step
        self.forwarded += step.forwards
        step.forwards = 0
        if group.ended:
            ids = [group.request_id]
            for companion in group.companions:
                ids.append(companion.request_id)
            for request_id in ids:
                del self.requests[request_id]
            self.parents -= 1
            if group.limits is not None:
                self.deadlines.disarm(group)
            unheard = frozenset(step.aborted) if step.aborted else None
            step.aborted = ()
            self.tombstones.add(ids, Tombstone(group.request_id, group.life, step.now, unheard))
            self.dropped.append((group, group.companions))
            group.companions = ()  # the records refer to each other: let them go without the collector
            if group.reason is None:
                self.finished += 1
            else:
                self.failed[group.reason] += 1
            step.say(ReleaseRequests(ids))
        step.note_actions(group.request_id, group.life)

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
        (self.ignored if verdict == "ignored" else self.rejected)[reason] += 1
        step = self.step
        if step.journal is not None:
            step.journal.refused(
                verdict, reason, request_id=request_id, record=record, parent_id=parent_id, life=life
            )
            step.note_actions(parent_id, life)
        return Dispatched(verdict, reason, step.answer() if step.actions else (), life)

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
            "accepted": self.events - self.ignored.total() - self.rejected.total(),
            "ignored": _by_code(self.ignored),
            "rejected": _by_code(self.rejected),
            "parents_registered": self.registered,
            "forwards": self.forwarded,
            "finished": self.finished,
            "failed": _by_code(self.failed),
            "observer_errors": 0 if journal is None else journal.errors,
        }


def timed(limits: Limits) -> Limits | None:
    """The limits if one of them bounds time, else ``None``."""
    return limits if limits.bounds_time else None


def _by_code(counter: Counter[Any]) -> dict[str, int]:
    return {code.value: count for code, count in sorted(counter.items())}
