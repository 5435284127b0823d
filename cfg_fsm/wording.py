"""Sentences for the client and the audit that say why a request failed."""

from __future__ import annotations

from cfg_fsm.group import Companion, Due, Group
from cfg_fsm.states import FailureReason


def name(record: Group | Companion) -> str:
    """How a companion is called in a sentence."""
    return f"companion {record.request_id} (role {record.role})"


def overdue(due: Due) -> str:
    """Which limit ended the parent, and what its bundle lacks."""
    group = due.record.group
    limit = f"{due.row.limit} = {getattr(group.limits, due.row.limit):g} s"
    missing = ", ".join(f"{role} ({request_id})" for role, request_id in group.missing().items())
    parts = [_OVERDUE[due.row.reason].format(limit=limit, name=name(due.record))]
    if missing:
        parts.append(f"no output yet of {missing}")
    if not group.sealed:
        parts.append("the set of companions was never sealed")
    return "; ".join(parts)


_OVERDUE: dict[FailureReason, str] = {
    FailureReason.DEFERRED_DEADLINE: "the bundle was not complete within {limit} of the parent's output",
    FailureReason.TOTAL_DEADLINE: "the request did not end within {limit} of its registration",
    FailureReason.START_DEADLINE: "{name} did not start within {limit} of its registration",
    FailureReason.SILENT: "{name} gave no sign of life for {limit}",
}
