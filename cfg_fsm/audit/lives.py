"""The lives of a group, put together again from audit records.

A log may be cut off at either end: what is not in it is not made up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from cfg_fsm import tables
from cfg_fsm.audit.reading import AuditLine
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.lines import printable
from cfg_fsm.states import CompanionState, FailureReason, MachineKind, Trigger

Logged: TypeAlias = AuditRecord | AuditLine
"""A record, from memory or from a file."""

PARENT = MachineKind.PARENT.value
SIGNS_OF_LIFE = {
    "request_progressed": "gave a sign of life",
    "kv_ready": "has its KV cache ready (a sign of life, not an output)",
}
"""Events that change no state, and how they are told."""

_BY_CLIENT = ("requests_aborted", "abort_parents")


@dataclass(slots=True)
class Member:
    """What the log says of one machine so far."""

    request_id: str
    state: str | None = None
    since: float = 0.0
    where: str = ""
    heard: float = 0.0
    before: list[str] = field(default_factory=list)
    """Superseded ids that had its role."""


class Told(NamedTuple):
    """A step in words."""

    when: str
    who: str
    parts: list[str]
    """What happened, why things went as they did, what the host was told: those that there are."""
    decisive: bool
    """Whether it failed the group."""


@dataclass(slots=True, eq=False)
class Life:
    """One life of a group, as far as it was read."""

    parent: Member
    number: int | None
    start: float
    began: str
    """Time of day of its first record; empty if that was not written to a file."""
    whole: bool = False
    """Whether the log has its registration."""
    tracked: bool = False
    """Whether it is of the drop-in tracker, which hears less than the registry: no start, no sealing."""
    sealed: bool | None = None
    companions: dict[str, Member] = field(default_factory=dict)
    """By role."""
    _roles: dict[str, str] = field(default_factory=dict)
    """By the id of the companion that has it."""
    waited: str = ""
    """How long the parent's output waited, and for what, in its latest wait that is over."""
    forwarded: float | None = None
    lacked: str = ""
    """What the bundle lacked at the last forward."""
    handed_back: str | None = None
    """Why the parent's output was taken back then without a complete bundle; ``None``: it was complete."""
    failure: str | None = None
    end: float | None = None
    broken_off: float | None = None
    """When the log of its run of the engine ends, if that of another run follows."""
    told: list[Told] = field(default_factory=list)
    """A step each."""
    _wait: tuple[float, dict[str, None]] | None = None
    """Since when the parent's output is waiting, and for what."""
    _sign: tuple[str, str] | None = None
    """Who said what in the last line, if that was a sign of life; and how often."""
    _count: int = 0

    # -- taking in ----------------------------------------------------------------------------------------

    def learn(self, first: Logged, body: dict[str, Any], records: list[Logged]) -> None:
        """Take in a step: its ``first`` record, the event's ``body``, and the records that concern the group."""
        kind = body["type"]
        if any(record.kind == "created" and record.machine == PARENT for record in records):
            self.whole = True
            if first.kind == "event":
                self.sealed = body.get("companions") is not None
        elif kind == "companions_sealed" and not any(record.kind == "ignored" for record in records):
            self.sealed = True
        for record in records:
            if isinstance(record.event, str) and record.event not in tables.CLASSIFICATION:
                self.tracked = True
            if record.kind in ("created", "transition"):
                self._move(record, body)
            elif record.kind == "action" and record.trigger == "fail_parent":
                self.failure = f"failed, {record.reason}: {printable(record.event['error'])}"
        if kind in SIGNS_OF_LIFE and not records:
            role = self._roles.get(first.request_id or "")
            one = self.parent if role is None else self.companions[role]
            if one.request_id == first.request_id:
                one.heard = first.at

    def _move(self, record: Logged, body: dict[str, Any]) -> None:
        one = self._member(record)
        if record.dest != one.state:
            one.since = record.at
        if self._wait is not None and record.kind == "created":
            self._wait[1].setdefault(printable(record.role or "?"))
        one.state, one.heard = record.dest, record.at
        if record.trigger == Trigger.START and body.get("replica_id") is not None:
            one.where = f" on replica {body['replica_id']} of stage {body.get('stage_id', 0)}"
        if record.machine != PARENT:
            return
        self._note_wait(record)
        if record.trigger == Trigger.FORWARD:
            self.forwarded, self.lacked, self.handed_back = record.at, self.awaited(), record.reason
        elif record.trigger == Trigger.FAIL:
            self.failure = f"failed, {record.reason}"
            if record.reason == FailureReason.ABORTED:
                self.failure = "aborted by the client" if record.event in _BY_CLIENT else "cleaned up unfinished"
        elif record.dest == tables.FINAL[tables.PARENT]:
            self.end = record.at

    def _note_wait(self, record: Logged) -> None:
        """The parent's output begins to wait, or does not wait any more."""
        if record.trigger == Trigger.DEFER and self._wait is None:
            awaited = [printable(role) for role, _ in self.missing()]
            self._wait = record.at, dict.fromkeys(awaited + ["the sealing"] * (self.sealed is False))
        elif record.trigger in (Trigger.FORWARD, Trigger.FAIL):
            since, waits = self._wait or (0.0, {})
            if waits:
                self.waited = f"waited {record.at - since:.3f} s for {', '.join(waits)}"
            elif record.trigger == Trigger.FORWARD:
                self.waited = ""
            self._wait = None

    def _member(self, record: Logged) -> Member:
        if record.machine == PARENT:
            return self.parent
        role, request_id = record.role or "?", record.request_id or "?"
        known = self.companions.get(role)
        if known is None or known.request_id != request_id:
            before = [] if known is None else [*known.before, known.request_id]
            if known is not None:
                self._roles.pop(known.request_id, None)
            known = self.companions[role] = Member(request_id, before=before)
            self._roles[request_id] = role
        return known

    def tell(self, at: float, who: str, parts: list[str], *, sign: bool = False, decisive: bool = False) -> None:
        """Add a step. Signs of life of one request that follow each other share one."""
        what = parts[0]
        if sign and self._sign == (who, what):
            self._count += 1
            again = f"{what} ({self._count} times, the last at {self.after(at)})"
            self.told[-1] = self.told[-1]._replace(parts=[again])
            return
        self._sign, self._count = ((who, what), 1) if sign else (None, 0)
        self.told.append(Told(self.after(at), who, parts, decisive))

    # -- words --------------------------------------------------------------------------------------------

    def after(self, at: float) -> str:
        """A time, counted from the start of this life."""
        return f"+{at - self.start:.3f} s"

    def name(self, request_id: str | None) -> str:
        """``parent``, a role, or the id itself."""
        if request_id == self.parent.request_id and self.number is not None:
            return PARENT
        return printable(self._roles.get(request_id or "", request_id or ""))

    def names(self, request_ids: Iterable[str]) -> str:
        """Their names in one phrase."""
        return ", ".join(self.name(request_id) for request_id in request_ids)

    def own(self, request_ids: Iterable[str]) -> list[str]:
        """Those that belong to the group."""
        return [known for known in request_ids if known in self._roles or known == self.parent.request_id]

    def missing(self) -> list[tuple[str, Member]]:
        """Roles and companions whose output is not here."""
        return [(role, one) for role, one in self.companions.items() if one.state != CompanionState.DONE]

    def awaited(self) -> str:
        """The same in one phrase."""
        return ", ".join(f"{printable(role)} ({printable(one.request_id)})" for role, one in self.missing())
