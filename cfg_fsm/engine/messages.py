"""Sentences for the client and the audit that say why a request failed."""

from __future__ import annotations

from cfg_fsm import tables
from cfg_fsm.engine.group import Companion, Due, Group
from cfg_fsm.engine.step import Replica
from cfg_fsm.errors import InvalidDefinition
from cfg_fsm.states import FailureReason


def name(record: Group | Companion) -> str:
    """How a companion is called in a sentence."""
    return f"companion {record.request_id} (role {record.role})"


def failed(record: Group | Companion, error: str) -> str:
    """It reported ``error``."""
    error = error or "no reason was given"
    return error if record is record.group else f"{name(record)} failed: {error}"


def bad_finish(record: Companion, finish_reason: str) -> str:
    """Its finish reason is a failure."""
    return f"{name(record)} ended with finish reason {finish_reason}"


def aborted(record: Group | Companion) -> str:
    """The client ended it."""
    if record is record.group:
        return "the client aborted the request"
    return f"{name(record)} was aborted before its output came"


def replica_lost(record: Group | Companion, lost: Replica, error: str) -> str:
    """It ran on the replica that was lost."""
    what = f"replica {lost[1]} of stage {lost[0]}"
    why = f": {error}" if error else ""
    if record is record.group:
        return f"{what} was lost{why}"
    return f"{name(record)} ran on {what}, which was lost{why}"


def forward_rejected(error: str) -> str:
    """The host could not carry out the forward."""
    return f"the bundle could not be handed to the next stage: {error}"


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

for _row in tables.DEADLINE_ROWS:
    if _row.reason not in _OVERDUE:
        raise InvalidDefinition(f"{_row.limit}: there is no sentence for {_row.reason!s}", machine=_row.machine)
