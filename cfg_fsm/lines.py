"""Lines of JSON, and what can be wrong with them: for traces, audits and the command line.

``LineSource`` hands out the raw lines of a plain or gzip file, or of standard input, in batches.
"""

from __future__ import annotations

import errno
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from io import FileIO
from typing import Any, cast

from cfg_fsm.errors import BadLine
from cfg_fsm.strict import not_json as not_json
from cfg_fsm.strict import printable as printable
from cfg_fsm.strict import short as short

STDIN = "-"
"""The path that means standard input."""

_CHUNK = 1 << 18
_INFLATED = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_WORDS = {
    "missing": "it is missing",
    "extra_forbidden": "there is no such field",
    "string_type": "must be a string",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
}
"""What an error of pydantic's is called here; the others keep their sentence."""


class DamagedFile(BadLine):
    """A file cannot be read on from some line: its gzip data is damaged or cut off."""


class LineSource:
    """Lines of a file as bytes, without their line ends.

    ``path``: a file, gzip if its name ends in ``.gz`` or its first bytes say so, or ``-`` for standard input.
    ``before_read``: called before each read, that is, when every line read so far has been used and the next
    read may block: the moment to flush what was written.

    Raises ``OSError`` if the file cannot be opened or read, ``DamagedFile``.
    A context manager; standard input is not closed.
    """

    def __init__(self, path: str | os.PathLike[str], *, before_read: Callable[[], object] | None = None) -> None:
        self.path = os.fspath(path)
        self.name = "<stdin>" if self.path == STDIN else self.path
        """What errors call it."""
        self.before_read = before_read
        self.size: int | None = None
        """Bytes of the file on disk; ``None``: not known (standard input, a pipe)."""
        self.position = 0
        """How many of them were read."""
        self.lines = 0
        """How many lines were handed out in batches."""
        self.torn = False
        """Whether the end was reached and the last line has no line end."""
        self.reading = False
        """Whether a read is under way, so that nothing is lost by interrupting it."""
        self._file: FileIO | None = None
        if self.path != STDIN:
            self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
            size = os.fstat(self._file.fileno()).st_size
            self.size = size or None
            self._read: Callable[[int], bytes | None] = self._file.read
        elif sys.stdin is None:
            raise OSError(errno.EBADF, "standard input is closed", self.name)
        else:
            self._read = cast(Any, sys.stdin.buffer).read1

    def __enter__(self) -> LineSource:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """``(line number from 1, line)``."""
        number = 0
        for batch in self.batches():
            for line in batch:
                number += 1
                yield number, line

    def batches(self) -> Iterator[list[bytes]]:
        """The lines that each read completed. The last line is handed out even without a line end."""
        parts: list[bytes] = []  # of a line that is longer than a chunk
        for chunk in self._data():
            if b"\n" not in chunk:
                if chunk:
                    parts.append(chunk)
                continue
            if parts:
                parts.append(chunk)
                chunk = b"".join(parts)
            lines = chunk.split(b"\n")
            rest = lines.pop()
            parts = [rest] if rest else []
            yield lines
            self.lines += len(lines)
        if parts:
            self.torn = True
            yield [b"".join(parts)]
            self.lines += 1

    def _data(self) -> Iterator[bytes]:
        chunks = self._chunks()
        first = next(chunks, b"")
        if first.startswith(_GZIP_MAGIC):
            yield from self._inflate(first, chunks)
        elif first and self.path.endswith(".gz"):
            raise DamagedFile(self.name, 1, "not gzip data, though the name ends in .gz")
        else:
            yield first.removeprefix(_BOM)
            yield from chunks

    def _chunks(self) -> Iterator[bytes]:
        while True:
            self.reading = True
            if self.before_read is not None:
                self.before_read()
            try:
                chunk = self._read(_CHUNK)
            except OSError as error:
                error.filename = error.filename or self.name
                raise
            self.reading = False
            if not chunk:
                return
            self.position += len(chunk)
            yield chunk

    def _inflate(self, chunk: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
        inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
        try:
            while chunk:
                if inflater.eof:  # files may be joined end to end, and padded with zeros
                    chunk = chunk.lstrip(b"\0")
                    if not chunk:
                        chunk = next(chunks, b"")
                        continue
                    inflater = zlib.decompressobj(zlib.MAX_WBITS | 16)
                yield inflater.decompress(chunk, _INFLATED)
                chunk = inflater.unconsumed_tail or inflater.unused_data or next(chunks, b"")
        except zlib.error as error:
            raise DamagedFile(self.name, self.lines + 1, f"the gzip data is damaged here ({error})") from error
        if not inflater.eof:
            raise DamagedFile(self.name, self.lines + 1, "the gzip data is cut off here")


def in_words(details: Any) -> str:
    """What pydantic says of one value, in plain words; ``details``: one of ``ValidationError.errors()``."""
    said = _WORDS.get(details["type"])
    if said is None:
        said = details["msg"].removeprefix("Value error, ").replace("Input should", "must").replace(" valid ", " ")
    return f"{said[:1].lower()}{said[1:]}"
