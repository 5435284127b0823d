"""The rules, asked of an audit log: that of a run that is over, or of a server that runs.

``check`` reads records (``AuditRecord``, or ``AuditLine`` from a file) in their order, from the beginning of a
registry's life. The log must be whole; ``cfg_fsm.audit.reading.verify`` says whether it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from cfg_fsm.rules.checker import LOG_CHECKS
from cfg_fsm.rules.logs import LogAccount, LoggedLife, LogRecord
from cfg_fsm.rules.rule import Check, Moment, Rule


class Problem(NamedTuple):
    """A record, or a step, after which a rule does not hold."""

    seq: int
    check: Check
    """What found it."""
    what: str

    @property
    def rule(self) -> Rule:
        """The rule that does not hold."""
        return self.check.rule

    def __str__(self) -> str:
        return f"record {self.seq}: {self.rule}: {self.what}"


def check(records: Iterable[LogRecord], *, actions: bool = True) -> Iterator[Problem]:
    """What is wrong, in the order of the log; nothing if all is well. ``actions=False``: the log is of one who
    tells no actions (the tracker), so that they are not missed."""
    account = LogAccount(tells_actions=actions)
    for _, step in groupby(records, key=lambda record: record.event_seq):
        last, refused = 0, False
        for record in step:
            last = record.seq
            refused = refused or record.kind in ("ignored", "rejected")
            moment = _moment(record.kind, refused)
            if moment is not None:
                yield from _ask(moment, account, record, last)
                account.take(moment, record)
        for life in account.over():
            yield from _ask("over", account, life, last)


def _moment(kind: str, refused: bool) -> Moment | None:
    if kind == "action":
        return "stray" if refused else "action"
    if kind == "created":
        return "created"
    return "transition" if kind == "transition" else None


def _ask(moment: Moment, account: LogAccount, what: LogRecord | LoggedLife, seq: int) -> Iterator[Problem]:
    for one in LOG_CHECKS[moment]:
        for problem in one(account, what):
            yield Problem(seq, one, problem)
