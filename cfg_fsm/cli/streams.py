"""Standard streams that are not there: closed by whoever started the program, or gone while it ran."""

from __future__ import annotations

import errno
import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO


class StreamName(str):
    """What people call a standard stream. A file of the same name is another thing."""

    __slots__ = ()


STDOUT, STDERR = StreamName("<stdout>"), StreamName("<stderr>")


class Closed(io.RawIOBase):
    """A standard stream that was closed: whoever writes to it gets the error that a full disk would bring."""

    def __init__(self, name: StreamName) -> None:
        self.name = name

    def writable(self) -> bool:
        """True, so that it is tried."""
        return True

    def write(self, data: Any) -> int:
        """Raise ``OSError``."""
        raise OSError(errno.EBADF, "it is closed", self.name)


def provide() -> None:
    """Let there be a standard output and a standard error.

    The descriptors 0 to 2 that are free are taken, too: else the next file that is opened would have one of them,
    and what is meant for the stream would end up in the file.
    """
    while (free := os.open(os.devnull, os.O_RDWR)) < 3:
        os.set_inheritable(free, True)
    os.close(free)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(Closed(STDOUT), "utf-8", write_through=True)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end of the process
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # an id may have characters that the terminal's encoding lacks
            stream.reconfigure(errors="backslashreplace")


def is_closed(stream: TextIO) -> bool:
    """Whether it was closed before the program began."""
    return isinstance(getattr(stream, "buffer", None), Closed)


def forget(number: int) -> None:
    """Nothing can be written any more to standard output (1) or standard error (2): what is still buffered goes
    nowhere."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), number)
