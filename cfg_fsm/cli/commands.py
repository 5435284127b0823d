"""The commands, put together, and how the program ends."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from cfg_fsm.cli import audit, diagram, explore, run
from cfg_fsm.cli.console import DEFECT, EXIT_CODES, OK, lost_stdout, put
from cfg_fsm.cli.signals import exit_code
from cfg_fsm.cli.streams import forget, provide
from cfg_fsm.lines import printable

_UsageError: Any = typer.BadParameter.__base__
_ClickException: Any = _UsageError.__base__
"""As they are called where typer has them from, which differs from version to version."""


class _Group(TyperGroup):
    """Says what was wrong with the words of a command line, which may be the names of files of others, without a
    character that a terminal would obey."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Parse and invoke, and end the process unless ``standalone_mode`` is false."""
        standalone = extra.pop("standalone_mode", True)
        main: Any = super().main
        if not standalone:
            return main(*args, standalone_mode=False, **extra)
        try:
            code = main(*args, standalone_mode=False, **extra)
        except _ClickException as error:
            if type(error).__name__ != "NoArgsIsHelpError":  # which says the help
                said = printable(error.format_message())
                error.format_message = lambda: said
            error.show()
            sys.exit(error.exit_code)
        except (typer.Abort, KeyboardInterrupt):
            sys.exit(exit_code(KeyboardInterrupt()))
        sys.exit(code if isinstance(code, int) else OK)


app = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
)


def run_app() -> NoReturn:
    """Run the command line as a program: end the process with an exit code."""
    provide()
    # What the library warns of is for hosts. Here the summary says it, once, and the explorer provokes it.
    logging.getLogger("cfg_fsm").addHandler(logging.NullHandler())
    code: Any = OK
    try:
        app(prog_name="cfg-fsm")
    except SystemExit as end:
        code = OK if isinstance(end.__context__, BrokenPipeError) else end.code
    except OSError as error:  # of standard output: the commands answer for their own
        code = lost_stdout(error)
    except Exception:  # noqa: BLE001 - whatever it is, it must not look like an answer: 1 is one
        with suppress(OSError):
            traceback.print_exc()
        code = DEFECT
    try:
        sys.stdout.flush()
    except OSError as error:
        code = lost_stdout(error) or code
    try:
        sys.stderr.flush()
    except OSError:
        forget(2)
    sys.exit(code)


def _print_version(wanted: bool) -> None:
    if wanted:
        from cfg_fsm import __version__

        put(f"cfg-fsm {__version__}")
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
