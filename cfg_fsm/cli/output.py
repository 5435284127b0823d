"""An output of ``cfg-fsm run`` whose every write is answered for."""

from __future__ import annotations

import json
import os
import selectors
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cfg_fsm.cli.places import Place

BLOCK = 1 << 16
"""Bytes that wait before they are written."""


class Output:
    """Takes lines, and hands them to the operating system when it is told to.

    ``raw``: an unbuffered binary stream, which is closed with it if it is ``owned``; else it is standard output.
    ``name``: what errors call it. ``place``: where it leads. ``escape``: for a terminal, so that it obeys nothing
    that stands in a line.

    ``taken`` counts the bytes that came, ``written`` those of them that the system has got, so that there is no
    doubt after a write that has failed. A line of which it got a part is taken back where that is possible.
    """

    def __init__(self, raw: Any, name: str, place: Place | None, *, owned: bool, escape: bool = False) -> None:
        self.name, self.place = name, place
        self.taken = self.written = 0
        self.waiting = 0
        """How many bytes are waiting."""
        self.block = BLOCK
        self.when_full: Callable[[], object] = self.flush
        """What is called when ``block`` bytes are waiting."""
        self.is_stdout = not owned
        self._raw, self._owned, self._escape = raw, owned, escape
        self._lines: list[bytes] = []
        self._start: int | None = None
        """Where in a file what is written begins; ``None``: nothing can be taken back there."""

    def begin(self, *, append: bool) -> None:
        """Write from here on: behind what a file has, or in place of it. Raises ``OSError``."""
        if self._owned and self.place is not None and self.place.regular:
            if not append:
                self._raw.truncate(0)
            self._start = self._raw.seek(0, os.SEEK_END)

    def write(self, data: bytes) -> int:
        """Take a line."""
        if self._escape:
            data = _escaped(data)
        self._lines.append(data)
        self.taken += len(data)
        self.waiting += len(data)
        if self.waiting >= self.block:
            self.when_full()
        return len(data)

    def flush(self) -> None:
        """Hand over everything. Raises ``OSError`` that names the output; what was waiting is then forgotten."""
        data = b"".join(self._lines)
        sent = 0
        try:
            while sent < len(data):
                count = self._raw.write(data[sent:] if sent else data)
                if count is None:  # it is full, and does not block: another program has made it so
                    self._wait()
                else:
                    sent += count
        except OSError as error:
            error.filename = error.filename or self.name
            self._keep(b"", data.rfind(b"\n", 0, sent) + 1)
            self._take_back()
            raise
        except KeyboardInterrupt:
            if self._start is not None:
                sent = self._raw.tell() - self._start - self.written
            self._keep(data[sent:], sent)
            raise
        self._keep(b"", sent)

    def cut(self, position: int) -> None:
        """Forget what was taken from this position on, and take back what is written of it."""
        waiting = b"".join(self._lines)[: max(0, position - self.written)]
        back = min(0, position - self.written)
        self._keep(waiting, back)
        if back:
            self._take_back()

    def close(self) -> None:
        """Hand over everything, and close a file. Raises ``OSError``."""
        try:
            self.flush()
        finally:
            if self._owned:
                self._raw.close()

    def _keep(self, waiting: bytes, sent: int) -> None:
        self._lines = [waiting] if waiting else []
        self.waiting = len(waiting)
        self.written += sent
        self.taken = self.written + self.waiting

    def _take_back(self) -> None:
        if self._start is not None:
            with suppress(OSError):  # then it ends with a torn line, which its reader will name
                self._raw.truncate(self._start + self.written)
                self._raw.seek(0, os.SEEK_END)

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._raw, selectors.EVENT_WRITE)
            selector.select()


def _escaped(line: bytes) -> bytes:
    """A line of JSON that says the same without a character that a terminal would obey."""
    text = line.decode()
    if text[:-1].isprintable():
        return line
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text).encode()
