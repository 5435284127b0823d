"""The command line: ``cfg-fsm run``, ``cfg-fsm diagram``, ``cfg-fsm explain``.

What a user did wrong ends in one line on standard error and an exit code; a traceback is a defect of the program.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from difflib import get_close_matches
from enum import Enum
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, BinaryIO, NoReturn

import typer
from pydantic import ValidationError

from cfg_fsm import __version__
from cfg_fsm.audit.record import AuditRecord
from cfg_fsm.audit.sinks import JsonlAudit
from cfg_fsm.errors import BadLine, CfgFsmError
from cfg_fsm.events import Limits
from cfg_fsm.registry import Registry
from cfg_fsm.runner import ActionWriter, Run, Summary
from cfg_fsm.traces import STDIN, DamagedFile, LineSource, printable, read_events

OK, NOT_FOUND, BAD, INTERRUPTED = 0, 1, 2, 130

_SAMPLE = "omni-small.events.jsonl"
_BUFFER = 1 << 16
_LONG_INPUT = 4 << 20
_BAR_EVERY_S = 0.1
_EXIT_CODES = (
    "Exit codes: 0 ok; 1 not found; 2 bad usage, bad input, or a file that cannot be used; 130 interrupted."
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=_EXIT_CODES,
)


def main() -> NoReturn:
    """The entry point. Ends the process with an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # an id may have characters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")
    code: Any = OK
    try:
        app(prog_name="cfg-fsm")
        sys.stdout.flush()
    except SystemExit as end:
        code = OK if isinstance(end.__context__, BrokenPipeError) else end.code
    except OSError as error:  # of standard output: the commands answer for their own
        code = _lost_stdout(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = _lost_stdout(error)
    sys.exit(code)


def _lost_stdout(error: OSError) -> int:
    """Nothing can be written to standard output any more. A closed pipe is no error."""
    with open(os.devnull, "wb") as nowhere:  # for what is still buffered
        os.dup2(nowhere.fileno(), 1)
    if isinstance(error, BrokenPipeError):
        return OK
    _say(f"<stdout>: {error.strerror}")
    return BAD


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"cfg-fsm {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Run, draw and explain the state machines that join the companions of guided requests.

    \b
    Try it:
      cfg-fsm run --sample                     run the recorded trace that comes with the package
      cfg-fsm run --sample --out run-out       ... and keep its actions, audit and summary
      cfg-fsm explain ID --audit run-out/audit.jsonl
      cfg-fsm diagram parent --format svg -o parent.svg
    """


# ---------------------------------------------------------------------------
# run
# ---------------------------------------------------------------------------


@app.command(epilog=_EXIT_CODES, short_help="Run a trace and sum up what became of it.")
def run(
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="TRACE", help="Events as JSON lines: a file, plain or gzip, or - for standard input."
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Run the trace that comes with the package.")] = False,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            metavar="LIMITS",
            help="Limits of the registry: NAME=VALUE pairs separated by commas (deferred_s=30,silent_s=5), a JSON "
            "object, or @FILE with one. May be given again. Names: " + ", ".join(Limits.model_fields) + ".",
        ),
    ] = None,
    actions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write the actions as JSON lines to this file (overwritten), or - for standard output.",
        ),
    ] = None,
    audit: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Write the audit as JSON lines to this file (overwritten, unless --append), or -."
        ),
    ] = None,
    append: Annotated[bool, typer.Option("--append", help="Append to the audit; its chain goes on.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Make this directory, with actions.jsonl, audit.jsonl and summary.json (overwritten).",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Count lines that are no events and go on.")
    ] = False,
    drain: Annotated[
        bool, typer.Option("--drain", help="When the trace is over, let all deadlines that are left come.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Dispatch the events of a trace, and sum up what became of it.

    The clock is played: before each event the deadlines that come before it end their parents. The summary goes
    to standard output, or to standard error if actions or audit go there. A line that is no event stops the run
    with exit code 2; what was done up to there is written and summed up.

    \b
    Examples:
      cfg-fsm run trace.jsonl.gz --limits deferred_s=30,silent_s=5 --drain
      cfg-fsm run trace.jsonl --out run-out
      my-scheduler | cfg-fsm run - --actions - | my-host
    """
    if (trace is None) is not sample:
        raise typer.BadParameter("give a TRACE (- for standard input), or --sample", param_hint="TRACE")
    if append and audit is None and out is None:
        raise typer.BadParameter("it needs --audit or --out", param_hint="--append")
    with _user_errors(), ExitStack() as stack:
        bounds = parse_limits(limits or [])
        if trace is None:
            packaged = resources.files("cfg_fsm") / "samples" / _SAMPLE
            trace = str(stack.enter_context(resources.as_file(packaged)))
        source = stack.enter_context(LineSource(trace))
        files = _Files(source, actions, audit, out, append)
        stack.callback(files.close, quietly=True)
        code = _run(source, files, bounds, skip_bad=skip_bad, drain=drain, as_json=as_json)
    raise typer.Exit(code)


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


class _Files:
    """The files that a run writes. An ``OSError`` that comes out of here names its file."""

    def __init__(
        self, source: LineSource, actions: str | None, audit: str | None, out: Path | None, append: bool
    ) -> None:
        self.summary: Path | None = None
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            actions = actions or str(out / "actions.jsonl")
            audit = audit or str(out / "audit.jsonl")
            self.summary = out / "summary.json"
        self.names = [name for name in (actions, audit) if name is not None]
        if self.summary is not None:
            self.names.append(str(self.summary))
        self.to_stdout = STDIN in self.names
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
            self.on_action = ActionWriter(stream, _shown(actions))

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
            with _naming(name):
                file.flush()

    def close(self, *, quietly: bool = False) -> None:
        """Close what is open; standard output is only flushed."""
        first: OSError | None = None
        while self._open:
            name, file = self._open.pop()
            try:
                with _naming(name):
                    file.flush() if name == STDIN else file.close()
            except OSError as error:
                first = first or error
        if first is not None and not quietly:
            raise first


def _refuse_clash(trace: str, outputs: list[str]) -> None:
    """Raise if one file would be written twice, or the trace overwritten while it is read."""
    for number, name in enumerate(outputs):
        if any(name == other or os.path.realpath(name) == os.path.realpath(other) for other in outputs[:number]):
            raise CfgFsmError(f"{_shown(name)}: two outputs of the run cannot go to the same place")
        if os.path.isfile(name) and os.path.isfile(trace) and os.path.samefile(name, trace):
            raise CfgFsmError(f"{name}: this is the trace; it would be overwritten")


def _run(source: LineSource, files: _Files, limits: Limits, *, skip_bad: bool, drain: bool, as_json: bool) -> int:
    job = Run(Registry(limits, files.observers), files.on_action)
    stopped, code = None, OK
    try:
        with _progress(source, files) as bar, _interruptible(source) as check:

            def before_read() -> None:
                check()
                files.flush()
                bar()

            source.before_read = before_read
            job.feed(read_events(source, job.skip if skip_bad else None))
            if drain:
                job.drain()
        files.flush()
        files.close()
    except BadLine as error:
        hint = "" if isinstance(error, DamagedFile) else " (--skip-bad goes on after such a line)"
        stopped, code = f"{error}{hint}", BAD
    except BrokenPipeError:
        raise
    except OSError as error:
        stopped, code = _sentence(error), BAD
    except KeyboardInterrupt:
        stopped, code = "interrupted", INTERRUPTED
    files.close(quietly=stopped is not None)
    summary = job.summary()
    data = {**summary.to_dict(), "stopped": stopped}
    if files.summary is not None:
        files.summary.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    show = sys.stderr if files.to_stdout else sys.stdout
    text = json.dumps(data, indent=2) if as_json else render(summary, show.isatty())
    if files.summary is not None and not as_json:
        text += f"\nwritten: {', '.join(files.names)}"
    try:
        with _naming("<stderr>" if files.to_stdout else STDIN):
            print(text, file=show, flush=True)
    finally:
        if stopped is not None:
            _say(stopped)
    return code


@contextmanager
def _interruptible(source: LineSource) -> Iterator[Callable[[], None]]:
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
def _progress(source: LineSource, files: _Files) -> Iterator[Callable[[], None]]:
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


# ---------------------------------------------------------------------------
# The summary, for people
# ---------------------------------------------------------------------------

_Row = tuple[str, ...]
_Section = tuple[str, _Row, list[_Row]]


def _sections(summary: Summary) -> Iterator[_Section]:
    parents = {**summary.parents, "aborted by the client": summary.parents["aborted"]}
    order = ("registered", "forwarded", "finished", "failed", "aborted by the client", "live")
    yield "Parents", ("outcome", "parents"), [(name, f"{parents[name]:,}") for name in order]
    yield (
        "Failures",
        ("reason", "parents", "for example"),
        [
            (reason, f"{one['count']:,}", printable(str(one["example"])))
            for reason, one in summary.failures.items()
        ],
    )
    for title, refused in (("Ignored events", summary.ignored), ("Rejected events", summary.rejected)):
        rows: list[_Row] = [(reason, f"{one['count']:,}", str(one["line"])) for reason, one in refused.items()]
        yield title, ("reason", "events", "first in line"), rows
    wait = summary.join_wait
    labels = {"forwards": "forwards", "at_once": "at once", "waited": "after a wait"}
    rows = [(label, f"{wait[key]:,}") for key, label in labels.items()]
    rows += [
        (f"wait {key[:-2]}", f"{wait[key]:.3f} s") for key in wait if key.endswith("_s") and wait[key] is not None
    ]
    yield "Join wait", ("", ""), rows
    live = [f"{count:,} {kind}{'' if count == 1 else 's'}" for kind, count in _live(summary)]
    yield "Actions", ("type", "actions"), [(name, f"{count:,}") for name, count in summary.actions.items()]
    yield (
        f"Still live ({' and '.join(live)}), the oldest",
        ("parent", "state", "for", "waiting for"),
        [
            (printable(one["request_id"]), one["state"], f"{one['age_s']:.3f} s", _awaited(one))
            for one in summary.live["oldest"]
        ],
    )
    bad: list[_Row] = [(line,) for line in summary.bad_lines["first"]]
    yield f"Skipped lines ({summary.bad_lines['count']:,}), the first", ("",), bad


def _live(summary: Summary) -> Iterator[tuple[str, int]]:
    yield "parent", summary.live["parents"]
    yield "companion", summary.live["companions"]


def _awaited(one: dict[str, Any]) -> str:
    awaited = [f"{printable(role)} ({printable(name)})" for role, name in one["missing"].items()]
    return ", ".join(awaited + ([] if one["sealed"] else ["sealing"])) or "-"


def render(summary: Summary, terminal: bool) -> str:
    """The summary as text: rich tables for a terminal, else aligned columns without colour."""
    sections = [section for section in _sections(summary) if section[2]]
    last = (
        f"{summary.events:,} events and {summary.ticks:,} clock ticks in {summary.seconds:.2f} s: "
        f"{summary.events_per_second:,.0f} events/s"
    )
    if summary.audit_errors:
        last += f"\n{summary.audit_errors:,} audit records could not be written"
    if terminal:
        return _tables(sections) + last
    return "\n\n".join([*(_columns(*section) for section in sections), last])


def _columns(title: str, heads: _Row, rows: list[_Row]) -> str:
    table = [heads, *rows] if any(heads) else rows
    widths = [max(len(row[i]) for row in table) for i in range(len(heads))]
    lines = [
        "  ".join(f"{cell:>{width}}" if i == 1 and len(heads) < 4 else f"{cell:<{width}}"
                  for i, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in table
    ]  # fmt: skip
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _tables(sections: list[_Section]) -> str:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    with console.capture() as capture:
        for title, heads, rows in sections:
            table = Table(title=Text(title, "bold"), title_justify="left", box=SIMPLE_HEAD, show_header=any(heads))
            for i, head in enumerate(heads):
                table.add_column(
                    Text(head), justify="right" if i == 1 and len(heads) < 4 else "left", overflow="fold"
                )
            for row in rows:
                table.add_row(*(Text(cell) for cell in row))
            console.print(table)
    return capture.get()


# ---------------------------------------------------------------------------
# diagram and explain
# ---------------------------------------------------------------------------


class DiagramName(str, Enum):
    """The diagrams there are."""

    PARENT = "parent"
    COMPANION = "companion"
    COUPLING = "coupling"


class DiagramFormat(str, Enum):
    """What they can be drawn as."""

    MERMAID = "mermaid"
    DOT = "dot"
    SVG = "svg"
    PNG = "png"


_BY_ENDING = {".mmd": "mermaid", ".mermaid": "mermaid", ".dot": "dot", ".gv": "dot", ".svg": "svg", ".png": "png"}


@app.command(epilog=_EXIT_CODES, short_help="Draw a state machine from the tables that run.")
def diagram(
    name: Annotated[
        DiagramName, typer.Argument(metavar="NAME", help="parent, companion or coupling.")
    ] = DiagramName.PARENT,
    format: Annotated[
        DiagramFormat | None,
        typer.Option(
            metavar="FORMAT",
            help="mermaid, dot, svg or png; mermaid, unless the ending of --output says otherwise.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file.")
    ] = None,
) -> None:
    """Draw a state machine, or what couples them, from the tables that run.

    SVG and PNG need Graphviz: a `dot` program, or the extra `render`.

    \b
    Examples:
      cfg-fsm diagram parent
      cfg-fsm diagram coupling --format dot | dot -Tpdf > coupling.pdf
      cfg-fsm diagram companion -o companion.svg
    """
    ending = "" if output is None else output.suffix.lower()
    wanted = format.value if format is not None else _BY_ENDING.get(ending, "mermaid")
    if wanted == "png" and output is None and sys.stdout.isatty():
        raise typer.BadParameter("a PNG does not go to a terminal; give -o FILE", param_hint="--format")
    with _user_errors():
        from cfg_fsm import diagrams

        if wanted in ("svg", "png"):
            data = diagrams.image(name.value, wanted)
        else:
            data = diagrams.text(name.value, wanted).encode()
        if output is not None:
            output.write_bytes(data)
        else:
            with _naming(STDIN):
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()


@app.command(epilog=_EXIT_CODES, short_help="Tell the story of one request from an audit.")
def explain(
    request_id: Annotated[str, typer.Argument(metavar="ID", help="A parent or a companion.")],
    audit: Annotated[
        str, typer.Option(metavar="FILE", help="The audit log: a file, plain or gzip, or - for standard input.")
    ],
) -> None:
    """Tell the story of one request and its group, from the audit of a run or a server.

    One line per step, in time order; the last line says why it ended or what it is waiting for. A log that is cut
    off at a bad line is told up to there, with exit code 2.

    \b
    Example:
      cfg-fsm run --sample --audit audit.jsonl
      cfg-fsm explain chatcmpl-1f229dd06aa8b9e0 --audit audit.jsonl
    """
    from cfg_fsm.audit.explain import NotInAudit
    from cfg_fsm.audit.explain import explain as tell
    from cfg_fsm.audit.reading import AuditFile, AuditLine, read_audit

    damage: list[BadLine] = []

    class UpToDamage(AuditFile):
        def __iter__(self) -> Iterator[AuditLine]:
            damage.clear()
            try:
                yield from read_audit(self.path)
            except BadLine as error:
                damage.append(error)

    log = UpToDamage(audit)
    with _user_errors():
        try:
            story = tell(list(log) if audit == STDIN else log, request_id)
        except NotInAudit as error:
            for bad in damage:
                _say(f"{bad}; the log was read up to there")
            _say(str(error))
            raise typer.Exit(BAD if damage else NOT_FOUND) from None
        with _naming(STDIN):
            print("\n".join(story), flush=True)
    for bad in damage:
        _say(f"{bad}; the story is told up to there")
        raise typer.Exit(BAD)


# ---------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn what a user can do wrong into one line and an exit code. A closed pipe is no error."""
    try:
        yield
    except BrokenPipeError as error:
        raise typer.Exit(_lost_stdout(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except CfgFsmError as error:
        _say(str(error))
        raise typer.Exit(BAD) from None
    except OSError as error:
        _say(_sentence(error))
        raise typer.Exit(BAD) from None


@contextmanager
def _naming(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = error.filename or _shown(name)
        raise


def _shown(name: str) -> str:
    return "<stdout>" if name == STDIN else name


def _sentence(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename is not None else ""
    return where + (error.strerror or str(error))


def _say(message: str) -> None:
    print(f"cfg-fsm: {message}", file=sys.stderr, flush=True)
