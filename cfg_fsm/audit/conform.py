"""The rules as far as an audit log shows them: for the log of a run that is over, or of a server that runs.

``check`` reads records (``AuditRecord``, or ``AuditLine`` from a file) in their order, from the beginning of a
registry's life. The log must be whole; ``cfg_fsm.audit.reading.verify`` says whether it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

from cfg_fsm.audit.reading import AuditLine
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.states import MachineKind, Trigger
from cfg_fsm.tables import FINAL, INITIAL, PARENT, ROWS

_ROWS = {(str(kind), str(row.trigger), str(row.source), str(row.dest)) for kind in ROWS for row in ROWS[kind]}
_INITIAL = {str(kind): str(INITIAL[kind]) for kind in MachineKind}
_FINAL = {str(kind): str(FINAL[kind]) for kind in MachineKind}
_ENDS = (Trigger.FAIL, Trigger.FINISH)


class Problem(NamedTuple):
    """A record, or a step, after which a rule does not hold."""

    seq: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"record {self.seq}: {self.rule}: {self.what}"


@dataclass(slots=True)
class _Group:
    """One life, as the log tells of it."""

    members: list[str] = field(default_factory=list)
    ends: int = 0
    told: int = 0
    """How often its failure was told."""
    cleaned: bool = False
    released: list[str] = field(default_factory=list)


def check(records: Iterable[AuditRecord | AuditLine], *, actions: bool = True) -> Iterator[Problem]:
    """What is wrong, in the order of the log; nothing if all is well. ``actions=False``: the log is of one who
    tells no actions (the tracker), so that they are not missed."""
    return _LogCheck(actions).run(records)


class _LogCheck:
    def __init__(self, actions: bool) -> None:
        self.wants_actions = actions
        self.states: dict[str, str] = {}
        """Of each live request."""
        self.groups: dict[tuple[str | None, int | None], _Group] = {}
        """Of lives that are live or end in this step."""
        self.parents: set[str] = set()
        self.closing: list[tuple[str | None, int | None]] = []

    def run(self, records: Iterable[AuditRecord | AuditLine]) -> Iterator[Problem]:
        for _, step in groupby(records, key=lambda record: record.event_seq):
            last, refused = 0, False
            for record in step:
                last = record.seq
                refused = refused or record.kind in ("ignored", "rejected")
                if record.kind == "created":
                    yield from self._created(record)
                elif record.kind == "transition":
                    yield from self._moved(record)
                elif record.kind == "action":
                    yield from self._stray(record) if refused else self._told(record)
            yield from self._step_is_over(last)

    def _created(self, record: AuditRecord | AuditLine) -> Iterator[Problem]:
        machine, request_id = str(record.machine), str(record.request_id)
        if request_id in self.states:
            yield Problem(record.seq, "R9", f"{request_id} is registered while it lives")
        if record.dest != _INITIAL[machine]:
            yield Problem(record.seq, "rows", f"{request_id} begins in state {record.dest}")
        self.states[request_id] = str(record.dest)
        self.groups.setdefault((record.parent_id, record.life), _Group()).members.append(request_id)
        if machine == PARENT:
            self.parents.add(request_id)

    def _moved(self, record: AuditRecord | AuditLine) -> Iterator[Problem]:
        machine, request_id = str(record.machine), str(record.request_id)
        row = (machine, str(record.trigger), str(record.source), str(record.dest))
        if row not in _ROWS:
            yield Problem(record.seq, "rows", f"{request_id}: there is no row {' '.join(row)}")
        state = self.states.get(request_id)
        if state is None:
            yield Problem(record.seq, "R8", f"{request_id} moves and is not live")
        elif state != record.source:
            yield Problem(record.seq, "rows", f"{request_id} leaves {record.source} and was in {state}")
        group = self.groups.get((record.parent_id, record.life))
        if group is None or request_id not in group.members:
            yield Problem(record.seq, "R5", f"{request_id} is not of life {record.life} of {record.parent_id}")
            return
        if machine == PARENT and record.trigger in _ENDS:
            group.ends += 1
            if group.ends > 1:
                yield Problem(record.seq, "R1", f"{request_id} ends again")
        if record.dest == _FINAL[machine]:
            self.states.pop(request_id, None)
            if machine == PARENT:
                group.cleaned = True
                self.closing.append((record.parent_id, record.life))
        else:
            self.states[request_id] = str(record.dest)

    def _told(self, record: AuditRecord | AuditLine) -> Iterator[Problem]:
        kind, body = record.trigger, record.event
        group = self.groups.get((record.parent_id, record.life))
        if kind in ("forward_parent", "fail_parent"):
            parent_id = body["parent_id"]
            if parent_id not in self.parents:
                yield Problem(record.seq, "R4", f"{kind} names {parent_id}, which is no parent")
            if group is None:
                yield Problem(record.seq, "R1", f"{kind} for a life that has ended")
            elif kind == "forward_parent":
                yield from self._forwarded(record.seq, group, body)
            else:
                group.told += 1
                if group.told > 1:
                    yield Problem(record.seq, "R1", f"the failure of {parent_id} is told again")
        elif kind in ("abort_requests", "release_requests"):
            ids = body["request_ids"]
            if len(set(ids)) < len(ids):
                yield Problem(record.seq, "R3", f"{kind} names an id twice")
            members = [] if group is None else group.members
            for request_id in ids:
                if request_id not in members:
                    yield Problem(record.seq, "R3", f"{kind} names {request_id}, a stranger to its group")
            if group is not None and kind == "release_requests":
                group.released += ids

    def _stray(self, record: AuditRecord | AuditLine) -> Iterator[Problem]:
        """What a refusal brings is for a request without an owner."""
        for request_id in record.event.get("request_ids", ()):
            if request_id in self.states:
                yield Problem(
                    record.seq, "R5", f"{record.trigger} of a refused event names {request_id}, which lives"
                )

    def _forwarded(self, seq: int, group: _Group, body: dict[str, Any]) -> Iterator[Problem]:
        if group.ends:
            yield Problem(seq, "R1", f"{body['parent_id']} is forwarded after its end")
        ids = list(body["companion_request_ids"].values())
        if ids != group.members[1:] or len(body["companion_outputs"]) != len(ids):
            yield Problem(seq, "R2", f"the bundle of {body['parent_id']} is not whole or not in order")

    def _step_is_over(self, seq: int) -> Iterator[Problem]:
        for key in self.closing:
            group = self.groups.pop(key, None)
            if group is None:
                continue
            for request_id in group.members:
                if request_id in self.states:
                    yield Problem(seq, "R7", f"{request_id} is left when its group has ended")
            if self.wants_actions and group.released != group.members:
                yield Problem(seq, "R3", f"released of {key[0]} is {group.released}, not {group.members}")
        self.closing.clear()
