"""What every command says to its user, and the exit code that goes with it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from cfg_fsm.cli.signals import exit_code, hearing, raise_stopped
from cfg_fsm.cli.streams import STDOUT, StreamName, forget
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.lines import STDIN, printable

OK, NOT_FOUND, BAD, DEFECT = 0, 1, 2, 70
"""Exit codes."""
BROKEN = 1
EXIT_CODES = (
    "Exit codes: 0 ok; 1 not found, or a broken chain; 2 bad usage, bad input, or a file that cannot be used; "
    "70 a defect of the program; 130 interrupted, 143 terminated, 129 hung up."
)


def say(message: str) -> None:
    """One line on standard error. If nobody can be told any more, the exit code is all that is left."""
    try:
        print(f"cfg-fsm: {printable(message)}", file=sys.stderr, flush=True)
    except OSError:
        forget(2)


def put(text: str) -> None:
    """Lines on standard output, without a character that a terminal would obey. Raises ``OSError``."""
    with naming(STDIN):
        print(*map(printable, text.split("\n")), sep="\n", flush=True)


def shown(name: str) -> str:
    """What people call an output: its path, or ``<stdout>`` for ``-``."""
    return STDOUT if name == STDIN else name


@contextmanager
def naming(name: str) -> Iterator[None]:
    """An ``OSError`` that passes through names this output, unless it names a file already."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or shown(name)
        raise


def sentence(error: OSError) -> str:
    """The error as one line, without its number."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return where + (error.strerror or str(error))


def is_of_stdout(error: OSError) -> bool:
    """Whether it is standard output that cannot be written."""
    return isinstance(error.filename, StreamName) and error.filename == STDOUT


def lost_stdout(error: OSError) -> int:
    """Nothing can be written to standard output any more: the exit code. A closed pipe is no error."""
    forget(1)
    if isinstance(error, BrokenPipeError):
        return OK
    say(f"{STDOUT}: {error.strerror}")
    return BAD


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn what a user can do wrong into one line and an exit code. A closed pipe is no error. A signal ends the
    command between any two of its lines, with everything closed that it has opened."""
    try:
        with hearing(raise_stopped):
            yield
    except BrokenPipeError as error:
        raise typer.Exit(lost_stdout(error)) from None
    except MemoryError:
        say("there is not enough memory")
        raise typer.Exit(BAD) from None
    except KeyboardInterrupt as stop:
        raise typer.Exit(exit_code(stop)) from None
    except CfgFsmError as error:
        say(str(error))
        raise typer.Exit(BAD) from None
    except OSError as error:
        if is_of_stdout(error):
            raise typer.Exit(lost_stdout(error)) from None
        say(sentence(error))
        raise typer.Exit(BAD) from None
