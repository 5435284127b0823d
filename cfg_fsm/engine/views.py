"""What a person wants to know of the live requests; no payloads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from cfg_fsm.engine.confirmations import Told
from cfg_fsm.engine.group import Group
from cfg_fsm.engine.ledger import Ledger


class Unconfirmed(NamedTuple):
    """A request that was told to abort and has not reported its end."""

    request_id: str
    parent_id: str
    life: int
    since: float
    """When it was last told, monotonic seconds."""
    replica: tuple[int, int] | None
    """``(stage_id, replica_id)`` where it was last heard of."""
    waits_until: float | None
    """When it is released without a report, monotonic seconds; ``None``: it is released already."""


@dataclass(frozen=True, slots=True)
class RequestView:
    """One live request, parent or companion."""

    request_id: str
    machine: str
    """``parent`` or ``companion``."""
    parent_id: str
    role: str | None
    """``None`` for a parent."""
    life: int
    state: str
    age_s: float
    """Seconds in this state."""
    missing: dict[str, str]
    """Of a parent: ``{role: companion id}`` of the outputs that its bundle lacks."""
    sealed: bool
    """Whether the group's set of companions is closed."""
    replica: tuple[int, int] | None
    """``(stage_id, replica_id)`` that it was last bound to."""
    deadline: float | None
    """Its own earliest deadline, monotonic seconds."""

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


def view(groups: Iterable[Group], now: float) -> list[RequestView]:
    """A row for each request of the groups: a parent, then its companions in role order."""
    return [
        RequestView(
            request_id=record.request_id,
            machine=record.machine,
            parent_id=group.request_id,
            role=record.role,
            life=group.life,
            state=record.state,
            age_s=now - record.since,
            missing=group.missing() if record is group else {},
            sealed=group.sealed,
            replica=record.replica,
            deadline=min((due.when for due in group.deadlines(record)), default=None),
        )
        for group in groups
        for record in group.members()
    ]


def waits_until(ledger: Ledger, told: Told) -> float | None:
    """When a request that was told to abort is released without a report; ``None``: its release does not wait."""
    waiting = ledger.waiting.by_id.get(told.request_id)
    return None if waiting is None else waiting.deadline
