"""Reading an audit log back, and checking its chain of hashes."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any

from cfg_fsm.audit import shapes
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.errors import BadLine
from cfg_fsm.lines import OVERLONG, LineSource, overlong
from cfg_fsm.strict import loads

ZEROS = "0" * 64
"""``prev`` of the first line of a log."""

MAX_LINE = 32 << 20
"""Bytes that a line of a log may have: twice those of a trace's, since one that aborts very many ids is answered
with an outcome for each."""

_TAIL = re.compile(rb'^(.*,"prev":"([0-9a-f]{64})"),"hash":"([0-9a-f]{64})"\}$', re.DOTALL)
_BEGIN = b'{"seq":'
_BLOCK = 1 << 16


#: The keys of a line, in their order: the fields of a record, and the envelope that the file puts around it.
KEYS = (*AuditRecord._fields[:2], "ts", *AuditRecord._fields[2:], "prev", "hash")


class AuditLine(AuditRecord):
    """A line of a log: a record in the envelope that the file puts around it."""

    ts: str
    """Time of day at which it was written, UTC, ISO 8601."""
    prev: str
    """``hash`` of the line before; 64 zeros in the first."""
    hash: str
    """SHA-256 of this line's text before ``,"hash":``, 64 hexadecimal digits."""

    def __new__(cls, *, ts: str, prev: str, hash: str, **record: Any) -> AuditLine:
        """From the keys of a line."""
        line = super().__new__(cls, **record)
        line.ts, line.prev, line.hash = ts, prev, hash
        return line

    def as_dict(self) -> dict[str, Any]:
        """The keys of the line, in their order."""
        return {key: getattr(self, key) for key in KEYS}


class BrokenChain(BadLine):
    """A line of an audit log was changed, is cut off, or does not follow from the line before it."""


def read_audit(
    path: str | os.PathLike[str], *, on_broken: Callable[[BrokenChain], object] | None = None
) -> Iterator[AuditLine]:
    """The records of a log: a plain or gzip file, or ``-`` for standard input.

    Raises ``BadLine`` for a line that is not a record, ``OSError`` if the file cannot be read. Lines are read
    strictly: see ``cfg_fsm.strict``, ``cfg_fsm.audit.shapes`` and ``MAX_LINE``. ``on_broken``: is given the first
    break of the chain, before its record. Without it the chain is not checked: see ``verify``.
    """
    with LineSource(path, max_line=MAX_LINE) as source:
        yield from _records(source, on_broken)


def _records(source: LineSource, on_broken: Callable[[BrokenChain], object] | None) -> Iterator[AuditLine]:
    prev = ZEROS
    for number, line in source:
        try:
            record = _parse(line, source.max_line)
        except ValueError as error:
            torn = " (the file ends in the middle of this line)" if source.torn else ""
            raise BadLine(source.name, number, f"{error}{torn}") from error
        if on_broken is not None:
            try:
                prev = _follow(source, number, line, prev)
            except BrokenChain as error:
                on_broken(error)
                on_broken = None
        yield record


class AuditFile:
    """A log that can be read more than once: each ``iter()`` begins at the start.

    What cannot be read again, such as a pipe, is taken into memory by the first. ``on_broken``: as in
    ``read_audit``, for the first reading.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, on_broken: Callable[[BrokenChain], object] | None = None
    ) -> None:
        self.path = path
        self._on_broken = on_broken
        self._kept: tuple[list[AuditLine], BadLine | None] | None = None
        """What was taken into memory, and what is wrong with the line after it."""

    def __iter__(self) -> Iterator[AuditLine]:
        on_broken, self._on_broken = self._on_broken, None
        if self._kept is None:
            with LineSource(self.path, max_line=MAX_LINE) as source:
                records = _records(source, on_broken)
                if source.rereadable:
                    yield from records
                    return
                self._kept = _up_to_damage(records)
        kept, damage = self._kept
        yield from kept
        if damage is not None:
            raise damage


def _up_to_damage(records: Iterator[AuditLine]) -> tuple[list[AuditLine], BadLine | None]:
    kept: list[AuditLine] = []
    try:
        for record in records:
            kept.append(record)
    except BadLine as error:
        return kept, error
    return kept, None


def _parse(line: bytes, most: int) -> AuditLine:
    if line is OVERLONG:
        raise ValueError(overlong(most))
    data = loads(line)
    shapes.check(data)
    return AuditLine(**data)


def verify(path: str | os.PathLike[str]) -> int:
    """Check the chain of a log (plain, gzip or ``-``) and return how many lines it has.

    Raises ``BrokenChain`` at the first line that was changed, or does not follow from the line before it, and
    ``BadLine`` if the file is no audit log at all. Lines cut off at the end of the log leave no trace in the rest.
    """
    prev = ZEROS
    number = 0
    with LineSource(path, max_line=MAX_LINE) as source:
        for number, line in source:
            if line is OVERLONG:
                raise BadLine(source.name, number, overlong(source.max_line))
            if number == 1 and not line.startswith(_BEGIN):
                raise BadLine(source.name, 1, "not an audit record")
            prev = _follow(source, number, line, prev)
    return number


def _follow(source: LineSource, number: int, line: bytes, prev: str) -> str:
    """The hash of a line of ``source``, which must follow the line with hash ``prev``."""
    try:
        found = _check(line, prev)
        if source.torn:
            raise ValueError("the last line has no line end: the file is cut off")
    except ValueError as error:
        raise BrokenChain(source.name, number, str(error)) from error
    return found


def _check(line: bytes, prev: str | None) -> str:
    """The hash of ``line``, which must follow the line with hash ``prev`` (``None``: any)."""
    parts = _TAIL.match(line)
    if parts is None:
        raise ValueError('not a whole audit line: it does not end in ,"prev":"...","hash":"..."}')
    body, its_prev, its_hash = parts[1], parts[2].decode(), parts[3].decode()
    if prev is not None and its_prev != prev:
        before = "the line before" if prev != ZEROS else "nothing, as in the first line of a log"
        raise ValueError(f"the chain is broken: prev is not the hash of {before}")
    if sha256(body).hexdigest() != its_hash:
        raise ValueError("the chain is broken: hash does not match the text of the line")
    return its_hash


def last_hash(path: str | os.PathLike[str]) -> str:
    """The hash that the next line of a log must carry as ``prev``; 64 zeros if the file is empty or not there.

    Only the last line is looked at. Raises ``BadLine`` if it is torn or was changed, ``OSError`` if the file
    cannot be read.
    """
    if not os.path.isfile(path):
        return ZEROS
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        taken = _BLOCK
        while True:
            start = max(0, end - taken)
            file.seek(start)
            tail = file.read(end - start)
            cut = tail.rfind(b"\n", 0, -1)
            if cut >= 0 or start == 0 or taken > MAX_LINE:
                break
            taken *= 2
        if not tail:
            return ZEROS
        try:
            if cut < 0 and len(tail) > MAX_LINE:
                raise ValueError(overlong(MAX_LINE))
            if not tail.endswith(b"\n"):
                raise ValueError("the last line has no line end: the file was cut off; repair it before appending")
            return _check(tail[cut + 1 : -1], None)
        except ValueError as error:
            file.seek(0)
            breaks = sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))
            raise BadLine(os.fspath(path), breaks + (not tail.endswith(b"\n")), str(error)) from error
