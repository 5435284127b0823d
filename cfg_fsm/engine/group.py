"""One parent's engine: its record, its companions' records, and the join between them.

A ``Group`` is the parent's record (what the parent machine moves) and owns the companions' records. It fires
triggers, runs the coupling rows to a fixed point, and appends what the host has to do to a list of actions. It
does not know the registry: ids and their release, limits of size, the heap of deadlines and tombstones are
handled there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cfg_fsm import tables
from cfg_fsm.actions import FailParent, forward_parent
from cfg_fsm.engine.resolved import (
    CLEAN_COMPANION,
    CLEAN_PARENT,
    COMPLETE,
    COUPLED,
    COUPLED_BY,
    DEADLINES,
    DEFER,
    DONE,
    ENABLED_BY,
    FAIL,
    FINAL_PARENT,
    FINISH,
    FORWARD,
    INITIAL_COMPANION,
    INITIAL_PARENT,
    OPEN,
    START,
    CoupledRow,
    RowEffect,
    bind_effects,
)
from cfg_fsm.engine.step import Cause, Replica, Step
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.limits import Limits
from cfg_fsm.states import FailureReason, Trigger
from cfg_fsm.tables import DeadlineRow
from cfg_fsm.twin import twin_of

#: A group with more companions than this is searched by other means.
MANY = 16


class Companion:
    """A companion's record."""

    __slots__ = (
        "group", "life", "output", "parent_id", "replica", "request_id", "role", "seen", "since", "state",
    )  # fmt: skip

    machine = tables.COMPANION.value

    def __init__(self, request_id: str, role: str, group: Group, now: float) -> None:
        self.state = INITIAL_COMPANION
        self.request_id = request_id
        self.role = role
        self.group = group
        self.parent_id = group.request_id
        self.life = group.life
        self.output: Any = None
        self.replica: Replica | None = None
        self.since = now
        """When it entered its state, monotonic seconds."""
        self.seen = now
        """When it last gave a sign of life."""


class Due(NamedTuple):
    """A deadline: when, whose, and which."""

    when: float
    record: Group | Companion
    row: DeadlineRow


class Group:
    """A parent's record and engine, with its companions' records in role order."""

    __slots__ = (
        "announced",
        "by_role",
        "companions",
        "context",
        "engine_outputs",
        "life",
        "limits",
        "own_limits",
        "ready",
        "reason",
        "registered_at",
        "replica",
        "request_id",
        "sealed",
        "seq",
        "since",
        "stage_id",
        "state",
        "streaming",
    )  # fmt: skip

    machine = tables.PARENT.value
    role: None = None
    if TYPE_CHECKING:
        parent_id: str

    def __init__(
        self,
        request_id: str,
        life: int,
        seq: int,
        now: float,
        announced: bool,
        streaming: bool,
        own_limits: Limits | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.state = INITIAL_PARENT
        self.request_id = request_id
        self.life = life
        self.seq = seq
        self.companions: Sequence[Companion] = ()
        """In role order. Mostly a few, so a tuple is smaller and no slower to search than a dictionary."""
        self.by_role: dict[str, Companion] | None = None
        """The same by role, if there are many."""
        self.ready = 0
        """If there are many: those before this place are done."""
        self.announced = announced
        """Whether the registration named the companions."""
        self.sealed = announced
        self.streaming = streaming
        self.own_limits = own_limits
        """The limits that came with the registration."""
        self.limits = limits
        """The limits in force if one of them bounds time, else ``None``."""
        self.replica: Replica | None = None
        self.registered_at = self.since = now
        """When the parent entered its state; while deferred, when the current wait began."""
        self.stage_id: int | None = None
        """The stage of its last output."""
        self.engine_outputs: Any = None
        self.context: Any = None
        self.reason: FailureReason | None = None
        """Why it failed."""

    @property
    def group(self) -> Group:
        """Itself, so that a parent and a companion are asked alike."""
        return self

    # -- what the registry asks ---------------------------------------------------------------------------

    def members(self) -> list[Group | Companion]:
        """The parent's record, then the companions' in role order."""
        return [self, *self.companions]

    def roles(self) -> dict[str, str]:
        """``{role: companion id}`` in role order, a new dictionary."""
        roles = {}
        for companion in self.companions:
            roles[companion.role] = companion.request_id
        return roles

    def all_done(self) -> bool:
        """Whether every companion is done."""
        for companion in self.companions:  # noqa: SIM110 - a third of the time of all(...)
            if companion.state not in DONE:
                return False
        return True

    def missing(self) -> dict[str, str]:
        """``{role: companion id}`` of the outputs that the bundle lacks, in role order."""
        return {c.role: c.request_id for c in self.companions if c.state not in DONE}

    @property
    def ended(self) -> bool:
        """Whether all machines of the group are cleaned."""
        return self.state == FINAL_PARENT

    def deadlines(self, record: Group | Companion) -> list[Due]:
        """The deadlines that ``record`` has in its state."""
        found: list[Due] = []
        if self.limits is not None:
            for row in DEADLINES.get((record.machine, record.state), ()):
                limit = getattr(self.limits, row.limit)
                if limit is not None:
                    found.append(Due(getattr(record, row.since) + limit, record, row))
        return found

    def first_due(self) -> Due | None:
        """The earliest deadline of the group. Of equal ones the parent's, in the order of the table, then the
        companions' in role order."""
        every = [due for record in self.members() for due in self.deadlines(record)]
        return min(every, key=lambda due: due.when, default=None)

    def copy(self) -> Group:
        """An independent group in the same state, with records of its own; payloads are shared."""
        twin = twin_of(self)
        twin.companions = tuple(twin_of(companion) for companion in self.companions)
        for companion in twin.companions:
            companion.group = twin
        if self.by_role is not None:
            twin.by_role = {companion.role: companion for companion in twin.companions}
        return twin

    # -- what events do -----------------------------------------------------------------------------------

    def announce(self, companions: dict[str, str], now: float) -> None:
        """The companions that the registration names, ``{role: id}``."""
        made = []
        for role, companion_id in companions.items():
            made.append(Companion(companion_id, role, self, now))
        self.companions = tuple(made)
        if len(made) > MANY:
            self.by_role = {companion.role: companion for companion in made}

    def join(self, role: str, companion_id: str, now: float) -> Companion:
        """A new companion in ``role``, after those that are there."""
        companion = Companion(companion_id, role, self, now)
        if self.by_role is None and len(self.companions) < MANY:
            self.companions = (*self.companions, companion)
            return companion
        if self.by_role is None:
            self.by_role = {one.role: one for one in self.companions}
        if not isinstance(self.companions, list):
            self.companions = list(self.companions)
        self.by_role[role] = companion
        self.companions.append(companion)
        return companion

    def in_role(self, role: str) -> Companion | None:
        """The companion that has this role."""
        if self.by_role is not None:
            return self.by_role.get(role)
        for companion in self.companions:
            if companion.role == role:
                return companion
        return None

    def seal(self, step: Step) -> None:
        """Close the set of companions."""
        self.sealed = True
        self._settle(COUPLED[self.sealed][self.state], step)

    def start(self, record: Group | Companion, replica: Replica | None, step: Step) -> None:
        """``record`` runs on ``replica``."""
        START[record.machine](record, step)
        record.replica = replica
        if record is not self:
            record.seen = step.now  # type: ignore[union-attr]

    def progress(self, record: Group | Companion, step: Step) -> None:
        """``record`` gave a sign of life. Only a companion's counts for a limit."""
        if record is not self:
            record.seen = step.now  # type: ignore[union-attr]

    def defer(self, stage_id: int, engine_outputs: Any, context: Any, step: Step) -> None:
        """The parent's own output is here; it replaces one that still waits."""
        source = self.state
        if not DEFER(self, step):
            return  # the step was broken off after the forward
        self.stage_id, self.engine_outputs, self.context = stage_id, engine_outputs, context
        rows = COUPLED[self.sealed][self.state] if step.resumed else ENABLED_BY[self.sealed][source][self.state]
        if rows:
            self._settle(rows, step)

    def complete(self, companion: Companion, output: Any, step: Step) -> None:
        """The companion's output is here: stored and marked in one step (R6)."""
        companion.output = output
        COMPLETE(companion, step)
        rows = COUPLED_BY[self.sealed][companion.state][self.state]
        if rows:
            self._settle(rows, step)

    def fail(self, record: Group | Companion, cause: Cause, step: Step) -> None:
        """``record`` fails, and with it the group."""
        step.cause = cause
        if step.heard and step.running is None:
            step.running = self._running(cause.gone)
        if record is self:
            self._fail_parent(None, step)
        else:
            FAIL[record.machine](record, step, cause.reason)
        self._settle(COUPLED[self.sealed][self.state], step)

    def finish(self, step: Step) -> None:
        """The downstream stages are over with the parent."""
        if step.heard:
            step.abort(self._running((self,)))
        FINISH(self, step)
        self._settle(COUPLED[self.sealed][self.state], step)

    def hand_over(self, step: Step, reason: FailureReason | None = None) -> None:
        """The parent's output goes to the host. ``reason``: why, if not for a complete bundle."""
        # The host has it now. The companions' outputs stay: a streaming parent is forwarded with them again.
        self.engine_outputs = self.context = None
        FORWARD(self, step, reason)

    def supersede(self, old: Companion, companion_id: str, step: Step) -> Companion:
        """A new companion takes the role of an old one, which fails and leaves the group."""
        if old.state in OPEN:
            FAIL[old.machine](old, step, FailureReason.SUPERSEDED)
        CLEAN_COMPANION(old, step)
        companion = Companion(companion_id, old.role, self, step.now)
        self.companions = tuple(companion if one is old else one for one in self.companions)
        self.ready = 0
        if self.by_role is not None:
            self.by_role[old.role] = companion
        return companion

    def _running(self, gone: Collection[Group | Companion]) -> list[str]:
        """Ids of those that may still run, the parent first: the parent and the open companions, less ``gone``."""
        ids = [] if self in gone else [self.request_id]
        for companion in self.companions:
            if companion.state in OPEN and companion not in gone:
                ids.append(companion.request_id)
        return ids

    # -- the coupling rows --------------------------------------------------------------------------------

    def _settle(self, rows: tuple[CoupledRow, ...], step: Step) -> None:
        """Run the coupling rows to a fixed point; ``rows`` are those that what just happened may satisfy."""
        while rows:
            for row in rows:
                states = row.companions
                found: list[Companion] = []
                if row.every:
                    if self.by_role is not None and not self._every(states):
                        continue
                    for companion in self.companions:
                        if companion.state not in states:
                            break
                    else:
                        break
                else:
                    for companion in self.companions:
                        if companion.state in states:
                            found.append(companion)
                    if found:
                        break
            else:
                return
            row.effect(self, row, found, step)
            rows = COUPLED[self.sealed][self.state]

    def _every(self, states: frozenset[str]) -> bool:
        """Whether every one of many companions is in these states, if the states are those of the bundle: they are
        looked at once, for a companion that is done stays so. For other states: they are all to be looked at."""
        if states != DONE:
            return True
        companions = self.companions
        while self.ready < len(companions) and companions[self.ready].state in states:
            self.ready += 1
        return self.ready == len(companions)

    # The effects of the rows. All have the signature of ``RowEffect``.

    def _forward(self, row: CoupledRow, found: Sequence[Companion], step: Step) -> None:
        assert self.stage_id is not None  # set by the defer that every forward follows
        roles, outputs = {}, []
        for companion in self.companions:
            roles[companion.role] = companion.request_id
            outputs.append(companion.output)
        action = forward_parent(
            self.request_id, self.life, self.stage_id, self.engine_outputs, roles, outputs, self.context
        )
        if not step.resumed or step.is_new(action):
            step.actions, step.forwards = [*step.actions, action], 1
        self.hand_over(step)

    def _fail_because_of(self, row: CoupledRow, found: Sequence[Companion], step: Step) -> None:
        self._fail_parent(found[0], step)

    def _fail_companions(self, row: CoupledRow, found: Sequence[Companion], step: Step) -> None:
        for companion in found:
            FAIL[companion.machine](companion, step, row.reason)

    def _clean(self, row: CoupledRow, found: Sequence[Companion], step: Step) -> None:
        self.clean(step)

    def clean(self, step: Step) -> None:
        """All machines of the group leave."""
        CLEAN_PARENT(self, step)
        for companion in self.companions:
            CLEAN_COMPANION(companion, step)

    def _fail_parent(self, companion: Companion | None, step: Step) -> None:
        """The parent fails: by itself, or because ``companion`` did."""
        cause = step.cause
        assert cause is not None  # nothing fails in a step without one
        reason = cause.reason
        if companion is not None:
            reason = tables.REASON_OF_PARENT.get(reason, reason)
        if step.heard:
            if reason is not FailureReason.ABORTED:  # a client that aborted wants no failure
                step.say(
                    FailParent(
                        self.request_id,
                        self.life,
                        self.stage_id if cause.stage_id is None else cause.stage_id,
                        reason,
                        cause.error,
                        None if companion is None else companion.request_id,
                        cause.error_type,
                        cause.status_code,
                    )
                )
            step.abort(step.running or [])
        self.reason = reason
        FAIL[self.machine](self, step, reason)


# A parent's ``parent_id`` is its own id: the same slot under another name, for records are asked alike.
setattr(Group, "parent_id", Group.__dict__["request_id"])  # noqa: B010 - a type checker knows slots by instance only


#: What a satisfied coupling row does, by whose trigger it fires, and which.
ROW_EFFECTS: dict[tuple[str, Trigger], RowEffect] = {
    ("parent", Trigger.FORWARD): Group._forward,
    ("parent", Trigger.FAIL): Group._fail_because_of,
    ("companion", Trigger.FAIL): Group._fail_companions,
    ("group", Trigger.CLEAN): Group._clean,
}
bind_effects(ROW_EFFECTS)


def _check_attributes() -> None:
    """Raise ``InvalidDefinition`` if a record lacks what a row names: a guard, or where a deadline counts from."""
    slots = {tables.PARENT: Group.__slots__, tables.COMPANION: Companion.__slots__}
    named = [(kind, row.guard) for kind, rows in tables.ROWS.items() for row in rows]
    for kind, name in (*named, *((row.machine, row.since) for row in tables.DEADLINE_ROWS)):
        if name is not None and name not in slots[kind]:
            raise InvalidDefinition(f"{kind}: its record has no {name!r}", machine=kind)


_check_attributes()
