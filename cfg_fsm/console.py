"""What every command says to its user, and the exit code that goes with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cfg_fsm.traces import STDIN

OK, NOT_FOUND, BAD, INTERRUPTED = 0, 1, 2, 130
"""Exit codes."""


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


def lost_stdout(error: OSError) -> int:
    """Nothing can be written to standard output any more: the exit code. A closed pipe is no error."""
    with open(os.devnull, "wb") as nowhere:  # for what is still buffered
        os.dup2(nowhere.fileno(), 1)
    if isinstance(error, BrokenPipeError):
        return OK
    say(f"<stdout>: {error.strerror}")
    return BAD
