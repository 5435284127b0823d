"""The course of ``cfg-fsm run``: interruption, progress, and what is said at the end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from cfg_fsm.cli.console import BAD, OK, is_of_stdout, naming, say, sentence
from cfg_fsm.cli.files import Files
from cfg_fsm.cli.places import is_terminal
from cfg_fsm.cli.signals import Stopped, end_at_once, exit_code, hearing, word
from cfg_fsm.cli.streams import STDERR, STDOUT, forget
from cfg_fsm.engine.registry import Registry
from cfg_fsm.errors import BadLine
from cfg_fsm.limits import Limits
from cfg_fsm.lines import DamagedFile, LineSource, printable
from cfg_fsm.trace.reading import read_events
from cfg_fsm.trace.run import Run
from cfg_fsm.trace.summary import Summary, render

LEFT = "the reader of standard output went away"
"""Why a run stopped whose output goes into a pipe that was closed."""

_LONG_INPUT = 4 << 20
_BAR_EVERY_S = 0.1


def execute(
    source: LineSource, files: Files, limits: Limits, *, skip_bad: bool, drain: bool, as_json: bool
) -> int:
    """Run the trace, write and say what became of it. The exit code.

    A closed pipe ends the run without an error; any other ``OSError`` of standard output passes through.
    """
    with interruptible(source) as check:

        def between_steps() -> None:
            check()
            files.step_over()

        job = Run(Registry(limits, files.observers), files.on_action, before_tick=between_steps)
        stopped, code, said = _feed(job, source, files, check, skip_bad, drain)
        try:
            files.close()
        except OSError as error:
            if stopped is None or not said:
                stopped, code, said = _refused(error)
        stopped = None if stopped is None else printable(stopped)  # a name may be no text that JSON can have
        summary = job.summary()
        data = {**summary.to_dict(), "stopped": stopped}
        if files.summary is not None:
            try:
                _write(files.summary, json.dumps(data, indent=2, allow_nan=False) + "\n")
            except OSError as error:
                files.names.remove(str(files.summary))
                if stopped is None or not said:
                    stopped, code, said = sentence(error), BAD, True
        if not said:
            return code
        try:
            if as_json or stopped is None or summary.events or summary.bad_lines["count"]:
                _show(files, json.dumps(data, indent=2, allow_nan=False) if as_json else _text(files, summary))
        except BrokenPipeError:
            forget(1)
        finally:
            if stopped is not None:
                say(stopped)
    return code


def _feed(
    job: Run, source: LineSource, files: Files, check: Callable[[], None], skip_bad: bool, drain: bool
) -> tuple[str | None, int, bool]:
    """Run the trace: why the run stopped before its end, the exit code, and whether people are told."""
    try:
        with _progress(source, files) as bar:

            def before_read() -> None:
                source.reading = False  # first what was done is written, and a signal can wait for that
                files.flush()
                bar()
                source.reading = True
                check()

            source.before_read = before_read
            job.feed(files.watched(read_events(source, job.skip if skip_bad else None)))
            if drain:
                job.drain()
        files.close()
        check()
    except BadLine as error:
        hint = "" if isinstance(error, DamagedFile) else " (--skip-bad goes on after such a line)"
        return f"{error}{hint}", BAD, True
    except OSError as error:
        return _refused(error)
    except KeyboardInterrupt as stop:
        return word(stop), exit_code(stop), True
    return None, OK, True


def _refused(error: OSError) -> tuple[str, int, bool]:
    """An output took no more: why the run stopped, the exit code, and whether people are told."""
    closed = isinstance(error, BrokenPipeError)
    if closed or is_of_stdout(error):
        forget(1)
    return (LEFT, OK, False) if closed else (sentence(error), BAD, True)


def _write(path: Path, text: str) -> None:
    """Write a file in full, or leave none."""
    try:
        with naming(str(path)):
            path.write_text(text, encoding="utf-8")
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise


def _text(files: Files, summary: Summary) -> str:
    text = render(summary, is_terminal(files.people))
    names = ", ".join(map(printable, files.names))
    return text if files.summary is None else f"{text}\nwritten: {names}"


def _show(files: Files, text: str) -> None:
    with naming(STDERR if files.to_stdout else STDOUT):
        print(text, file=files.people, flush=True)


class _Heard:
    """Whether a signal was heard. Called between two steps: raises ``Stopped``, once, if so."""

    def __init__(self, source: LineSource) -> None:
        self._source = source
        self._number: int | None = None
        self._times = 0
        self._raised = False

    def __call__(self) -> None:
        if self._number is not None and not self._raised:
            self._raised = True
            raise Stopped(self._number)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """A signal came."""
        self._number, self._times = number, self._times + 1
        if self._times > 2:  # what it was doing then does not end
            end_at_once(number)
        if self._times > 1 or self._source.reading:
            self._raised = True
            raise Stopped(number)


@contextmanager
def interruptible(source: LineSource) -> Iterator[Callable[[], None]]:
    """Let a signal end the run between two steps, so that actions and audit agree to the last line.

    Gives a function to be called between steps, which raises ``Stopped`` if one came. While a read waits, and the
    second time, it is raised at once; the third time the process ends.
    """
    heard = _Heard(source)
    with hearing(heard.on_signal):
        yield heard
        heard()


@contextmanager
def _progress(source: LineSource, files: Files) -> Iterator[Callable[[], None]]:
    """A bar on standard error for long input, if that is a terminal; gives a function that moves it."""
    long = source.size is None or source.size >= _LONG_INPUT
    if not long or not is_terminal(sys.stderr) or (files.to_stdout and is_terminal(sys.stdout)):
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
