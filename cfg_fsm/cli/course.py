"""The course of ``cfg-fsm run``: interruption, progress, and what is said at the end."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from cfg_fsm.cli.console import BAD, INTERRUPTED, OK, forget_stdout, naming, say, sentence, shown
from cfg_fsm.cli.files import Files
from cfg_fsm.engine.registry import Registry
from cfg_fsm.errors import BadLine
from cfg_fsm.limits import Limits
from cfg_fsm.lines import STDIN, DamagedFile, LineSource
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
    job = Run(Registry(limits, files.observers), files.on_action)
    stopped, code, said = None, OK, True
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
    except OSError as error:
        stopped, code, said = _refused(error)
    except KeyboardInterrupt:
        stopped, code = "interrupted", INTERRUPTED
    try:
        files.close()
    except OSError as error:
        if stopped is None or not said:
            stopped, code, said = _refused(error)
    summary = job.summary()
    data = {**summary.to_dict(), "stopped": stopped}
    if files.summary is not None:
        with naming(str(files.summary)):
            files.summary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    if not said:
        return code
    try:
        if as_json or stopped is None or summary.events or summary.bad_lines["count"]:
            _show(files, json.dumps(data, indent=2) if as_json else _text(files, summary))
    except BrokenPipeError:
        forget_stdout()
    finally:
        if stopped is not None:
            say(stopped)
    return code


def _refused(error: OSError) -> tuple[str, int, bool]:
    """An output took no more: why the run stopped, the exit code, and whether it is said."""
    closed = isinstance(error, BrokenPipeError)
    if closed or error.filename == shown(STDIN):
        forget_stdout()
    return (LEFT, OK, False) if closed else (sentence(error), BAD, True)


def _text(files: Files, summary: Summary) -> str:
    text = render(summary, files.people.isatty())
    return text if files.summary is None else f"{text}\nwritten: {', '.join(files.names)}"


def _show(files: Files, text: str) -> None:
    with naming("<stderr>" if files.to_stdout else STDIN):
        print(text, file=files.people, flush=True)


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
