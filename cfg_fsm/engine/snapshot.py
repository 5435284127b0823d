"""What a registry holds, as plain data: for tests, for the rules, for whoever wants to look inside.

A snapshot is complete (every field of every record) and changes nothing: not even the heap of deadlines is tidied.
Times are monotonic seconds of the events' clock. Payloads are not held. In their place stands their identity,
``id(payload)``, or ``None`` where there is none; it means something as long as somebody else holds the payload.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, cast

from cfg_fsm import tables
from cfg_fsm.engine.deadlines import Deadlines
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.ledger import Ledger
from cfg_fsm.limits import Limits
from cfg_fsm.states import FailureReason


class ParentSnapshot(NamedTuple):
    """A live parent, and what is known of its group."""

    request_id: str
    state: str
    life: int
    seq: int
    """Number of its registration, from 1; no two have the same, so it names the group."""
    companions: tuple[tuple[str, str], ...]
    """``(role, id)``, in role order."""
    announced: bool
    """Whether the registration named the companions."""
    sealed: bool
    streaming: bool
    own_limits: Limits | None
    """Those that came with the registration."""
    limits: Limits | None
    """Those in force if one of them bounds time, else ``None``."""
    replica: tuple[int, int] | None
    """``(stage_id, replica_id)``."""
    registered_at: float
    since: float
    """When it entered its state; while deferred, when the wait began."""
    stage_id: int | None
    """Of its last output."""
    engine_outputs: int | None
    """Identity of the output that waits for its forward."""
    context: int | None
    """Likewise."""
    reason: FailureReason | None
    """Why it failed."""

    @property
    def machine(self) -> str:
        """``parent``."""
        return tables.PARENT.value

    @property
    def parent_id(self) -> str:
        """Its own id, so that a parent and a companion are asked alike."""
        return self.request_id


class CompanionSnapshot(NamedTuple):
    """A live companion."""

    request_id: str
    state: str
    life: int
    seq: int
    """Of its group."""
    parent_id: str
    role: str
    replica: tuple[int, int] | None
    """``(stage_id, replica_id)``."""
    since: float
    """When it entered its state."""
    seen: float
    """When it last gave a sign of life."""
    output: int | None
    """Identity of its output."""

    @property
    def machine(self) -> str:
        """``companion``."""
        return tables.COMPANION.value


RequestSnapshot: TypeAlias = ParentSnapshot | CompanionSnapshot


class TombstoneSnapshot(NamedTuple):
    """What is remembered of an id that has ended."""

    parent_id: str
    life: int
    ended_at: float
    may_report: bool
    """Whether this id was told to abort and has not reported its end since."""
    unheard: frozenset[str]
    """The ids of its group of which that is so."""


class AlarmSnapshot(NamedTuple):
    """A group that the heap of deadlines knows."""

    parent_id: str
    seq: int
    at: float
    """When the heap will look at it."""
    due: float | None
    """Its earliest deadline, which never comes before ``at``; ``None``: it has none any more."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A registry between two steps. Two of them are equal if it held the same both times."""

    now: float
    limits: Limits
    """Those that the registry was made with."""
    requests: Mapping[str, RequestSnapshot]
    """Each live request by its id, in the order in which they came to live."""
    tombstones: Mapping[str, TombstoneSnapshot]
    """Each ended id that is remembered, the oldest first."""
    parent_lives: Mapping[str, int]
    """Last lives of ids that were parents and have been companions since."""
    alarms: tuple[AlarmSnapshot, ...]
    """The armed deadlines, one for each group that has any, in the order of time, then registration."""
    next_deadline: float | None
    """As ``Registry.next_deadline`` would say."""
    counters: Mapping[str, Any]
    """As ``Registry.counters`` says."""


def take_snapshot(ledger: Ledger) -> Snapshot:
    """What the ledger holds. Whatever it will hold beside this belongs here as well."""
    stones = ledger.tombstones
    return Snapshot(
        now=ledger.step.now,
        limits=ledger.limits,
        requests={request_id: _request(record) for request_id, record in ledger.requests.items()},
        tombstones={
            request_id: TombstoneSnapshot(
                stone.parent_id,
                stone.life,
                stone.ended_at,
                stone.unheard is not None and request_id in stone.unheard,
                stone.unheard or frozenset(),
            )
            for request_id, stone in stones.by_id.items()
        },
        parent_lives=dict(stones._parent_lives),
        alarms=_alarms(ledger.deadlines),
        next_deadline=_next(ledger.deadlines),
        counters=ledger.counters(),
    )


def _request(record: Group | Companion) -> RequestSnapshot:
    if isinstance(record, Group):
        return ParentSnapshot(
            record.request_id, record.state, record.life, record.seq,
            tuple([(companion.role, companion.request_id) for companion in record.companions]),
            record.announced, record.sealed, record.streaming, record.own_limits, record.limits, record.replica,
            record.registered_at, record.since, record.stage_id, _identity(record.engine_outputs),
            _identity(record.context), record.reason,
        )  # fmt: skip
    return CompanionSnapshot(
        record.request_id, record.state, record.life, record.group.seq, record.parent_id, record.role,
        record.replica, record.since, record.seen, _identity(record.output),
    )  # fmt: skip


def _identity(payload: Any) -> int | None:
    return None if payload is None else id(payload)


class _Alarm:
    """Stands for a group in a copy of the heap, so that what the heap notes of it is noted here."""

    __slots__ = ("alarm", "earliest", "seq")

    def __init__(self, group: Group) -> None:
        self.seq, self.alarm, self.earliest = group.seq, group.alarm, group.earliest


def _next(deadlines: Deadlines[Group]) -> float | None:
    """What the heap would say. To ask it tidies it, so a copy is asked."""
    if not deadlines:
        return None
    copy = cast(Deadlines[Any], deadlines).copy({seq: _Alarm(group) for seq, group in deadlines._armed.items()})
    return cast("Deadlines[_Alarm]", copy).next()


def _alarms(deadlines: Deadlines[Group]) -> tuple[AlarmSnapshot, ...]:
    found = []
    for group in deadlines._armed.values():
        due = group.earliest()
        found.append(AlarmSnapshot(group.request_id, group.seq, group.alarm, None if due == math.inf else due))
    return tuple(sorted(found, key=lambda alarm: (alarm.at, alarm.seq)))
