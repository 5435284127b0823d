"""The door (R9): which registrations are let in. It only looks; what it refuses has changed nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from cfg_fsm.events import CompanionRegistered, LifeEvent, Limits, ParentRegistered
from cfg_fsm.group import Companion, Group
from cfg_fsm.states import RejectedReason
from cfg_fsm.tombstones import Tombstones

Registration: TypeAlias = ParentRegistered | CompanionRegistered


class Door:
    """Asks the live requests, the tombstones and the limits."""

    __slots__ = ("_limits", "_requests", "_tombstones")

    def __init__(self, requests: Mapping[str, Group | Companion], tombstones: Tombstones, limits: Limits) -> None:
        self._requests = requests
        self._tombstones = tombstones
        self._limits = limits

    def why_not(self, event: Registration) -> RejectedReason | None:
        """Why a registration must not be obeyed; ``None``: it may be. A companion's parent must be live."""
        if isinstance(event, ParentRegistered):
            return self._why_no_parent(event)
        return self._why_no_companion(event, self._requests[event.parent_id].group)

    def _why_no_parent(self, event: ParentRegistered) -> RejectedReason | None:
        ids = [event.parent_id, *(event.companions or {}).values()]
        if len(set(ids)) < len(ids):
            return RejectedReason.DUPLICATE_ID
        last = self._tombstones.get(event.parent_id)
        if event.life is not None and last is not None and event.life <= last.life:
            return RejectedReason.LIFE_NOT_GREATER
        return self._why_no_ids(ids, len(ids) - 1, event, self._limits.with_overrides(event.limits))

    def _why_no_companion(self, event: CompanionRegistered, group: Group) -> RejectedReason | None:
        if group.sealed:
            return RejectedReason.SEALED
        if event.role in group.companions:
            return RejectedReason.ROLE_IN_USE
        limits = self._limits.with_overrides(group.own_limits)
        return self._why_no_ids([event.companion_id], len(group.companions) + 1, event, limits)

    def _why_no_ids(
        self, ids: list[str], companions: int, event: LifeEvent, limits: Limits
    ) -> RejectedReason | None:
        """``ids`` would join, and their group would then have so many ``companions``."""
        for request_id in ids:
            if request_id in self._requests:
                return RejectedReason.ID_IN_USE
        most = limits.max_companions_per_parent
        if most is not None and companions > most:
            return RejectedReason.TOO_MANY_COMPANIONS
        most = limits.max_requests
        if most is not None and len(self._requests) + len(ids) > most:
            return RejectedReason.REGISTRY_FULL
        if event.life is None:
            for request_id in ids:
                if self._tombstones.may_report(request_id):
                    return RejectedReason.MAY_STILL_REPORT
        return None


def is_same_registration(group: Group, event: ParentRegistered) -> bool:
    """Whether the event is the registration that made the group, delivered again."""
    announced = None
    if group.announced:
        announced = [(companion.role, companion.request_id) for companion in group.companions.values()]
    return (
        announced == (None if event.companions is None else list(event.companions.items()))
        and group.streaming == event.streaming
        and group.own_limits == event.limits
        and event.life in (None, group.life)
    )


def is_known_pair(group: Group, event: CompanionRegistered) -> bool:
    """Whether the companion is announced or registered in that role already."""
    known = group.companions.get(event.role)
    return known is not None and known.request_id == event.companion_id
