"""The command line: ``cfg-fsm run``, ``diagram``, ``explain``, ``verify`` and ``explore``.

What a user did wrong ends in one line on standard error and an exit code; a traceback is a defect of the program.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from enum import Enum
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cfg_fsm import __version__
from cfg_fsm.cli_audit import explain, verify
from cfg_fsm.cli_files import Files
from cfg_fsm.cli_run import execute, parse_limits
from cfg_fsm.console import EXIT_CODES, OK, lost_stdout, naming, user_errors
from cfg_fsm.events import Limits
from cfg_fsm.explore import cli as explorer
from cfg_fsm.traces import STDIN, LineSource, printable

_SAMPLE = "omni-small.events.jsonl"

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
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
        code = lost_stdout(error) or code
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
      cfg-fsm verify run-out/audit.jsonl
      cfg-fsm diagram parent --format svg -o parent.svg
    """


# ---------------------------------------------------------------------------
# run
# ---------------------------------------------------------------------------


@app.command(epilog=EXIT_CODES, short_help="Run a trace and sum up what became of it.")
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
    fixed_ts: Annotated[
        bool,
        typer.Option(
            "--fixed-ts",
            help="Stamp the audit with the time of the events (ts is at, in UTC seconds from 1970) in place of "
            "the time of day, so that two runs of a trace give the same bytes.",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Make this directory, with actions.jsonl, audit.jsonl and summary.json. What an older run left "
            "of them is removed (with --append, all but the audit).",
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
    with exit code 2; what was done up to there is written and summed up. So it is, with exit code 0 and nothing
    said, when the reader of standard output goes away.

    \b
    Examples:
      cfg-fsm run trace.jsonl.gz --limits deferred_s=30,silent_s=5 --drain
      cfg-fsm run trace.jsonl --out run-out
      my-scheduler | cfg-fsm run - --actions - | my-host
    """
    if (trace is None) is not sample:
        both = "" if trace is None else ", not both"
        raise typer.BadParameter(f"give a TRACE (- for standard input), or --sample{both}", param_hint="'TRACE'")
    for option, given in (("--append", append), ("--fixed-ts", fixed_ts)):
        if given and audit is None and out is None:
            raise typer.BadParameter("it needs --audit or --out", param_hint=f"'{option}'")
    with user_errors(), ExitStack() as stack:
        bounds = parse_limits(limits or [])
        if trace is None:
            packaged = resources.files("cfg_fsm") / "samples" / _SAMPLE
            trace = str(stack.enter_context(resources.as_file(packaged)))
        source = stack.enter_context(LineSource(trace))
        files = Files(source, actions, audit, out, append=append, fixed_ts=fixed_ts)
        stack.callback(files.close_quietly)
        code = execute(source, files, bounds, skip_bad=skip_bad, drain=drain, as_json=as_json)
    raise typer.Exit(code)


# ---------------------------------------------------------------------------
# diagram
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


@app.command(epilog=EXIT_CODES, short_help="Draw a state machine from the tables that run.")
def diagram(
    name: Annotated[
        DiagramName, typer.Argument(metavar="NAME", help="parent, companion or coupling.")
    ] = DiagramName.PARENT,
    format: Annotated[
        DiagramFormat | None,
        typer.Option(
            metavar="FORMAT",
            help="mermaid, dot, svg or png. If not given: what the ending of --output says, else mermaid.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write to this file, or - for standard output."),
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
    if str(output) == STDIN:
        output = None
    wanted = "mermaid" if format is None else format.value
    if format is None and output is not None:
        if output.suffix.lower() not in _BY_ENDING:
            why = f"the ending of '{printable(output.name)}' names no format; give --format, or one of the endings"
            raise typer.BadParameter(f"{why} {', '.join(_BY_ENDING)}", param_hint="'--output'")
        wanted = _BY_ENDING[output.suffix.lower()]
    if wanted == "png" and output is None and sys.stdout.isatty():
        raise typer.BadParameter("a PNG does not go to a terminal; give -o FILE", param_hint="'--format'")
    with user_errors():
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


# ---------------------------------------------------------------------------
# the others
# ---------------------------------------------------------------------------

app.command(epilog=EXIT_CODES, short_help="Tell the story of one request from an audit.")(explain)
app.command(epilog=EXIT_CODES, short_help="Check the chain of hashes of an audit.")(verify)
app.command(epilog=explorer.EXIT_CODES, short_help="Drive the engine through every order of events.")(
    explorer.explore
)
