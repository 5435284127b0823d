"""Where audit records go: memory, or a file of JSON lines chained by their hashes.

Both are observers for ``Registry(observers=[...])``.
"""

from __future__ import annotations

import io
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from hashlib import sha256
from math import isfinite
from typing import IO, Any, cast

from pydantic_core import to_json

from cfg_fsm.audit.reading import ZEROS, last_hash
from cfg_fsm.engine.journal import AuditRecord, Fields, own_record
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.lines import text_of
from cfg_fsm.states import MachineKind

_BUFFER = 1 << 16
_COMPANION = MachineKind.COMPANION.value
_OF_A_MACHINE = ("created", "transition")
_FIRST, _LAST = -62_135_596_800.0, 253_402_300_799.0
"""The first and the last second that a date can tell: the host's clock may be beyond them."""


def as_text(name: object, there: bool = True) -> str | None:
    """An id or a role as a log has it. An orchestrator may give its tracker ids that are no strings, or hold what
    UTF-8 does not. ``there``: there is one, even where it is ``None``."""
    if type(name) is str:
        return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode()
    return text_of(name) if there or name is not None else None


class MemoryAudit:
    """Keeps the last ``maxlen`` records (``None``: all of them)."""

    def __init__(self, maxlen: int | None = 10_000) -> None:
        self._records: deque[Fields] = deque(maxlen=maxlen)
        self.take_step: Callable[[Iterable[Fields]], None] = self._records.extend
        """Keep the records of a step: see ``StepObserver``."""
        self.append: Callable[[AuditRecord], None] = self._records.append

    def __call__(self, record: AuditRecord) -> None:
        """Keep a record."""
        self.append(record)

    def __iter__(self) -> Iterator[AuditRecord]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self._records)

    @property
    def records(self) -> list[AuditRecord]:
        """The records that are kept, the oldest first, in copies of the caller's own."""
        return list(map(own_record, self._records))

    def clear(self) -> None:
        """Forget them."""
        self._records.clear()


class JsonlAudit:
    """Writes each record as one line of JSON.

    Keys, in this order: ``seq, at, ts, kind, machine, request_id, parent_id, role, life, trigger, source, dest,
    reason, event, event_seq, prev, hash``. UTF-8, no spaces between tokens, ``\\n`` at the end.

    ``hash`` is the SHA-256, in 64 lowercase hexadecimal digits, of the bytes of the line before ``,"hash":``, that
    is, from its first ``{`` to the quote that closes the value of ``prev``. ``prev`` is the ``hash`` of the line
    before, 64 zeros in the first line of a file. So, to check a line: hash what stands before ``,"hash":"`` and
    compare; compare its ``prev`` with the line before. ``cfg_fsm.audit.reading.verify`` does that.

    ``target``: a path, or a binary or text stream, which is not closed. A path is appended to: the chain goes on
    from the last line there, and ``BadLine`` is raised if that line is torn or was changed, so that nothing is
    written behind it. ``append=False`` starts the file anew. ``clock``: seconds since the epoch, for ``ts``;
    ``None``: the ``at`` of the record, as if the host's clock began in 1970, so that the same events give the
    same bytes. ``prev``: for a stream that goes on with a log, the ``hash`` of that log's last line.

    Raises ``OSError`` if the file cannot be opened, written (the record is then not in the file, the chain goes
    on without it, and its missing ``seq`` shows) or closed. Lines are buffered until ``flush`` or ``close``.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | IO[Any],
        *,
        append: bool = True,
        clock: Callable[[], float] | None = time.time,
        prev: str = ZEROS,
    ) -> None:
        self._clock = clock
        self._second = -1
        self._prefix = ""
        self._prev = prev
        self._owned = isinstance(target, str | os.PathLike)
        if isinstance(target, str | os.PathLike):
            self.name = os.fspath(target)
            """What it writes to."""
            if self.name.endswith(".gz"):
                raise CfgFsmError(f"{self.name}: an audit log is written plain; gzip is for reading")
            if append:
                self._prev = last_hash(self.name)
            stream: IO[Any] = open(self.name, "ab" if append else "wb", buffering=_BUFFER)  # noqa: SIM115 - closed by close()
        else:
            self.name = str(getattr(target, "name", "<stream>"))
            stream = target
        self._stream = stream
        self._write = cast(Callable[[bytes], object], stream.write)
        if isinstance(stream, io.TextIOBase):
            write_text = stream.write
            self._write = lambda line: write_text(line.decode())

    def __enter__(self) -> JsonlAudit:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __call__(self, record: AuditRecord) -> None:
        """Write a record."""
        there = record.kind in _OF_A_MACHINE
        body = to_json(
            {
                "seq": record.seq,
                "at": record.at,
                "ts": self._timestamp(record.at if self._clock is None else self._clock()),
                "kind": record.kind,
                "machine": record.machine,
                "request_id": as_text(record.request_id, there),
                "parent_id": as_text(record.parent_id, there),
                "role": as_text(record.role, there and record.machine == _COMPANION),
                "life": record.life,
                "trigger": record.trigger,
                "source": record.source,
                "dest": record.dest,
                "reason": record.reason,
                "event": record.event,
                "event_seq": record.event_seq,
                "prev": self._prev,
            },
            inf_nan_mode="null",  # of a host's clock that has lost its way
        )[:-1]
        digest = sha256(body).hexdigest()
        self._write(b'%b,"hash":"%b"}\n' % (body, digest.encode()))
        self._prev = digest  # only now: a line that could not be written is not in the chain

    def _timestamp(self, now: float) -> str:
        shown = min(max(now, _FIRST), _LAST) if isfinite(now) else 0.0
        second, micros = divmod(round(shown * 1_000_000), 1_000_000)
        if second != self._second:
            self._second = second
            self._prefix = datetime.fromtimestamp(second, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._prefix}.{micros:06d}Z"

    def flush(self) -> None:
        """Hand what was written to the operating system. Raises ``OSError``."""
        self._stream.flush()

    def close(self) -> None:
        """Write what is left and close the file; a stream is only flushed. Raises ``OSError``."""
        if self._owned:
            self._stream.close()
        else:
            self._stream.flush()
