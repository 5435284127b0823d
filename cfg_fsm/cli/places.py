"""Which file it is, whatever it is called: two names, links, and standard streams may be one and the same."""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from typing import Any, NamedTuple, TextIO

from cfg_fsm.cli.streams import STDERR
from cfg_fsm.errors import CfgFsmError


class Place(NamedTuple):
    """What is open, or lies there."""

    device: int
    inode: int
    regular: bool
    """Whether it is a file that keeps what is written, so that writing it twice destroys something."""
    nowhere: bool
    """Whether it is the null device, where everything may go."""


class Input(NamedTuple):
    """A file that the command reads."""

    name: str
    what: str
    """What it is: ``this is the trace; it``, for a sentence."""
    place: Place | None


def _of(found: os.stat_result) -> Place:
    return Place(found.st_dev, found.st_ino, stat.S_ISREG(found.st_mode), _is_nowhere(found))


def _is_nowhere(found: os.stat_result) -> bool:
    with suppress(OSError):
        null = os.stat(os.devnull)
        return stat.S_ISCHR(found.st_mode) and found.st_rdev == null.st_rdev
    return False


def place_of(file: Any) -> Place | None:
    """Where an open file or a descriptor leads; ``None`` if it has none."""
    with suppress(OSError, AttributeError, ValueError):
        return _of(os.fstat(file if isinstance(file, int) else file.fileno()))
    return None


def place_at(path: str | os.PathLike[str]) -> Place | None:
    """What lies at a path; ``None``: nothing, or it cannot be seen."""
    with suppress(OSError):
        return _of(os.stat(path))
    return None


def same(one: Place | None, other: Place | None) -> bool:
    """Whether writing to one is writing to the other."""
    return one is not None and other is not None and one[:2] == other[:2] and not one.nowhere


def _clash(one: Place | None, other: Place | None) -> bool:
    """The same, of files that keep what is written."""
    return same(one, other) and one is not None and one.regular


def refuse_input(name: str, place: Place | None, inputs: list[Input]) -> None:
    """Raise ``CfgFsmError`` if what will be written is one of the files that are read."""
    for read in inputs:
        if _clash(place, read.place):
            raise CfgFsmError(f"{name}: {read.what} would be overwritten")


def refuse_stdout(inputs: list[Input]) -> None:
    """Raise ``CfgFsmError`` if standard output goes into one of the files that are read."""
    out = place_of(sys.stdout)
    for read in inputs:
        if _clash(out, read.place):
            raise CfgFsmError(f"{read.name}: {read.what} would be written to, since standard output goes there")


def refuse_stderr(name: str, place: Place | None) -> None:
    """Raise ``CfgFsmError`` if what will be written is the file that standard error goes to."""
    if _clash(place, place_of(sys.stderr)):
        raise CfgFsmError(f"{name}: {STDERR} goes there, and what is said would be mixed into it")


def refuse_same(name: str, place: Place | None, others: list[Place | None]) -> None:
    """Raise ``CfgFsmError`` if two outputs are one."""
    if any(same(place, other) for other in others):
        raise one_place(name)


def one_place(name: str) -> CfgFsmError:
    """The refusal of two outputs that are one."""
    return CfgFsmError(f"{name}: two outputs of the command cannot go to the same place")


def is_terminal(stream: TextIO) -> bool:
    """Whether somebody looks at it."""
    with suppress(OSError, ValueError):
        return stream.isatty()
    return False
