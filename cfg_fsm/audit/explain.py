"""The story of one request and its group, told from audit records.

``explain`` takes records (of a file, or of ``MemoryAudit``) and tells them step by step, in time order. A log
may be cut off at either end: what is not in it is not made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any, TypeAlias

from cfg_fsm.audit import story
from cfg_fsm.audit.lives import PARENT, Life, Logged, Member
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.lines import printable, short
from cfg_fsm.states import Trigger

_Step: TypeAlias = list[Logged]

_COMPARED = 50_000
_LONG = 200
"""Ids that are longer are not compared, which takes the square of their length, and not repeated in full."""


def _quoted(request_id: str) -> str:
    return f"'{short(request_id, _LONG)}'"


class NotInAudit(CfgFsmError, LookupError):
    """No record names the id. ``request_id`` is the id; ``close`` are ids of the log that resemble it."""

    def __init__(self, request_id: str, close: list[str]) -> None:
        hint = f"; did you mean {' or '.join(map(_quoted, close))}?" if close else ""
        super().__init__(f"no request {_quoted(request_id)} in this audit{hint}")
        self.request_id, self.close = request_id, close


def explain(records: Iterable[Logged], request_id: str) -> list[str]:
    """The story of ``request_id``, a parent or a companion: for each life of its group a heading, its
    steps, and last its result: why it ended or what it is waiting for. A step is one line; if that would be too
    long, or if it failed the group, what happened, why, and what the host was told have a line each.

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
    if within or len(request_id) > _LONG:
        return within[:3]
    alike = (known for known in ids if len(known) <= _LONG)
    return get_close_matches(request_id, islice(alike, _COMPARED), n=3, cutoff=0.75)


def _steps(log: Iterable[Logged]) -> Iterator[_Step]:
    """The records of one event, or of one call of the drop-in tracker, each.

    A step begins with the event itself, unless it is the first of a log cut off in front, or the tracker's.
    """
    step: _Step = []
    for record in log:
        if step and (record.kind == "event" or record.event_seq != step[0].event_seq):
            yield step
            step = []
        step.append(record)
    if step:
        yield step


class _Teller:
    """Takes the steps of a log and tells those that concern the groups."""

    def __init__(self, groups: set[str], request_id: str) -> None:
        self._groups = groups
        self._asked = request_id
        self._lives: dict[tuple[str | None, int | None], Life] = {}
        self._owner: dict[str, Life] = {}
        """By id, its latest life."""
        self._told: list[Life] = []
        self._seq = 0
        self._from_start = False
        """Whether the log has the run from its first record on."""
        self._now = 0.0

    def take(self, step: _Step) -> None:
        """Tell one step to the lives that it concerns."""
        first = step[0]
        if first.seq == 1 or first.seq <= self._seq:  # a run begins; if appended to another, its ids are not those
            self._from_start = first.seq == 1
            for life in self._lives.values():
                life.broken_off = self._now
            self._lives.clear()
            self._owner.clear()
        self._seq, self._now = step[-1].seq, first.at
        body = first.event
        if first.kind != "event":
            body = {"type": next((r.event for r in step if isinstance(r.event, str)), "an event")}
        touched: dict[Life, _Step] = {}
        for record in step:
            if record.kind != "event" and record.parent_id in self._groups:
                touched.setdefault(self._life(record), []).append(record)
        if not touched:
            for named in (first.request_id, *body.get("request_ids", ())):
                if named in self._owner:
                    touched[self._owner[named]] = []
                elif named == self._asked:
                    touched[self._life(first)] = []
        shared = [record for record in step if record.kind != "event" and record.parent_id is None]
        for life, records in touched.items():
            self._tell(life, first, body, shared + records)

    def _life(self, record: Logged) -> Life:
        """The life that a record belongs to; without a number, the latest of its group."""
        parent_id = record.parent_id
        if record.life is None and parent_id in self._owner:
            return self._owner[parent_id]
        key = (parent_id, record.life)
        life = self._lives.get(key)
        if life is None or (life.end is not None and record.kind == "created" and record.machine == PARENT):
            who = parent_id or self._asked
            life = self._lives[key] = Life(Member(who), record.life, record.at, getattr(record, "ts", ""))
            self._told.append(life)
            if record.life is None:
                life.whole = self._from_start
            else:
                self._owner[who] = life
        return life

    def _tell(self, life: Life, first: Logged, body: dict[str, Any], records: _Step) -> None:
        life.learn(first, body, records)
        for record in records:
            if record.kind in ("created", "transition") and record.request_id is not None:
                self._owner[record.request_id] = life
        kind = body["type"]
        who = "client" if kind == "requests_aborted" else life.name(_subject(first, kind, records))
        if first.kind != "event":
            fact = str(kind).replace("_", " ") or "an event"
        elif any(record.trigger == "fail_parent" for record in records):
            fact = story.fact(life, {**body, "error": ""})  # the consequences tell the error
        else:
            fact = story.fact(life, body)
        why, told_host = story.consequences(life, records)
        parts = [part for part in (fact, "; ".join(why), told_host) if part]
        decisive = any(
            record.trigger == "fail_parent" or (record.trigger == Trigger.FAIL and record.machine == PARENT)
            for record in records
        )
        life.tell(first.at, who, parts, sign=not records, decisive=decisive)

    def lines(self) -> list[str]:
        """Everything that was told, the lives with an empty line between them. Whatever a log may say, nothing is
        left in it that a terminal would obey."""
        lines: list[str] = []
        for life in self._told:
            lines += [""] * bool(lines) + list(map(printable, story.lines(life, self._now, self._asked)))
        return lines


def _subject(first: Logged, kind: str, records: _Step) -> str | None:
    """The id of the request that a step is about."""
    if first.kind == "event" and first.request_id is not None:
        return first.request_id
    ids = [record.request_id for record in records if record.kind != "action"]
    if kind == "register_companion":  # after its parent, and the companion whose role it takes
        ids.reverse()
    return next(iter(ids), None)
