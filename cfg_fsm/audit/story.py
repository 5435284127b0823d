"""The sentences in which the life of a group is told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cfg_fsm import tables
from cfg_fsm.audit.lives import SIGNS_OF_LIFE, Life, Logged, Member
from cfg_fsm.lines import printable
from cfg_fsm.states import CompanionState, FailureReason, ParentState, Trigger

_WIDTH = 120
"""Lines are broken so that they are not longer, where that is possible."""
_BROAD = 60
"""The column of names is not made wider for names that are longer."""
_LEAST = 40
"""What is left for words after names that are very long."""

# -- a step ---------------------------------------------------------------------------------------------------


def fact(life: Life, body: dict[str, Any]) -> str:
    """What happened, without its subject. ``body``: the event."""
    kind = body["type"]
    where = f" on replica {body['replica_id']}" if body.get("replica_id") is not None else ""
    stage = f" of stage {body['stage_id']}" if body.get("stage_id") is not None else ""
    error = printable(str(body.get("error", "")))
    match kind:
        case "parent_registered":
            return _registration(body)
        case "companion_registered":
            return f"was registered in role {printable(body['role'])}"
        case "companions_sealed":
            return "has its set of companions sealed"
        case "request_started":
            return f"started{where}{stage if where else ''}"
        case "parent_output_ready":
            return f"has its own output{stage}" + (" (a segment)" if body.get("segment") else "")
        case "companion_output_ready":
            if body["finish_reason"] in tables.FAILED_FINISH:
                return f"ended with finish reason {body['finish_reason']}"
            plain = body["finish_reason"] == "stop"
            return "has its output" + ("" if plain else f" (finish reason {body['finish_reason']})")
        case "request_failed":
            return "reported a failure" + (error and f": {error}")
        case "requests_aborted":
            return f"aborted {life.names(life.own(body['request_ids']))}"
        case "replica_lost":
            return f"replica {body['replica_id']} of stage {body['stage_id']} was lost" + (error and f": {error}")
        case "forward_rejected":
            return "could not be handed to the next stage" + (error and f": {error}")
        case "parent_finished":
            return "is finished downstream"
        case "clock_ticked":
            return "a deadline came"
    return SIGNS_OF_LIFE.get(kind, printable(str(kind)))


def _registration(body: dict[str, Any]) -> str:
    if body.get("companions") is None:
        what = "was registered, companions not named yet"
    elif body["companions"]:
        what = "was registered with " + ", ".join(printable(role) for role in body["companions"])
    else:
        what = "was registered without companions"
    if body.get("streaming"):
        what += ", streaming"
    limits = [f"{name}={value:g}" for name, value in (body.get("limits") or {}).items() if value is not None]
    if limits:
        what += f", limits {', '.join(limits)}"
    return what


def consequences(life: Life, records: list[Logged]) -> tuple[list[str], str]:
    """What came of it: refusals and moves; and what the host was told. ``life`` has learned the ``records``."""
    orders = [
        order for record in records if record.kind == "action" and (order := _order(life, record.event)) != ""
    ]
    return list(_moves(life, records)), f"told the host to: {'; '.join(orders)}" if orders else ""


def _moves(life: Life, records: list[Logged]) -> Iterator[str]:
    ended: list[str] = []
    for record in records:
        if record.kind in ("ignored", "rejected"):
            yield f"{record.kind} ({record.reason})"
        elif record.kind == "transition":
            if record.trigger == Trigger.DEFER and life.parent.state == ParentState.DEFERRED:
                lacks = life.awaited()
                yield f"deferred, waiting for {lacks}" if lacks else "deferred"
                if life.sealed is False:
                    yield "the set of companions is not sealed"
            elif record.trigger == Trigger.FORWARD:
                back = f"handed back ({record.reason}){_without(life)}"
                yield "the bundle is complete" if record.reason is None else back
            elif record.trigger == Trigger.FAIL and record.reason == FailureReason.SUPERSEDED:
                yield f"{printable(record.request_id or '')} is superseded"
            elif record.trigger == Trigger.FAIL and record.reason == FailureReason.PARENT_ENDED:
                ended.append(life.name(record.request_id))
        elif record.trigger == "fail_parent":
            yield f"the parent {life.failure}"
    if ended:
        yield f"{', '.join(ended)} failed with it"


def _without(life: Life) -> str:
    return f" without {life.lacked}" if life.lacked else ""


def _order(life: Life, action: dict[str, Any]) -> str:
    match action["type"]:
        case "forward_parent":
            return "forward the bundle"
        case "fail_parent":
            status = action.get("status_code")
            return "fail the parent" + (f" with status {status}" if status is not None else "")
        case "abort_requests":
            return f"abort {life.names(action['request_ids'])}"
        case "release_requests":
            return f"release {life.names(action['request_ids'])}"
        case "acknowledge_abort":
            outcomes = [
                f"{life.name(known)} {action['outcomes'][known]}" for known in life.own(action["outcomes"])
            ]
            return f"acknowledge the abort ({', '.join(outcomes)})" if outcomes else ""
    return str(action["type"])


# -- a life ---------------------------------------------------------------------------------------------------


def lines(life: Life, now: float, asked: str) -> list[str]:
    """A heading, the steps, and why it ended or what it is waiting for. ``now``: when the log ends; ``asked``: the
    id that was asked for, which is marked if it is a companion's."""
    number = "" if life.number is None else f", life {life.number}"
    began = f", logged {life.began}" if life.began else ""
    what = "request" if life.number is None else "parent"
    start = f"from {life.start:.3f} s of the host's clock"
    found = [f"{what} {printable(life.parent.request_id)}{number}: {start}{began}"]
    for role, one in life.companions.items():
        before = f", before it {', '.join(_marked(name, asked) for name in one.before)}" if one.before else ""
        found.append(f"  companion {printable(role)} = {_marked(one.request_id, asked)}{before}")
    if life.number is not None and not life.whole:
        found.append("  (its registration is not in this log)")
    wide = max(len(told.when) for told in life.told)
    broad = min(_BROAD, max(len(told.who) for told in life.told))
    for told in life.told:
        head = f"{told.when:>{wide}}  {told.who:<{broad}}  "
        line = head + "; ".join(told.parts)
        if len(line) <= _WIDTH and not told.decisive:
            found.append(line)
            continue
        for part in told.parts:
            found += _wrapped(head, part)
            head = " " * len(head)
    return [*found, *_wrapped("Result: ", _verdict(life, now))]


def _marked(request_id: str, asked: str) -> str:
    return printable(request_id) + (" (the one asked for)" if request_id == asked else "")


def _wrapped(head: str, text: str) -> list[str]:
    """The text after ``head``, in lines that are no longer than they must be: broken after a semicolon if that is
    enough, else between words."""
    indent = " " * (len(head) + 2)
    room = max(_WIDTH, len(indent) + _LEAST)
    lines, gap = [head], ""
    for clause in text.replace("; ", ";\n").split("\n"):
        fits = len(indent) + len(clause) <= room
        for words in [clause] if fits else clause.split(" "):
            if gap and len(lines[-1]) + 1 + len(words) > room:
                lines.append(indent)
                gap = ""
            lines[-1] += gap + words
            gap = " "
    return lines


def _verdict(life: Life, now: float) -> str:
    if life.number is None:
        return "it was not registered." if life.whole else "its registration is not in this log."
    if life.end is None and life.broken_off is not None:
        when = f"cut off at {life.after(life.broken_off)}, where its run of the engine ended and another began"
        return f"{when}: {'; '.join(_waits(life))}."
    if life.end is None:
        return f"open when the log ends ({life.after(now)}): {'; '.join(_waits(life))}."
    handed = ""
    if life.forwarded is not None:
        how = "its bundle was forwarded" if life.handed_back is None else "it was handed back"
        handed = f"; {how} at {life.after(life.forwarded)}{_without(life)}"
    waited = f"; {life.waited}" if life.waited else ""
    why = (life.failure or "finished").rstrip(".")
    return f"ended at {life.after(life.end)}: {why}{handed}{waited}."


def _waits(life: Life) -> list[str]:
    parent = life.parent
    state = "of unknown state" if parent.state is None else f"{parent.state} since {life.after(parent.since)}"
    if parent.state == ParentState.FORWARDED:
        if life.handed_back is not None:
            since = f"since {life.after(parent.since)}{_without(life)}"
            return [f"handed back ({life.handed_back}) {since}, waiting for its cleanup"]
        return [f"{state}, waiting for the downstream stages to finish"]
    parts = [f"the parent is {state}{parent.where}"]
    if parent.state != ParentState.DEFERRED:
        parts.append("waiting for its own output")
    missing = life.missing()
    if missing:
        parts.append("no output yet of " + ", ".join(_lacks(life, role, one) for role, one in missing))
    elif life.tracked and life.whole and parent.state == ParentState.DEFERRED:
        parts.append("the bundle is complete, waiting for the host to take it")
    if life.sealed is False:
        parts.append("the set of companions is not sealed")
    elif life.sealed is None and not life.whole:
        parts.append("its registration is not in this log, so there may be more companions")
    return parts


def _lacks(life: Life, role: str, one: Member) -> str:
    how = f"{one.state}"
    if one.state == CompanionState.REGISTERED:
        how = f"registered since {life.after(one.since)}"
        if not life.tracked:
            how = f"not started, {how}"
    elif one.state == CompanionState.RUNNING:
        how = f"running{one.where}, silent since {life.after(one.heard)}"
    return f"{printable(role)} ({printable(one.request_id)}: {how})"
