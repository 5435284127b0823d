"""One parent's engine: its record, its companions' records, and the join between them.

A ``Group`` is the parent's record (what the parent machine moves) and owns the companions' records. It fires
triggers, runs the coupling rows to a fixed point, and appends what the host has to do to a list of actions. It
does not know the registry: ids and their release, limits of size, the heap of deadlines and tombstones are
handled there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from cfg_fsm import tables
from cfg_fsm.actions import AbortRequests, Action, FailParent, ForwardParent
from cfg_fsm.audit.record import Journal
from cfg_fsm.events import Limits
from cfg_fsm.machines import MACHINES, SlimEvent
from cfg_fsm.states import FailureReason, MachineKind, Trigger
from cfg_fsm.tables import CouplingRow, DeadlineRow, Quantifier

#: A stage's replica that a request runs on: ``(stage_id, replica_id)``.
Replica = tuple[int, int]


class Companion:
    """A companion's record."""

    __slots__ = ("group", "output", "replica", "request_id", "role", "seen", "since", "state")

    machine = tables.COMPANION.value

    def __init__(self, request_id: str, role: str, group: Group, now: float) -> None:
        self.state = _INITIAL_COMPANION
        self.request_id = request_id
        self.role = role
        self.group = group
        self.output: Any = None
        self.replica: Replica | None = None
        self.since = now
        """When it entered its state, monotonic seconds."""
        self.seen = now
        """When it last gave a sign of life."""

    @property
    def parent_id(self) -> str:
        """Id of the parent it belongs to."""
        return self.group.request_id

    @property
    def life(self) -> int:
        """Life of its group."""
        return self.group.life


class Cause(NamedTuple):
    """Why something fails, while the failure runs through the group."""

    reason: FailureReason
    error: str
    stage_id: int | None = None
    error_type: str | None = None
    status_code: int | None = None
    lost: Replica | None = None
    """The replica that is gone, and with it what ran there."""


class Due(NamedTuple):
    """A deadline: when, whose, and which."""

    when: float
    record: Group | Companion
    row: DeadlineRow


class Group:
    """A parent's record and engine, with its companions' records in role order."""

    __slots__ = (
        "alarm",
        "announced",
        "companions",
        "context",
        "engine_outputs",
        "life",
        "limits",
        "own_limits",
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
        self.state = _INITIAL_PARENT
        self.request_id = request_id
        self.life = life
        self.seq = seq
        self.companions: dict[str, Companion] = {}
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
        self.alarm = _NEVER

    @property
    def group(self) -> Group:
        """Itself, so that a parent and a companion are asked alike."""
        return self

    @property
    def parent_id(self) -> str:
        """Its own id, likewise."""
        return self.request_id

    # -- what the registry asks ---------------------------------------------------------------------------

    def members(self) -> list[Group | Companion]:
        """The parent's record, then the companions' in role order."""
        return [self, *self.companions.values()]

    def request_ids(self) -> list[str]:
        """The parent's id, then the companions' in role order."""
        return [record.request_id for record in self.members()]

    def roles(self) -> dict[str, str]:
        """``{role: companion id}`` in role order, a new dictionary."""
        roles = {}
        for role, companion in self.companions.items():
            roles[role] = companion.request_id
        return roles

    def all_done(self) -> bool:
        """Whether every companion is done."""
        for companion in self.companions.values():  # noqa: SIM110 - a third of the time of all(...)
            if companion.state not in DONE:
                return False
        return True

    def can_finish(self) -> bool:
        """Whether it may finish now with nothing missing."""
        return self.state in _CAN_FINISH and self.all_done()

    def missing(self) -> dict[str, str]:
        """``{role: companion id}`` of the outputs that the bundle lacks, in role order."""
        return {c.role: c.request_id for c in self.companions.values() if c.state not in DONE}

    def bundle(self) -> list[Any]:
        """The companions' outputs in role order, by reference."""
        return [companion.output for companion in self.companions.values()]

    @property
    def ended(self) -> bool:
        """Whether all machines of the group are cleaned."""
        return self.state == _FINAL_PARENT

    def deadlines(self, record: Group | Companion) -> list[Due]:
        """The deadlines that ``record`` has in its state."""
        found: list[Due] = []
        if self.limits is not None:
            for row in _DEADLINES.get((record.machine, record.state), ()):
                limit = getattr(self.limits, row.limit)
                if limit is not None:
                    found.append(Due(getattr(record, row.since) + limit, record, row))
        return found

    def first_due(self) -> Due | None:
        """The earliest deadline of the group. Of equal ones the parent's, in the order of the table, then the
        companions' in role order."""
        every = [due for record in self.members() for due in self.deadlines(record)]
        return min(every, key=lambda due: due.when, default=None)

    def earliest(self) -> float:
        """When the earliest deadline comes; infinity: there is none."""
        due = self.first_due()
        return math.inf if due is None else due.when

    # -- what events do -----------------------------------------------------------------------------------

    def join(self, role: str, companion_id: str, now: float) -> Companion:
        """A new companion in ``role``, after those that are there."""
        companion = self.companions[role] = Companion(companion_id, role, self, now)
        return companion

    def seal(self, now: float, journal: Journal | None, actions: list[Action]) -> None:
        """Close the set of companions."""
        self.sealed = True
        self._settle(_COUPLED[self.sealed][self.state], None, now, journal, actions)

    def start(
        self, record: Group | Companion, replica: Replica | None, now: float, journal: Journal | None
    ) -> None:
        """``record`` runs on ``replica``."""
        _START[record.machine](record, now, journal)
        record.replica = replica
        self.progress(record, now)

    def progress(self, record: Group | Companion, now: float) -> None:
        """``record`` gave a sign of life. Only a companion's counts for a limit."""
        if record is not self:
            record.seen = now  # type: ignore[union-attr]

    def defer(
        self,
        stage_id: int,
        engine_outputs: Any,
        context: Any,
        now: float,
        journal: Journal | None,
        actions: list[Action],
    ) -> None:
        """The parent's own output is here; it replaces one that still waits."""
        source = self.state
        _DEFER(self, now, journal)
        rows = _ENABLED_BY[self.sealed][source][self.state]
        self.stage_id, self.engine_outputs, self.context = stage_id, engine_outputs, context
        if rows:
            self._settle(rows, None, now, journal, actions)

    def complete(
        self, companion: Companion, output: Any, now: float, journal: Journal | None, actions: list[Action]
    ) -> None:
        """The companion's output is here: stored and marked in one step (R6)."""
        _COMPLETE(companion, now, journal)
        companion.output = output
        rows = _COUPLED_BY[self.sealed][companion.state][self.state]
        if rows:
            self._settle(rows, None, now, journal, actions)

    def fail(
        self,
        record: Group | Companion,
        cause: Cause,
        now: float,
        journal: Journal | None,
        actions: list[Action],
    ) -> None:
        """``record`` fails, and with it the group."""
        if isinstance(record, Companion):
            _FAIL[record.machine](record, now, journal, cause.reason)
        else:
            self._fail_parent(None, cause, now, journal, actions)
        self._settle(_COUPLED[self.sealed][self.state], cause, now, journal, actions)

    def hand_over(self, now: float, journal: Journal | None, reason: FailureReason | None = None) -> None:
        """The parent's output goes to the host. ``reason``: why, if not for a complete bundle."""
        _FORWARD(self, now, journal, reason)
        # The host has it now. The companions' outputs stay: a streaming parent is forwarded with them again.
        self.engine_outputs = self.context = None

    def supersede(self, role: str, now: float, journal: Journal | None) -> str:
        """Another companion takes ``role``: the one that has it fails and leaves the group. Its id."""
        companion = self.companions[role]
        if companion.state in _OPEN:
            _FAIL[companion.machine](companion, now, journal, FailureReason.SUPERSEDED)
        _CLEAN_COMPANION(companion, now, journal)
        companion.output = None
        return companion.request_id

    def finish(self, now: float, journal: Journal | None, actions: list[Action] | None) -> None:
        """The downstream stages are over with the parent. ``actions``: ``None`` if nobody is to carry them out."""
        if actions is None:
            actions = []
        else:
            self._abort(self._open(None), actions)
        _FINISH(self, now, journal)
        self._settle(_COUPLED[self.sealed][self.state], None, now, journal, actions)

    # -- the coupling rows --------------------------------------------------------------------------------

    def _settle(
        self,
        rows: tuple[_Coupled, ...],
        cause: Cause | None,
        now: float,
        journal: Journal | None,
        actions: list[Action],
    ) -> None:
        """Run the coupling rows to a fixed point; ``rows`` are those that what just happened may satisfy."""
        while rows:
            for row in rows:
                every, states, effect = row.every, row.companions, row.effect
                found = []
                for companion in self.companions.values():
                    if companion.state in states:
                        found.append(companion)
                    elif every:
                        break
                else:
                    if found or every:
                        effect(self, row, found, cause, now, journal, actions)
                        rows = _COUPLED[self.sealed][self.state]
                        break
            else:
                return

    # The effects of the rows. All have the signature of ``_Effect``.

    def _forward(
        self, _: Any, __: Any, ___: Any, now: float, journal: Journal | None, actions: list[Action]
    ) -> None:
        assert self.stage_id is not None  # set by the defer that every forward follows
        action = ForwardParent(
            self.request_id,
            self.life,
            self.stage_id,
            self.engine_outputs,
            self.roles(),
            self.bundle(),
            self.context,
        )
        self.hand_over(now, journal)
        actions.append(action)

    def _fail_because_of(
        self,
        _: Any,
        found: Sequence[Companion],
        cause: Cause | None,
        now: float,
        journal: Journal | None,
        actions: list[Action],
    ) -> None:
        assert cause is not None  # a companion fails only in a step that has a cause
        self._fail_parent(found[0], cause, now, journal, actions)

    def _fail_companions(
        self, row: _Coupled, found: Sequence[Companion], _: Any, now: float, journal: Journal | None, __: Any
    ) -> None:
        for companion in found:
            _FAIL[companion.machine](companion, now, journal, row.reason)

    def _clean(self, _: Any, __: Any, ___: Any, now: float, journal: Journal | None, ____: Any) -> None:
        _CLEAN_PARENT(self, now, journal)
        for companion in self.companions.values():
            _CLEAN_COMPANION(companion, now, journal)

    def _fail_parent(
        self,
        companion: Companion | None,
        cause: Cause,
        now: float,
        journal: Journal | None,
        actions: list[Action],
    ) -> None:
        """The parent fails: by itself, or because ``companion`` did."""
        reason = cause.reason
        if companion is not None:
            reason = tables.REASON_OF_PARENT.get(reason, reason)
        still_runs = self._open(cause.lost, None if cause.reason in tables.STOPPED_BY else companion)
        if companion is not None or cause.reason not in tables.STOPPED_BY:
            still_runs.insert(0, self.request_id)
        _FAIL[self.machine](self, now, journal, reason)
        self.reason = reason
        if reason is not FailureReason.ABORTED:  # a client that aborted wants no failure
            actions.append(
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
        self._abort(still_runs, actions)

    def _open(self, lost: Replica | None, also: Companion | None = None) -> list[str]:
        """Ids of the companions that may still run: not ended and not on the ``lost`` replica; and ``also``,
        which has failed but was not stopped by what it failed for."""
        ids = []
        for companion in self.companions.values():
            if companion is also or (companion.state in _OPEN and (lost is None or companion.replica != lost)):
                ids.append(companion.request_id)
        return ids

    @staticmethod
    def _abort(request_ids: list[str], actions: list[Action]) -> None:
        if request_ids:
            actions.append(AbortRequests(request_ids))


# ---------------------------------------------------------------------------
# The tables, resolved once: plain strings and sets in place of enumeration members, rows by what satisfies them
# ---------------------------------------------------------------------------


def _plain(states: Iterable[str]) -> frozenset[str]:
    return frozenset(str.__str__(state) for state in states)


def _fires(kind: MachineKind, trigger: Trigger) -> Callable[..., bool]:
    event = MACHINES[kind].events[trigger.value]
    assert isinstance(event, SlimEvent)
    return event.trigger


def _by_machine(trigger: Trigger) -> dict[str, Callable[..., bool]]:
    return {kind.value: _fires(kind, trigger) for kind in MachineKind}


_START, _FAIL = _by_machine(Trigger.START), _by_machine(Trigger.FAIL)
_DEFER, _FORWARD, _FINISH = (
    _fires(tables.PARENT, trigger) for trigger in (Trigger.DEFER, Trigger.FORWARD, Trigger.FINISH)
)
_CLEAN_PARENT, _CLEAN_COMPANION = (_fires(kind, Trigger.CLEAN) for kind in (tables.PARENT, tables.COMPANION))
_COMPLETE = _fires(tables.COMPANION, Trigger.COMPLETE)

_INITIAL_PARENT, _INITIAL_COMPANION = (
    str.__str__(tables.INITIAL[kind]) for kind in (tables.PARENT, tables.COMPANION)
)
_NEVER = math.inf
_FINAL_PARENT = str.__str__(tables.FINAL[tables.PARENT])
_OPEN = _plain(tables.OPEN_COMPANION)


class _Coupled:
    """A coupling row, resolved."""

    __slots__ = ("companions", "effect", "every", "parent", "reason", "sealed")

    def __init__(self, row: CouplingRow) -> None:
        self.parent = _plain(row.parent)
        self.sealed = row.sealed
        self.every = row.quantifier is Quantifier.EVERY
        self.companions = _plain(row.companions)
        self.reason = row.reason
        self.effect: _Effect = _EFFECTS[row.fires, row.trigger]


_Effect: TypeAlias = Callable[
    [Group, _Coupled, Sequence[Companion], "Cause | None", float, "Journal | None", list[Action]], None
]
_EFFECTS: dict[tuple[str, Trigger], _Effect] = {
    ("parent", Trigger.FORWARD): Group._forward,
    ("parent", Trigger.FAIL): Group._fail_because_of,
    ("companion", Trigger.FAIL): Group._fail_companions,
    ("group", Trigger.CLEAN): Group._clean,
}
_ROWS = tuple(_Coupled(row) for row in tables.COUPLING_ROWS)
_Rows: TypeAlias = tuple[_Coupled, ...]
_PARENT_STATES, _COMPANION_STATES = (_plain(tables.STATES[kind]) for kind in (tables.PARENT, tables.COMPANION))

#: Coupling rows by whether the group is sealed and by the parent's state. Every row names some of the parent's
#: states, so no other row can be satisfied.
_COUPLED: dict[bool, dict[str, _Rows]] = {
    sealed: {
        state: tuple(row for row in _ROWS if state in row.parent and (sealed or not row.sealed))
        for state in _PARENT_STATES
    }
    for sealed in (False, True)
}
#: Those of them that the parent may satisfy by a move: by the state it left, then by the one it entered. A row
#: that names both is none of them: it would have been satisfied before, and between two events none is.
_ENABLED_BY: dict[bool, dict[str, dict[str, _Rows]]] = {
    sealed: {
        source: {dest: tuple(row for row in rows if source not in row.parent) for dest, rows in coupled.items()}
        for source in _PARENT_STATES
    }
    for sealed, coupled in _COUPLED.items()
}
#: Those of them that a companion may satisfy by entering a state: by its state, then by the parent's.
_COUPLED_BY: dict[bool, dict[str, dict[str, _Rows]]] = {
    sealed: {
        state: {parent: tuple(row for row in rows if state in row.companions) for parent, rows in coupled.items()}
        for state in _COMPANION_STATES
    }
    for sealed, coupled in _COUPLED.items()
}
#: States of a parent from which it can be forwarded.
WAITING = _plain(row.source for row in tables.PARENT_ROWS if row.trigger is Trigger.FORWARD)
#: States of a parent from which it can finish.
_CAN_FINISH = _plain(row.source for row in tables.PARENT_ROWS if row.trigger is Trigger.FINISH)
#: States of a companion whose output is in the bundle.
DONE = frozenset().union(
    *(_plain(row.companions) for row in tables.COUPLING_ROWS if row.trigger is Trigger.FORWARD)
)

_DEADLINES: dict[tuple[str, str], tuple[DeadlineRow, ...]] = {
    (kind.value, state): tuple(row for row in tables.DEADLINE_ROWS if row.machine is kind and state in row.states)
    for kind in MachineKind
    for state in (str.__str__(state) for state in tables.STATES[kind])
}
