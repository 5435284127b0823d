"""What every command says to its user, and the exit code that goes with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from cfg_fsm.errors import CfgFsmError
from cfg_fsm.lines import STDIN

OK, NOT_FOUND, BAD, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""
BROKEN = 1
EXIT_CODES = (
    "Exit codes: 0 ok; 1 not found, or a broken chain; 2 bad usage, bad input, or a file that cannot be used; "
    "130 interrupted."
)


def say(message: str) -> None:
    """One line on standard error."""
    print(f"cfg-fsm: {message}", file=sys.stderr, flush=True)


def shown(name: str) -> str:
    """What people call an output: its path, or ``<stdout>`` for ``-``."""
    return "<stdout>" if name == STDIN else name


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


def forget_stdout() -> None:
    """Nothing can be written to standard output any more: what is still buffered goes nowhere."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 1)


def lost_stdout(error: OSError) -> int:
    """Nothing can be written to standard output any more: the exit code. A closed pipe is no error."""
    forget_stdout()
    if isinstance(error, BrokenPipeError):
        return OK
    say(f"{shown(STDIN)}: {error.strerror}")
    return BAD


@contextmanager
def user_errors() -> Iterator[None]:
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
        if error.filename == shown(STDIN):
            raise typer.Exit(lost_stdout(error)) from None
        say(sentence(error))
        raise typer.Exit(BAD) from None
