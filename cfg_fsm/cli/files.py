"""The files that ``cfg-fsm run`` writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from cfg_fsm.audit.sinks import JsonlAudit
from cfg_fsm.cli.console import naming, shown
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.lines import STDIN, LineSource
from cfg_fsm.trace.run import ActionWriter

_BUFFER = 1 << 16


class Files:
    """The files that a run writes. An ``OSError`` that comes out of here names its file."""

    def __init__(
        self,
        source: LineSource,
        actions: str | None,
        audit: str | None,
        out: Path | None,
        *,
        append: bool,
        fixed_ts: bool,
    ) -> None:
        self.summary: Path | None = None
        """Where the summary goes, if to a file."""
        stale: list[str] = []
        if out is not None:
            stale = [str(out / name) for name in ("actions.jsonl", "audit.jsonl", "summary.json")]
            actions, audit, self.summary = actions or stale[0], audit or stale[1], Path(stale[2])
        self.names = [name for name in (actions, audit) if name is not None]
        if self.summary is not None:
            self.names.append(str(self.summary))
        self.to_stdout = STDIN in self.names
        """Whether standard output is taken."""
        self.people = sys.stderr if self.to_stdout else sys.stdout
        """Where people are told."""
        _refuse_clash(source.path, self.names, stale)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        self.on_action: ActionWriter | None = None
        self.observers: list[Callable[[AuditRecord], None]] = []
        self._open: list[tuple[str, BinaryIO | JsonlAudit]] = []
        self._audit_error: OSError | None = None
        if audit is not None:
            # Opened first: if it must not be appended to, nothing else is overwritten either.
            target = sys.stdout.buffer if audit == STDIN else audit
            sink = JsonlAudit(target, append=append, clock=None) if fixed_ts else JsonlAudit(target, append=append)
            self._open.append((audit, sink))
            self.observers.append(self._guard(sink))
        for name in _leftovers(stale, [name for name in (actions, audit) if name is not None]):
            os.unlink(name)
        if actions is not None:
            stream = sys.stdout.buffer if actions == STDIN else open(actions, "wb", buffering=_BUFFER)  # noqa: SIM115
            self._open.append((actions, stream))
            self.on_action = ActionWriter(stream, shown(actions))

    def _guard(self, sink: JsonlAudit) -> Callable[[AuditRecord], None]:
        """The registry would log each record that the disk refuses; here the first refusal stops the run."""

        def observe(record: AuditRecord) -> None:
            if self._audit_error is None:
                try:
                    sink(record)
                except OSError as error:
                    error.filename = error.filename or sink.name
                    self._audit_error = error

        return observe

    def flush(self) -> None:
        """Hand everything to the operating system."""
        if self._audit_error is not None:
            raise self._audit_error
        for name, file in self._open:
            with naming(name):
                file.flush()

    def close(self) -> None:
        """Close what is open; standard output is only flushed. Raises the first ``OSError``, when all are closed;
        that of a reader who went away only if there is no other."""
        found = [] if self._audit_error is None else [self._audit_error]
        self._audit_error = None
        while self._open:
            name, file = self._open.pop()
            try:
                with naming(name):
                    file.flush() if name == STDIN else file.close()
            except OSError as error:
                found.append(error)
        if found:
            raise min(found, key=lambda error: isinstance(error, BrokenPipeError))

    def close_quietly(self) -> None:
        """The same, and raise nothing."""
        with suppress(OSError):
            self.close()


def _refuse_clash(trace: str, outputs: list[str], stale: list[str]) -> None:
    """Raise ``CfgFsmError`` if one file would be written twice, or the trace overwritten while it is read."""
    for number, name in enumerate(outputs):
        if any(name == other or os.path.realpath(name) == os.path.realpath(other) for other in outputs[:number]):
            raise CfgFsmError(f"{shown(name)}: two outputs of the run cannot go to the same place")
    for name in (*outputs, *stale):
        if os.path.isfile(name) and os.path.isfile(trace) and os.path.samefile(name, trace):
            raise CfgFsmError(f"{name}: this is the trace; it would be overwritten")


def _leftovers(stale: list[str], kept: list[str]) -> Iterator[str]:
    """What an older run left in the directory and this one does not open: it would contradict the rest.

    A standard stream may go there, and so may an output that was named by another path.
    """
    taken = [os.stat(name) for name in kept if os.path.exists(name)]
    for number in range(3):
        with suppress(OSError):
            taken.append(os.fstat(number))
    for name in stale:
        if os.path.lexists(name) and not (
            os.path.exists(name) and any(os.path.samestat(os.stat(name), one) for one in taken)
        ):
            yield name
