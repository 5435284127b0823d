"""The story of one request and its group, told from audit records.

``explain`` takes records (of a file, or of ``MemoryAudit``) and writes one line per step, in time order. A log
may be cut off at either end: what is not in it is not made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeAlias

from cfg_fsm import tables
from cfg_fsm.audit.reading import AuditLine
from cfg_fsm.audit.record import AuditRecord
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.states import CompanionState, FailureReason, MachineKind, ParentState, Trigger
from cfg_fsm.traces import printable

Logged: TypeAlias = AuditRecord | AuditLine
_Step: TypeAlias = list[Logged]

_PARENT = MachineKind.PARENT.value
_COMPARED = 50_000
_SIGNS_OF_LIFE = {
    "request_progressed": "gave a sign of life",
    "kv_ready": "has its KV cache ready (a sign of life, not an output)",
}


class NotInAudit(CfgFsmError, LookupError):
    """No record names the id. ``request_id`` is the id; ``close`` are ids of the log that resemble it."""

    def __init__(self, request_id: str, close: list[str]) -> None:
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"no request {request_id} in this audit{hint}")
        self.request_id, self.close = request_id, close


def explain(records: Iterable[Logged], request_id: str) -> list[str]:
    """The story of ``request_id``, a parent or a companion: for each life of its group a heading, a line for
    each step, and a last line that says why it ended or what it is waiting for.

    ``records`` are read twice; an iterator is taken into memory for that, an ``AuditFile`` is not. Raises
    ``NotInAudit``.
    """
    log = list(records) if isinstance(records, Iterator) else records
    groups: set[str] = set()
    named = False
    for record in log:
        if request_id in (record.request_id, record.parent_id):
            named = True
            if record.parent_id is not None:
                groups.add(record.parent_id)
        elif record.kind == "event" and isinstance(record.event, dict):
            named = named or request_id in record.event.get("request_ids", ())
    if not named:
        raise NotInAudit(request_id, _close(log, request_id))
    teller = _Teller(groups, request_id)
    for step in _steps(log):
        teller.take(step)
    return teller.lines()


def _close(log: Iterable[Logged], request_id: str) -> list[str]:
    ids = list(dict.fromkeys(record.request_id for record in log if record.request_id is not None))
    within = [known for known in ids if request_id in known or known in request_id]
    return within[:3] or get_close_matches(request_id, islice(ids, _COMPARED), n=3, cutoff=0.75)


def _steps(log: Iterable[Logged]) -> Iterator[_Step]:
    """The records of one event each; all steps but the first of a log cut off in front begin with the event."""
    step: _Step = []
    for record in log:
        if step and (record.kind == "event" or record.event_seq != step[0].event_seq):
            yield step
            step = []
        step.append(record)
    if step:
        yield step


@dataclass(slots=True)
class _Member:
    """What the log says of one machine so far."""

    request_id: str
    state: str | None = None
    since: float = 0.0
    where: str = ""
    heard: float = 0.0


@dataclass(slots=True)
class _Life:
    """One life of a group, as far as it was read."""

    parent: _Member
    number: int | None
    start: float
    began: str
    whole: bool = False
    """Whether the log has its registration."""
    sealed: bool | None = None
    companions: dict[str, _Member] = field(default_factory=dict)
    forwarded: float | None = None
    lacked: str = ""
    """What the bundle lacked when it was handed over: nothing, unless the host took it as it was."""
    failure: str | None = None
    end: float | None = None
    told: list[tuple[str, str, str]] = field(default_factory=list)
    signs: tuple[str, str] | None = None
    """Who said what in the last line, if that was a sign of life; and how often."""
    count: int = 0

    def after(self, at: float) -> str:
        return f"+{at - self.start:.3f} s"

    def member(self, record: Logged) -> _Member:
        if record.machine == _PARENT:
            return self.parent
        role = record.role or "?"
        return self.companions.setdefault(role, _Member(record.request_id or "?"))

    def name(self, request_id: str | None) -> str:
        """``parent``, a role, or the id itself."""
        if request_id == self.parent.request_id and self.number is not None:
            return _PARENT
        for role, member in self.companions.items():
            if member.request_id == request_id:
                return printable(role)
        return printable(request_id or "")

    def names(self, request_ids: Iterable[str]) -> str:
        return ", ".join(self.name(request_id) for request_id in request_ids)

    def own(self, request_ids: Iterable[str]) -> list[str]:
        known = {self.parent.request_id, *(one.request_id for one in self.companions.values())}
        return [request_id for request_id in request_ids if request_id in known]

    def missing(self) -> list[tuple[str, _Member]]:
        return [(role, one) for role, one in self.companions.items() if one.state != CompanionState.DONE]

    def awaited(self) -> str:
        return ", ".join(f"{printable(role)} ({printable(one.request_id)})" for role, one in self.missing())

    def tell(self, at: float, who: str, what: str, *, sign: bool = False) -> None:
        """A line. Signs of life of one request that follow each other share one."""
        if sign and self.signs == (who, what):
            self.count += 1
            self.told[-1] = (self.told[-1][0], who, f"{what} ({self.count} times, the last at {self.after(at)})")
            return
        self.signs, self.count = ((who, what), 1) if sign else (None, 0)
        self.told.append((self.after(at), who, what))

    # -- the last line ------------------------------------------------------------------------------------

    def verdict(self, now: float) -> str:
        if self.number is None:
            return "It was not registered." if self.whole else "Its registration is not in this log."
        if self.end is not None:
            handed = ""
            if self.forwarded is not None:
                handed = f"; its bundle was forwarded at {self.after(self.forwarded)}"
                handed += f" without {self.lacked}" if self.lacked else ""
            how = (self.failure or "finished").rstrip(".")
            return f"Ended at {self.after(self.end)}: {how}{handed}."
        return f"Open when the log ends ({self.after(now)}): {'; '.join(self._waits())}."

    def _waits(self) -> list[str]:
        parent = self.parent
        state = "of unknown state" if parent.state is None else f"{parent.state} since {self.after(parent.since)}"
        if parent.state == ParentState.FORWARDED:
            return [f"{state}, waiting for the downstream stages to finish"]
        parts = [f"the parent is {state}{parent.where}"]
        if parent.state != ParentState.DEFERRED:
            parts.append("waiting for its own output")
        missing = self.missing()
        if missing:
            parts.append("no output yet of " + ", ".join(self._lacks(role, one) for role, one in missing))
        if self.sealed is False:
            parts.append("the set of companions is not sealed")
        elif self.sealed is None and not self.whole:
            parts.append("its registration is not in this log, so there may be more companions")
        return parts

    def _lacks(self, role: str, one: _Member) -> str:
        how = f"{one.state}"
        if one.state == CompanionState.REGISTERED:
            how = f"not started, registered since {self.after(one.since)}"
        elif one.state == CompanionState.RUNNING:
            how = f"running{one.where}, silent since {self.after(one.heard)}"
        return f"{printable(role)} ({printable(one.request_id)}: {how})"


class _Teller:
    """Takes the steps of a log and tells those that concern the groups."""

    def __init__(self, groups: set[str], request_id: str) -> None:
        self._groups = groups
        self._asked = request_id
        self._lives: dict[tuple[str | None, int | None], _Life] = {}
        self._owner: dict[str, _Life] = {}
        """By id, its latest life."""
        self._told: list[_Life] = []
        self._seq = 0
        self._from_start = False
        """Whether the log has the run from its first record on."""
        self._now = 0.0

    def take(self, step: _Step) -> None:
        first = step[0]
        if first.seq == 1 or first.seq <= self._seq:  # a run begins; if appended to another, its ids are not those
            self._from_start = first.seq == 1
            self._lives.clear()
            self._owner.clear()
        self._seq, self._now = step[-1].seq, first.at
        body = first.event
        if first.kind != "event":
            body = {"type": next((r.event for r in step if isinstance(r.event, str)), "an event")}
        touched: dict[int, tuple[_Life, _Step]] = {}
        for record in step:
            if record.kind != "event" and record.parent_id in self._groups:
                life = self._life(record)
                touched.setdefault(id(life), (life, []))[1].append(record)
        if not touched:
            for named in (first.request_id, *body.get("request_ids", ())):
                if named in self._owner:
                    touched.setdefault(id(self._owner[named]), (self._owner[named], []))
                elif named == self._asked:
                    life = self._life(first)
                    touched[id(life)] = (life, [])
        shared = [record for record in step if record.kind != "event" and record.parent_id is None]
        for life, records in touched.values():
            self._tell(life, first, body, shared + records)

    def _life(self, record: Logged) -> _Life:
        """The life that a record belongs to; without a number, the latest of its group."""
        parent_id = record.parent_id
        if record.life is None and parent_id in self._owner:
            return self._owner[parent_id]
        key = (parent_id, record.life)
        life = self._lives.get(key)
        if life is None or (life.end is not None and record.kind == "created" and record.machine == _PARENT):
            who = parent_id or self._asked
            ts = getattr(record, "ts", "")
            life = self._lives[key] = _Life(_Member(who), record.life, record.at, ts)
            self._told.append(life)
            if record.life is None:
                life.whole = self._from_start
            else:
                self._owner[who] = life
        return life

    def _tell(self, life: _Life, first: Logged, body: dict[str, Any], records: _Step) -> None:
        kind = body["type"]
        if any(r.kind == "created" and r.machine == _PARENT for r in records):
            life.whole = True
            if first.kind == "event":
                life.sealed = "companions" in body
        elif kind == "companions_sealed" and not any(r.kind == "ignored" for r in records):
            life.sealed = True
        for record in records:
            if record.kind in ("created", "transition") and record.request_id is not None:
                self._move(life, record, body)
        subject = first.request_id if first.kind == "event" else None
        subject = subject or next((r.request_id for r in records if r.kind != "action"), None)
        who = "client" if kind == "requests_aborted" else life.name(subject)
        if kind in _SIGNS_OF_LIFE and not records:
            for one in (life.parent, *life.companions.values()):
                if one.request_id == first.request_id:
                    one.heard = first.at
        if first.kind != "event":
            fact = str(kind).replace("_", " ")
        elif any(r.trigger == "fail_parent" for r in records):
            fact = _fact(life, {**body, "error": ""})  # which tells the error
        else:
            fact = _fact(life, body)
        parts = [fact, *_consequences(life, records)]
        life.tell(first.at, who, "; ".join(part for part in parts if part), sign=not records)

    def _move(self, life: _Life, record: Logged, body: dict[str, Any]) -> None:
        one = life.member(record)
        assert record.request_id is not None
        self._owner[record.request_id] = life
        if record.dest != one.state:
            one.since = record.at
        one.state, one.heard = record.dest, record.at
        if record.trigger == Trigger.START and body.get("replica_id") is not None:
            one.where = f" on replica {body['replica_id']} of stage {body.get('stage_id', 0)}"
        if record.machine == _PARENT:
            if record.trigger == Trigger.FORWARD:
                life.forwarded, life.lacked = record.at, life.awaited()
            elif record.trigger == Trigger.FAIL:
                life.failure = f"failed, {record.reason}"
                if record.reason == FailureReason.ABORTED:
                    life.failure = "aborted by the client"
            elif record.dest == tables.FINAL[tables.PARENT]:
                life.end = record.at

    def lines(self) -> list[str]:
        """Everything that was told."""
        lines: list[str] = []
        for life in self._told:
            if lines:
                lines.append("")
            number = "" if life.number is None else f", life {life.number}"
            began = f", logged {life.began}" if life.began else ""
            what = "request" if life.number is None else "parent"
            lines.append(
                f"{what} {printable(life.parent.request_id)}{number}: from {life.start:.3f} s of the host's clock"
                + began
            )
            lines += [
                f"  companion {printable(role)} = {printable(one.request_id)}"
                for role, one in life.companions.items()
            ]
            if life.number is not None and not life.whole:
                lines.append("  (its registration is not in this log)")
            wide = max(len(when) for when, _, _ in life.told)
            broad = max(len(who) for _, who, _ in life.told)
            lines += [f"{when:>{wide}}  {who:<{broad}}  {what}" for when, who, what in life.told]
            lines.append(life.verdict(self._now))
        return lines


def _fact(life: _Life, body: dict[str, Any]) -> str:
    """What happened, without its subject."""
    kind = body["type"]
    where = f" on replica {body['replica_id']}" if body.get("replica_id") is not None else ""
    stage = f" of stage {body['stage_id']}" if "stage_id" in body else ""
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
            return f"has its output (finish reason {body['finish_reason']})"
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
    return _SIGNS_OF_LIFE.get(kind, printable(str(kind)))


def _registration(body: dict[str, Any]) -> str:
    if "companions" not in body:
        what = "was registered, companions not named yet"
    elif body["companions"]:
        what = "was registered with " + ", ".join(printable(role) for role in body["companions"])
    else:
        what = "was registered without companions"
    if body.get("streaming"):
        what += ", streaming"
    limits = body.get("limits")
    return what + (
        f", limits {', '.join(f'{name}={value:g}' for name, value in limits.items())}" if limits else ""
    )


def _consequences(life: _Life, records: _Step) -> Iterator[str]:
    """What came of it: refusals, moves, and what the host was told."""
    forwarded = any(r.trigger == Trigger.FORWARD for r in records if r.kind == "transition")
    orders: list[str] = []
    ended: list[str] = []
    for record in records:
        if record.kind in ("ignored", "rejected"):
            yield f"{record.kind} ({record.reason})"
        elif record.kind == "transition":
            if record.trigger == Trigger.DEFER and not forwarded:
                lacks = life.awaited()
                yield f"deferred, waiting for {lacks}" if lacks else "deferred"
                if life.sealed is False:
                    yield "the set of companions is not sealed"
            elif record.trigger == Trigger.FORWARD:
                yield f"the bundle is taken without {life.lacked}" if life.lacked else "the bundle is complete"
            elif record.trigger == Trigger.FAIL and record.reason == FailureReason.PARENT_ENDED:
                ended.append(life.name(record.request_id))
        elif record.kind == "action":
            order = _order(life, record.event)
            if record.trigger == "fail_parent":
                life.failure = f"failed, {record.reason}: {printable(record.event['error'])}"
                yield f"the parent {life.failure}"
            if order:
                orders.append(order)
    if ended:
        yield f"{', '.join(ended)} failed with it"
    if orders:
        yield "host: " + "; ".join(orders)


def _order(life: _Life, action: dict[str, Any]) -> str:
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
