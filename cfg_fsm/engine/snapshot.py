"""What a registry holds, as plain data: for tests, for the rules, for whoever wants to look inside.

A snapshot is complete (every field of every record) and changes nothing.
Times are monotonic seconds of the events' clock. Payloads are not held. In their place stands their identity,
``id(payload)``, or ``None`` where there is none; it means something as long as somebody else holds the payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from cfg_fsm import tables
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.ledger import Ledger
from cfg_fsm.engine.views import waits_until
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


class DeadlineSnapshot(NamedTuple):
    """A deadline that is set."""

    when: float
    seq: int
    """Of the group."""
    request_id: str
    limit: str
    """Name of the limit."""


class ToldSnapshot(NamedTuple):
    """A request that has ended, was told to abort, and has not reported its end since."""

    parent_id: str
    life: int
    since: float
    """When it was last told."""
    replica: tuple[int, int] | None
    """Where it was last heard of."""
    waits_until: float | None
    """When it is released without a report; ``None``: its release does not wait."""


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
    deadlines: tuple[DeadlineSnapshot, ...]
    """Every deadline that is set, the earliest first."""
    told: Mapping[str, ToldSnapshot]
    """Requests that were told to abort and have not reported, by id."""
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
                stones.may_report(request_id),
            )
            for request_id, stone in stones.by_id.items()
        },
        parent_lives=dict(stones._parent_lives),
        deadlines=tuple(
            sorted(
                DeadlineSnapshot(when, record.group.seq, record.request_id, limit)
                for record, limit, when in ledger.deadlines.each()
            )
        ),
        told={
            request_id: ToldSnapshot(
                told.parent_id, told.life, told.since, told.replica, waits_until(ledger, told)
            )
            for request_id, told in ledger.unconfirmed().items()
        },
        next_deadline=ledger.next_deadline(),
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
