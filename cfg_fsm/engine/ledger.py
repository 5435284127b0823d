"""The registry's books: which request is live, which has ended, which deadline is set, what has happened.

They are kept here and nowhere else. Records come in by ``admit`` and go with their group by ``close``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from cfg_fsm.actions import AbortRequests, Action, Dispatched, ReleaseRequests
from cfg_fsm.engine.deadlines import Deadlines
from cfg_fsm.engine.group import Cause, Companion, Group
from cfg_fsm.engine.journal import Journal
from cfg_fsm.engine.tombstones import Tombstone, Tombstones
from cfg_fsm.limits import Limits
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason

Record = Group | Companion


class Books:
    """What a registry knows. ``journal``: ``None`` if nobody observes."""

    __slots__ = (
        "deadlines", "dropped", "events", "failed", "finished", "forwarded", "ignored", "journal", "limits", "now",
        "parents", "registered", "rejected", "requests", "timed", "tombstones",
    )  # fmt: skip

    def __init__(self, limits: Limits, journal: Journal | None) -> None:
        self.limits = limits
        self.timed = timed(limits)
        """The limits if one of them bounds time."""
        self.journal = journal
        self.now = 0.0
        """Monotonic seconds; never goes back."""
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
        self.ignored: Counter[IgnoredReason | RejectedReason] = Counter()
        self.rejected: Counter[IgnoredReason | RejectedReason] = Counter()

    def copy(self) -> Books:
        """Independent books with the same entries and no journal; payloads are shared."""
        twin = Books(self.limits, None)
        for name in ("now", "events", "registered", "parents", "forwarded", "finished"):
            setattr(twin, name, getattr(self, name))
        for name in ("failed", "ignored", "rejected"):
            getattr(twin, name).update(getattr(self, name))
        groups = {record.seq: record.copy() for record in self.requests.values() if isinstance(record, Group)}
        members = {member.request_id: member for group in groups.values() for member in group.members()}
        twin.requests = {request_id: members[request_id] for request_id in self.requests}
        twin.deadlines = self.deadlines.copy(groups)
        twin.tombstones = self.tombstones.copy()
        return twin

    def admit(self, *records: Record) -> None:
        """New records of one group are live."""
        group = records[0].group
        remembered = self.tombstones.by_id
        for record in records:
            request_id = record.request_id
            self.requests[request_id] = record
            if request_id in remembered:
                self.tombstones.forget(request_id, as_companion=record is not group)
            if self.journal is not None:
                self.journal.created(record)
            if group.limits is not None:
                self.arm(record)

    def arm(self, record: Record) -> None:
        """The state of ``record`` may have brought a new deadline."""
        for due in record.group.deadlines(record):
            self.deadlines.arm(record.group, due.when)

    def answer(self, group: Group, actions: list[Action]) -> Dispatched:
        """The answer to an event that the group took in, with what it said."""
        self.close(group, actions)
        return Dispatched("accepted", None, tuple(actions), group.life)

    def finish(self, group: Group) -> Dispatched:
        """The group finishes and ends."""
        actions: list[Action] = []
        group.finish(self.now, self.journal, actions)
        self.close(group, actions)
        return Dispatched("accepted", None, tuple(actions), group.life)

    def fail(self, record: Record, cause: Cause) -> list[Action]:
        """``record`` fails and its group ends; what there is to do."""
        actions: list[Action] = []
        record.group.fail(record, cause, self.now, self.journal, actions)
        self.close(record.group, actions)
        return actions

    def close(self, group: Group, actions: list[Action]) -> None:
        """The group has said ``actions``: count and audit them. If it has ended, forget it, but for its tombstone
        (R7), and have its ids released."""
        if group.ended:
            ids = [group.request_id]
            for companion in group.companions:
                ids.append(companion.request_id)
            unheard = None
            for action in actions:
                if type(action) is AbortRequests:
                    unheard = frozenset(action.request_ids)
            for request_id in ids:
                del self.requests[request_id]
            self.parents -= 1
            if group.limits is not None:
                self.deadlines.disarm(group)
            self.tombstones.add(ids, Tombstone(group.request_id, group.life, self.now, unheard))
            self.dropped.append((group, group.companions))
            group.companions = ()  # the records refer to each other: let them go without the collector
            if group.reason is None:
                self.finished += 1
            else:
                self.failed[group.reason] += 1
            actions.append(ReleaseRequests(ids))
        else:
            self.forwarded += 1  # the one thing that is said of a group that goes on
        if self.journal is not None:
            for action in actions:
                self.journal.action(action, group.request_id, group.life)

    def refused(
        self,
        verdict: str,
        reason: IgnoredReason | RejectedReason,
        actions: Sequence[Action],
        life: int | None = None,
        record: Record | None = None,
        request_id: str | None = None,
        parent_id: str | None = None,
    ) -> Dispatched:
        """The answer to an event that was ignored or rejected: counted and audited."""
        (self.ignored if verdict == "ignored" else self.rejected)[reason] += 1
        if self.journal is not None:
            self.journal.refused(
                verdict, reason, request_id=request_id, record=record, parent_id=parent_id, life=life
            )
            for action in actions:
                self.journal.action(action, parent_id, life)
        return Dispatched(verdict, reason, tuple(actions), life)  # type: ignore[arg-type]


def timed(limits: Limits) -> Limits | None:
    """The limits if one of them bounds time, else ``None``."""
    return limits if limits.bounds_time else None
