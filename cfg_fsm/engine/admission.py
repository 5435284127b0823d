"""Admission (R9): which registrations are let in. It only looks; what it refuses has changed nothing."""

from __future__ import annotations

from typing import TypeAlias

from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.ledger import Ledger
from cfg_fsm.events import CompanionRegistered, ParentRegistered
from cfg_fsm.limits import Limits
from cfg_fsm.states import RejectedReason

Registration: TypeAlias = ParentRegistered | CompanionRegistered


def why_not(ledger: Ledger, event: Registration) -> RejectedReason | None:
    """Why a registration must not be obeyed; ``None``: it may be. A companion's parent must be live."""
    if type(event) is ParentRegistered:  # isinstance asks the models' metaclass, which takes its time
        return _why_no_parent(ledger, event)
    return _why_no_companion(ledger, event, ledger.requests[event.parent_id].group)  # type: ignore[arg-type]


def _why_no_parent(ledger: Ledger, event: ParentRegistered) -> RejectedReason | None:
    ids = [event.parent_id]
    if event.companions:
        ids += event.companions.values()
        if len(set(ids)) < len(ids):
            return RejectedReason.DUPLICATE_ID
    remembered = event.parent_id in ledger.tombstones.by_id
    if event.life is not None and remembered and event.life <= ledger.tombstones.last_life(event.parent_id):
        return RejectedReason.LIFE_NOT_GREATER
    return _why_no_ids(ledger, ids, len(ids) - 1, event.life, event.limits)


def _why_no_companion(ledger: Ledger, event: CompanionRegistered, group: Group) -> RejectedReason | None:
    if group.sealed:
        return RejectedReason.SEALED
    if group.in_role(event.role) is not None:
        return RejectedReason.ROLE_IN_USE
    return _why_no_ids(ledger, [event.companion_id], len(group.companions) + 1, event.life, group.own_limits)


def _why_no_ids(
    ledger: Ledger, ids: list[str], companions: int, life: int | None, own: Limits | None
) -> RejectedReason | None:
    """``ids`` would join, and their group, with limits of its ``own``, would then have so many ``companions``."""
    requests = ledger.requests
    for request_id in ids:
        if request_id in requests:
            return RejectedReason.ID_IN_USE
    most = ledger.limits.with_overrides(own).max_companions_per_parent
    if most is not None and companions > most:
        return RejectedReason.TOO_MANY_COMPANIONS
    most = ledger.limits.max_requests
    if most is not None and len(requests) + len(ids) > most:
        return RejectedReason.REGISTRY_FULL
    waiting, told = ledger.waiting.by_id, ledger.tombstones.told
    if waiting or told:
        for request_id in ids:
            if request_id in waiting or (life is None and ledger.tombstones.may_report(request_id)):
                return RejectedReason.MAY_STILL_REPORT
    return None


def is_same_registration(ledger: Ledger, group: Group, event: ParentRegistered) -> bool:
    """Whether the event is the registration that made the group, delivered again."""
    announced = list(group.roles().items()) if group.announced else None
    return (
        announced == (None if event.companions is None else list(event.companions.items()))
        and group.streaming == event.streaming
        and ledger.limits.with_overrides(group.own_limits) == ledger.limits.with_overrides(event.limits)
        and event.life in (None, group.life)
    )


def is_known_pair(_: Ledger, record: Group | Companion, event: CompanionRegistered) -> bool:
    """Whether the companion is announced or registered in that role already."""
    known = record.group.in_role(event.role)
    return known is not None and known.request_id == event.companion_id
