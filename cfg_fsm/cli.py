"""The command line: ``cfg-fsm run``, ``cfg-fsm diagram``, ``cfg-fsm explain``.

What a user did wrong ends in one line on standard error and an exit code; a traceback is a defect of the program.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cfg_fsm import __version__
from cfg_fsm.audit.explain import NotInAudit
from cfg_fsm.audit.explain import explain as story_of
from cfg_fsm.audit.reading import AuditFile, AuditLine
from cfg_fsm.cli_run import Files, execute, parse_limits
from cfg_fsm.console import BAD, INTERRUPTED, NOT_FOUND, OK, lost_stdout, naming, say, sentence
from cfg_fsm.errors import BadLine, CfgFsmError
from cfg_fsm.events import Limits
from cfg_fsm.traces import STDIN, LineSource

_SAMPLE = "omni-small.events.jsonl"
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
    except SystemExit as end:
        code = OK if isinstance(end.__context__, BrokenPipeError) else end.code
    except OSError as error:  # of standard output: the commands answer for their own
        code = lost_stdout(error)
    try:
        sys.stdout.flush()
    except OSError as error:
        code = lost_stdout(error)
    sys.exit(code)


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
        files = Files(source, actions, audit, out, append)
        stack.callback(files.close, quietly=True)
        code = execute(source, files, bounds, skip_bad=skip_bad, drain=drain, as_json=as_json)
    raise typer.Exit(code)


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
            with naming(STDIN):
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
    log = _UpToDamage(audit)
    with _user_errors():
        try:
            story = story_of(list(log) if audit == STDIN else log, request_id)
        except NotInAudit as error:
            if log.damage is not None:
                say(f"{log.damage}; the log was read up to there")
            say(str(error))
            raise typer.Exit(NOT_FOUND if log.damage is None else BAD) from None
        with naming(STDIN):
            print("\n".join(story), flush=True)
    if log.damage is not None:
        say(f"{log.damage}; the story is told up to there")
        raise typer.Exit(BAD)


class _UpToDamage(AuditFile):
    """A log that ends before its first bad line."""

    damage: BadLine | None = None
    """What is wrong with that line, once it was read."""

    def __iter__(self) -> Iterator[AuditLine]:
        self.damage = None
        try:
            yield from super().__iter__()
        except BadLine as error:
            self.damage = error


# ---------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------


@contextmanager
def _user_errors() -> Iterator[None]:
    """Turn what a user can do wrong into one line and an exit code. A closed pipe is no error."""
    try:
        yield
    except BrokenPipeError as error:
        raise typer.Exit(lost_stdout(error)) from None
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except CfgFsmError as error:
        say(str(error))
        raise typer.Exit(BAD) from None
    except OSError as error:
        say(sentence(error))
        raise typer.Exit(BAD) from None
