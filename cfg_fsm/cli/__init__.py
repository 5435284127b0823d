"""The command line: ``cfg-fsm run``, ``diagram``, ``explain``, ``verify`` and ``explore``.

What a user did wrong ends in one line on standard error and an exit code; a traceback is a defect of the program.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer

from cfg_fsm import __version__
from cfg_fsm.cli import audit, diagram, explore, run
from cfg_fsm.cli.console import EXIT_CODES, OK, lost_stdout

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


for command, exit_codes, what in (
    (run.run, EXIT_CODES, "Run a trace and sum up what became of it."),
    (diagram.diagram, EXIT_CODES, "Draw a state machine from the tables that run."),
    (audit.explain, EXIT_CODES, "Tell the story of one request from an audit."),
    (audit.verify, EXIT_CODES, "Check the chain of hashes of an audit."),
    (explore.explore, explore.EXIT_CODES, "Drive the engine through every order of events."),
):
    app.command(epilog=exit_codes, short_help=what)(command)
