"""The machinery of ``cfg-fsm run``: its limits, the files it writes, interruption and progress."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import typer
from pydantic import ValidationError

from cfg_fsm.audit.record import AuditRecord
from cfg_fsm.audit.sinks import JsonlAudit
from cfg_fsm.console import BAD, INTERRUPTED, OK, naming, say, sentence, shown
from cfg_fsm.errors import BadLine, CfgFsmError
from cfg_fsm.events import Limits
from cfg_fsm.registry import Registry
from cfg_fsm.report import render
from cfg_fsm.runner import ActionWriter, Run
from cfg_fsm.traces import STDIN, DamagedFile, LineSource, printable, read_events

_BUFFER = 1 << 16
_LONG_INPUT = 4 << 20
_BAR_EVERY_S = 0.1


def parse_limits(texts: list[str]) -> Limits:
    """The limits that ``--limits`` options describe. Raises ``typer.BadParameter`` for a wrong name or value, and
    ``OSError`` for a file that cannot be read."""
    values: dict[str, Any] = {}
    for text in texts:
        pairs = _limits_object(text) if text.lstrip()[:1] in ("@", "{") else _limits_pairs(text)
        for name, value in pairs.items():
            if name in values:
                raise _bad_limits(f"{name} is given twice")
            values[name] = value
    for name in values:
        if name not in Limits.model_fields:
            close = get_close_matches(name, Limits.model_fields, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise _bad_limits(
                f"there is no limit {printable(name)!r}; {hint}the names are: {', '.join(Limits.model_fields)}"
            )
    try:
        return Limits.model_validate(values)
    except ValidationError as error:
        wrong = [f"{details['loc'][0]}: {details['msg']}" for details in error.errors(include_url=False)]
        raise _bad_limits("; ".join(wrong)) from None


def _bad_limits(why: str) -> typer.BadParameter:
    return typer.BadParameter(why, param_hint="--limits")


def _limits_pairs(text: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise _bad_limits(f"{printable(pair)!r} is not NAME=VALUE, as in deferred_s=30")
        if name in pairs:
            raise _bad_limits(f"{name} is given twice")
        try:
            pairs[name] = None if value == "none" else json.loads(value)
        except ValueError:
            pairs[name] = value  # no number: the model says what it wants
    if not pairs:
        raise _bad_limits("it is empty; give NAME=VALUE pairs, as in deferred_s=30")
    return pairs


def _limits_object(text: str) -> dict[str, Any]:
    where = "the JSON object"
    if text.startswith("@"):
        where = text[1:]
        text = Path(where).read_text(encoding="utf-8", errors="replace")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise _bad_limits(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _bad_limits(f'{where} must hold one object, as in {{"deferred_s": 30}}')
    return found


class Files:
    """The files that a run writes. An ``OSError`` that comes out of here names its file."""

    def __init__(
        self, source: LineSource, actions: str | None, audit: str | None, out: Path | None, append: bool
    ) -> None:
        self.summary: Path | None = None
        """Where the summary goes, if to a file."""
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            actions = actions or str(out / "actions.jsonl")
            audit = audit or str(out / "audit.jsonl")
            self.summary = out / "summary.json"
        self.names = [name for name in (actions, audit) if name is not None]
        if self.summary is not None:
            self.names.append(str(self.summary))
        self.to_stdout = STDIN in self.names
        """Whether standard output is taken, so that people are told on standard error."""
        _refuse_clash(source.path, self.names)
        self.on_action: ActionWriter | None = None
        self.observers: list[Callable[[AuditRecord], None]] = []
        self._open: list[tuple[str, BinaryIO | JsonlAudit]] = []
        self._audit_error: OSError | None = None
        if audit is not None:
            # Opened first: if it must not be appended to, the actions are not overwritten either.
            sink = JsonlAudit(sys.stdout.buffer if audit == STDIN else audit, append=append)
            self._open.append((audit, sink))
            self.observers.append(self._guard(sink))
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

    def close(self, *, quietly: bool = False) -> None:
        """Close what is open; standard output is only flushed. ``quietly``: raise nothing."""
        first = self._audit_error
        while self._open:
            name, file = self._open.pop()
            try:
                with naming(name):
                    file.flush() if name == STDIN else file.close()
            except OSError as error:
                first = first or error
        if first is not None and not quietly:
            raise first


def _refuse_clash(trace: str, outputs: list[str]) -> None:
    """Raise ``CfgFsmError`` if one file would be written twice, or the trace overwritten while it is read."""
    for number, name in enumerate(outputs):
        if any(name == other or os.path.realpath(name) == os.path.realpath(other) for other in outputs[:number]):
            raise CfgFsmError(f"{shown(name)}: two outputs of the run cannot go to the same place")
        if os.path.isfile(name) and os.path.isfile(trace) and os.path.samefile(name, trace):
            raise CfgFsmError(f"{name}: this is the trace; it would be overwritten")


def execute(
    source: LineSource, files: Files, limits: Limits, *, skip_bad: bool, drain: bool, as_json: bool
) -> int:
    """Run the trace, write and say what became of it. The exit code.

    An ``OSError`` of standard output passes through.
    """
    job = Run(Registry(limits, files.observers), files.on_action)
    stopped, code = None, OK
    try:
        with _progress(source, files) as bar, interruptible(source) as check:

            def before_read() -> None:
                check()
                files.flush()
                bar()

            source.before_read = before_read
            job.feed(read_events(source, job.skip if skip_bad else None))
            if drain:
                job.drain()
        files.close()
    except BadLine as error:
        hint = "" if isinstance(error, DamagedFile) else " (--skip-bad goes on after such a line)"
        stopped, code = f"{error}{hint}", BAD
    except BrokenPipeError:  # nobody reads any more: no error of the run
        raise
    except OSError as error:
        stopped, code = sentence(error), BAD
    except KeyboardInterrupt:
        stopped, code = "interrupted", INTERRUPTED
    files.close(quietly=True)
    summary = job.summary()
    data = {**summary.to_dict(), "stopped": stopped}
    if files.summary is not None:
        files.summary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    show = sys.stderr if files.to_stdout else sys.stdout
    text = json.dumps(data, indent=2) if as_json else render(summary, show.isatty())
    if files.summary is not None and not as_json:
        text += f"\nwritten: {', '.join(files.names)}"
    try:
        with naming("<stderr>" if files.to_stdout else STDIN):
            print(text, file=show, flush=True)
    finally:
        if stopped is not None:
            say(stopped)
    return code


@contextmanager
def interruptible(source: LineSource) -> Iterator[Callable[[], None]]:
    """Let Ctrl-C end the run between two steps, so that actions and audit agree to the last line.

    Gives a function to be called before each read, which raises ``KeyboardInterrupt`` if it was pressed. While a
    read waits, and the second time, it is raised at once.
    """
    pressed = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal pressed
        if pressed or source.reading:
            raise KeyboardInterrupt
        pressed = True

    def check() -> None:
        if pressed:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGINT, on_signal)
    try:
        yield check
        check()
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress(source: LineSource, files: Files) -> Iterator[Callable[[], None]]:
    """A bar on standard error for long input, if that is a terminal; gives a function that moves it."""
    long = source.size is None or source.size >= _LONG_INPUT
    if not long or not sys.stderr.isatty() or (files.to_stdout and sys.stdout.isatty()):
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    shown = [TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()]
    with Progress(*shown, console=Console(stderr=True), transient=True, auto_refresh=False) as progress:
        task = progress.add_task("events", total=source.size)
        due = 0.0

        def move() -> None:
            nonlocal due
            now = time.monotonic()
            if now >= due:
                due = now + _BAR_EVERY_S
                progress.update(
                    task, completed=source.position, description=f"{source.lines:,} events", refresh=True
                )

        yield move
