"""What events do: one effect for each event and trigger that a cell of the tables names.

A cell of ``tables.CLASSIFICATION`` that moves or stays brings the effect of its event and its trigger; ``routes``
looks it up at import, and refuses a cell without an effect as well as an effect without a cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from cfg_fsm import events as ev
from cfg_fsm import tables
from cfg_fsm.engine import admission, messages
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.ledger import Ledger, Record
from cfg_fsm.engine.step import Cause
from cfg_fsm.states import FailureReason, Trigger

#: Ledger, the live request's record (``None``: the event makes it), event. Returns the life that the answer names.
Effect: TypeAlias = Callable[[Ledger, Any, Any], int]

#: By type of the event, and by the trigger that its cell names; ``None``: it names none.
EFFECTS: dict[tuple[str, Trigger | None], Effect] = {}


def _effect(event: str, trigger: Trigger | None = None) -> Callable[[Effect], Effect]:
    def note(function: Effect) -> Effect:
        EFFECTS[event, trigger] = function
        return function

    return note


@_effect("parent_registered")
def _register(ledger: Ledger, made: Group | None, event: ev.ParentRegistered) -> int:
    # Nobody lives under that id, but the group that was made for it before the step was broken off.
    group = made or ledger.open(
        event.parent_id, event.life, event.companions is not None, event.streaming, event.limits
    )
    if event.companions and not group.companions:
        group.announce(event.companions, ledger.step.now)
    ledger.admit(group, *group.companions)
    return group.life


@_effect("companion_registered")
def _join(ledger: Ledger, record: Record, event: ev.CompanionRegistered) -> int:
    group, step = record.group, ledger.step
    joined = group.in_role(event.role) if step.resumed else None
    ledger.admit(joined or group.join(event.role, event.companion_id, step.now))
    return record.life


@_effect("companions_sealed")
def _seal(ledger: Ledger, record: Record, _: ev.CompanionsSealed) -> int:
    record.group.seal(ledger.step)
    if ledger.step.actions:
        ledger.conclude(record.group)
    return record.life


@_effect("request_started", Trigger.START)
def _start(ledger: Ledger, record: Record, event: ev.RequestStarted) -> int:
    group = record.group
    group.start(record, event.replica, ledger.step)
    if group.limits is not None:
        ledger.deadlines.update(record)
    return group.life


@_effect("request_progressed")
@_effect("kv_ready")
def _progress(ledger: Ledger, record: Record, _: ev.RequestProgressed | ev.KvReady) -> int:
    record.group.progress(record, ledger.step)
    if record.group.limits is not None:
        ledger.deadlines.update(record)
    return record.life


@_effect("parent_output_ready", Trigger.DEFER)
def _defer(ledger: Ledger, record: Record, event: ev.ParentOutputReady) -> int:
    group = record.group
    if group.engine_outputs is not None or group.context is not None:
        ledger.dropped.append((group.engine_outputs, group.context))
    group.defer(event.stage_id, event.engine_outputs, event.context, ledger.step)
    if ledger.step.actions:
        ledger.conclude(group)
    elif group.limits is not None:
        ledger.deadlines.update(group)
    return group.life


@_effect("companion_output_ready", Trigger.COMPLETE)
def _complete(ledger: Ledger, record: Companion, event: ev.CompanionOutputReady) -> int:
    group = record.group
    group.complete(record, event.output, ledger.step)
    if group.limits is not None:
        ledger.deadlines.update(record)
    if ledger.step.actions:
        ledger.conclude(group)
    return group.life


@_effect("parent_finished", Trigger.FINISH)
def _finish(ledger: Ledger, record: Record, _: ev.ParentFinished) -> int:
    group = record.group
    if group.ended:  # the step was broken off thereafter
        group.clean(ledger.step)
    else:
        group.finish(ledger.step)
    ledger.conclude(group)
    return group.life


@_effect("clock_ticked")
def _let_time_pass(_: Ledger, record: Record, __: ev.ClockTicked) -> int:
    """The record's deadline has not come, or it has none: the cell of whoever is not due."""
    return record.life


# ---------------------------------------------------------------------------
# Failures: every event that may bring one says why
# ---------------------------------------------------------------------------


def _fails(event: str) -> Callable[[Callable[[Any, Any], Cause]], Callable[[Any, Any], Cause]]:
    """The function says why a record fails for an event of this type."""

    def note(cause_of: Callable[[Any, Any], Cause]) -> Callable[[Any, Any], Cause]:
        def fail(ledger: Ledger, record: Record, event: Any) -> int:
            group = record.group
            step = ledger.step
            if group.ended:  # the step was broken off thereafter
                group.clean(step)
            else:
                group.fail(record, step.cause or cause_of(record, event), step)
            ledger.conclude(group)
            if group.limits is not None and not group.ended:  # tables that let a group outlive a failure
                for member in group.members():
                    ledger.deadlines.update(member)
            return group.life

        EFFECTS[event, Trigger.FAIL] = fail
        return cause_of

    return note


@_fails("request_failed")
def _reported(record: Record, event: ev.RequestFailed) -> Cause:
    error = messages.failed(record, event.error)
    return Cause(FailureReason.ERROR, error, (record,), event.stage_id, event.error_type, event.status_code)


@_fails("companion_output_ready")
def _ended_badly(record: Companion, event: ev.CompanionOutputReady) -> Cause:
    reason = tables.FAILED_FINISH[event.finish_reason]
    return Cause(reason, messages.bad_finish(record, event.finish_reason), (record,))


@_fails("forward_rejected")
def _not_forwarded(_: Record, event: ev.ForwardRejected) -> Cause:
    return Cause(FailureReason.FORWARD_REJECTED, messages.forward_rejected(event.error))


@_fails("requests_aborted")
def _aborted(record: Record, _: ev.RequestsAborted) -> Cause:
    return Cause(FailureReason.ABORTED, messages.aborted(record))


@_fails("replica_lost")
def _lost(record: Record, event: ev.ReplicaLost) -> Cause:
    replica = (event.stage_id, event.replica_id)
    gone = (record, *(companion for companion in record.group.companions if companion.replica == replica))
    return Cause(
        FailureReason.REPLICA_LOST, messages.replica_lost(record, replica, event.error), gone, event.stage_id
    )


@_fails("clock_ticked")
def _overdue(record: Record, _: ev.ClockTicked) -> Cause:
    due = record.group.first_due()
    assert due is not None  # the guard of the cell
    return Cause(due.row.reason, messages.overdue(due), status_code=tables.DEADLINE_STATUS)


# ---------------------------------------------------------------------------
# Guards
# ---------------------------------------------------------------------------

Guard: TypeAlias = Callable[[Ledger, Any, Any], bool]

#: The guards that ``tables.GUARDS`` names.
GUARDS: dict[str, Guard] = {}
#: Types of the events that each of them can be asked about.
GUARDED: dict[str, tuple[str, ...]] = {}
#: Those that need no record of a live request.
FOR_ANYBODY = ("admissible",)


def _guard(name: str, *events: str) -> Callable[[Guard], Guard]:
    def note(guard: Guard) -> Guard:
        GUARDS[name], GUARDED[name] = guard, events
        return guard

    return note


@_guard("admissible", "parent_registered")
@_guard("joins", "companion_registered")
def _is_admissible(ledger: Ledger, _: Any, event: Any) -> bool:
    return admission.why_not(ledger, event) is None


@_guard("unsealed", "companion_registered", "companions_sealed")
def _is_unsealed(_: Ledger, record: Any, __: Any) -> bool:
    return not record.group.sealed


@_guard("streaming", "parent_output_ready")
def _is_streaming(_: Ledger, record: Any, __: Any) -> bool:
    return bool(record.group.streaming)


@_guard("failed_finish", "companion_output_ready")
def _has_failed_finish(_: Ledger, __: Any, event: Any) -> bool:
    return event.finish_reason in tables.FAILED_FINISH


@_guard("bound", "replica_lost")
def _is_bound(_: Ledger, record: Any, event: Any) -> bool:
    return bool(record.replica == (event.stage_id, event.replica_id))


@_guard("due", "clock_ticked")
def _is_due(ledger: Ledger, record: Any, _: Any) -> bool:
    due = record.group.first_due()
    return due is not None and due.record is record and due.when <= ledger.step.now


_guard("same_registration", "parent_registered")(admission.is_same_registration)
_guard("known_pair", "companion_registered")(admission.is_known_pair)
