"""The files that ``cfg-fsm run`` writes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from cfg_fsm.actions import Action
from cfg_fsm.audit.reading import ZEROS, last_hash
from cfg_fsm.audit.sinks import JsonlAudit
from cfg_fsm.cli import places
from cfg_fsm.cli.console import shown
from cfg_fsm.cli.output import Output
from cfg_fsm.cli.places import Input, Place, place_at, place_of
from cfg_fsm.cli.streams import is_closed
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.lines import STDIN
from cfg_fsm.trace.run import ActionWriter

_T = TypeVar("_T")
_AHEAD = 1 << 14
"""Bytes by which the audit may be ahead of the actions, so that little is between them when a disk is full or the
process is killed."""


class Files:
    """The files that a run writes. An ``OSError`` that comes out of here names its file.

    Whatever is in the actions is in the audit: actions are written when the audit of their step has been. If that
    cannot be written, both end with the last step whose audit is there in full.
    """

    def __init__(
        self,
        inputs: list[Input],
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
        self.names = [str(name) for name in (actions, audit, self.summary) if name is not None]
        self.on_action: Callable[[Action], None] | None = None
        self.observers: list[Callable[[AuditRecord], None]] = []
        self._audit: Output | None = None
        self._actions: Output | None = None
        self._failed: OSError | None = None
        """Why the audit can be written no more."""
        self._marks = [(0, 0)]
        """What the audit and the actions had taken at the end of each step since they were last written."""
        self._made: list[str] = []
        """Files that were not there before."""
        try:
            self._open(inputs, actions, audit, stale, append)
            sink = None if self._audit is None else _sink(self._audit, audit or STDIN, append, fixed_ts)
            self._overwrite(stale, append)
        except BaseException:
            self._undo()
            raise
        self._connect(sink)

    def _open(
        self, inputs: list[Input], actions: str | None, audit: str | None, stale: list[str], append: bool
    ) -> None:
        """Open everything and compare what is open; nothing is overwritten yet."""
        if actions == audit == STDIN:
            raise places.one_place(shown(STDIN))
        places.refuse_stdout(inputs)
        for name in stale:
            places.refuse_input(name, place_at(name), inputs)
        if self.summary is not None:
            self.summary.parent.mkdir(parents=True, exist_ok=True)
        if audit is not None:
            self._audit = self._output(audit, append)
        if actions is not None:
            self._actions = self._output(actions, False)
        outputs = self._outputs()
        taken: list[Place | None] = []
        for output in outputs:
            places.refuse_input(output.name, output.place, inputs)
            places.refuse_same(output.name, output.place, taken)
            taken.append(output.place)
        self.to_stdout = any(output.is_stdout for output in outputs)
        """Whether standard output is taken."""
        self.people = sys.stderr if self.to_stdout else sys.stdout
        """Where people are told."""
        if self.summary is not None:
            there = place_at(self.summary)
            places.refuse_same(str(self.summary), there, [place_of(self.people), *taken])
            places.refuse_stderr(str(self.summary), there)

    def _output(self, path: str, append: bool) -> Output:
        place, out = place_at(path), sys.stdout
        if path == STDIN or places.same(place, place_of(out)):
            if is_closed(out):
                out.write("\n")  # brings the error that any write to it does
            raw: Any = getattr(out.buffer, "raw", out.buffer)
            return Output(raw, shown(STDIN), place_of(out), owned=False, escape=places.is_terminal(out))
        places.refuse_stderr(path, place)
        there = os.path.lexists(path)
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else 0)
        number = os.open(path, flags | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0), 0o666)
        if not there:
            self._made.append(path)
        return Output(open(number, "wb", buffering=0), path, place_of(number), owned=True)

    def _overwrite(self, stale: list[str], append: bool) -> None:
        outputs = self._outputs()
        for name in _leftovers(stale, [output.place for output in outputs]):
            os.unlink(name)
        for output in outputs:
            output.begin(append=append and output is self._audit)

    def _undo(self) -> None:
        for output in self._outputs():
            with suppress(OSError):
                output.close()
        for name in self._made:
            with suppress(OSError):
                os.unlink(name)

    def _outputs(self) -> list[Output]:
        return [output for output in (self._audit, self._actions) if output is not None]

    # -- one step after the other ----------------------------------------------------------------------------

    def _connect(self, sink: JsonlAudit | None) -> None:
        writer = None
        if self._actions is not None:
            self._actions.when_full = self._hand_over
            writer = ActionWriter(cast(Any, self._actions), self._actions.name)

        def on_action(action: Action) -> None:
            if self._failed is not None and not isinstance(self._failed, BrokenPipeError):
                raise self._failed  # it is not in the audit, and so did not happen
            if writer is not None:
                writer(action)

        if sink is not None or writer is not None:
            self.on_action = on_action if sink is not None else writer
        if sink is not None:
            self.observers.append(self._guard(sink))

    def _guard(self, sink: JsonlAudit) -> Callable[[AuditRecord], None]:
        """The registry would log each record that the disk refuses; here the first refusal stops the run."""

        def observe(record: AuditRecord) -> None:
            if self._failed is None:
                try:
                    sink(record)
                except OSError as error:
                    self._fail(error)

        return observe

    def watched(self, events: Iterable[_T]) -> Iterable[_T]:
        """The events, with ``step_over`` called before each."""
        return events if self._audit is None else self._watched(events)

    def _watched(self, events: Iterable[_T]) -> Iterator[_T]:
        for event in events:
            self.step_over()
            yield event

    def step_over(self) -> None:
        """A step is complete. Raises ``OSError`` if its audit could not be written: none may come after it."""
        audit = self._audit
        if audit is None:
            return
        if self._failed is not None:
            raise self._failed
        self._marks.append((audit.taken, 0 if self._actions is None else self._actions.taken))
        if audit.waiting >= _AHEAD:
            self._hand_over()

    def flush(self) -> None:
        """A step is complete; hand everything to the operating system."""
        self.step_over()
        self._hand_over()

    def _hand_over(self) -> None:
        if self._audit is not None and self._failed is None:
            try:
                self._audit.flush()
            except OSError as error:
                self._fail(error)
                raise
        if self._actions is not None:
            self._actions.flush()
        del self._marks[:-1]

    def _fail(self, error: OSError) -> None:
        """The audit can be written no more. Unless it is only that nobody wants to read it, what came after the
        last step that it has in full is taken back."""
        assert self._audit is not None
        self._failed = error
        if isinstance(error, BrokenPipeError):
            return
        audit, actions = max(mark for mark in self._marks if mark[0] <= self._audit.written)
        self._audit.cut(audit)
        if self._actions is not None:
            self._actions.cut(actions)

    # -- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Hand over and close what is open. Raises the first ``OSError``, when all are closed; that of a reader
        who went away only if there is no other."""
        found = [] if self._failed is None else [self._failed]
        try:
            self._hand_over()
        except OSError as error:
            found.append(error)
        for output in self._outputs():
            try:
                output.close()
            except OSError as error:
                found.append(error)
        self._audit = self._actions = self._failed = None
        if found:
            raise min(found, key=lambda error: isinstance(error, BrokenPipeError))

    def close_quietly(self) -> None:
        """The same, and raise nothing."""
        with suppress(OSError):
            self.close()


def _sink(output: Output, path: str, append: bool, fixed_ts: bool) -> JsonlAudit:
    if path.endswith(".gz"):
        raise CfgFsmError(f"{path}: an audit log is written plain; gzip is for reading")
    prev = ZEROS
    if append:
        regular = output.place is not None and output.place.regular
        before = f"/dev/fd/{sys.stdout.fileno()}" if path == STDIN and regular else path
        prev = ZEROS if before == STDIN else last_hash(before)
    target = cast(Any, output)
    return JsonlAudit(target, clock=None, prev=prev) if fixed_ts else JsonlAudit(target, prev=prev)


def _leftovers(stale: list[str], kept: list[Place | None]) -> Iterator[str]:
    """What an older run left in the directory and this one does not open: it would contradict the rest.

    A standard stream may go there, and so may an output that was named by another path.
    """
    taken = [*kept, *map(place_of, range(3))]
    for name in stale:
        there = place_at(name)
        if os.path.lexists(name) and not any(places.same(there, one) for one in taken):
            yield name
