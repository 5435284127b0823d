"""Short forms for tests of the drop-in tracker."""

from __future__ import annotations

from typing import Any

from real_tracker import Clock

from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.engine.views import RequestView
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker

LOGGER = "cfg_fsm"


def guided(tracker: Any, parent: str = "p", roles: tuple[str, ...] = ("neg", "img")) -> Any:
    """Register a parent with companions ``p-neg``, ``p-img``; the tracker."""
    for role in roles:
        tracker.register_companion(parent, role, f"{parent}-{role}")
    return tracker


def complete(tracker: Any, *companions: str) -> list[str | None]:
    """Each companion's output comes; what that returned."""
    returned = []
    for companion in companions:
        tracker.set_companion_output(companion, f"output of {companion}")
        returned.append(tracker.on_companion_completed(companion))
    return returned


def live(tracker: CfgCompanionTracker) -> list[str]:
    return [view.request_id for view in tracker.requests()]


def shown(tracker: CfgCompanionTracker, request_id: str) -> RequestView:
    return next(view for view in tracker.requests() if view.request_id == request_id)


def with_limit(
    limit_s: float | None = 10.0, now: float = 0.0, **arguments: Any
) -> tuple[CfgCompanionTracker, Clock]:
    clock = Clock(now)
    return CfgCompanionTracker(clock=clock, deferred_limit_s=limit_s, **arguments), clock


def expired(tracker: CfgCompanionTracker, *arguments: float | None) -> list[str]:
    return [parent for parent, _ in tracker.pop_expired_parents(*arguments)]


def audited(**arguments: Any) -> tuple[CfgCompanionTracker, Clock, list[AuditRecord]]:
    records: list[AuditRecord] = []
    clock = Clock()
    return CfgCompanionTracker(clock=clock, observers=[records.append], **arguments), clock, records


def moves(records: list[AuditRecord], request_id: str) -> list[tuple[str | None, ...]]:
    """``(event, kind or trigger, state after it, reason)`` of a request."""
    return [(r.event, r.trigger or r.kind, r.dest, r.reason) for r in records if r.request_id == request_id]
