"""Lines of JSON, and what can be wrong with them: for traces, audits and the command line.

``LineSource`` hands out the raw lines of a plain or gzip file, or of standard input, in batches.
"""

from __future__ import annotations

import errno
import os
import selectors
import sys
import zlib
from collections.abc import Callable, Iterator
from io import FileIO
from itertools import chain
from typing import Any, cast

from cfg_fsm.errors import BadLine
from cfg_fsm.strict import not_json as not_json
from cfg_fsm.strict import printable as printable
from cfg_fsm.strict import short as short

STDIN = "-"
"""The path that means standard input."""

MAX_LINE = 16 << 20
"""Bytes that a line may have. The recorded ones have a few hundred, and one that registers 100,000 companions ten
million; read, a line can take thirty times its length."""

OVERLONG = b"\0 a line that is too long to be read"
"""Stands for a line that is longer, is found by ``is``, and is neither blank nor JSON."""

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
    read may block: the moment to flush what was written. ``max_line``: a line of more bytes is handed out as
    ``OVERLONG``; what it holds is passed over, so that no line takes more memory than that.

    Raises ``OSError`` if the file cannot be opened or read, ``DamagedFile``.
    A context manager; standard input is not closed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        before_read: Callable[[], object] | None = None,
        max_line: int = MAX_LINE,
    ) -> None:
        self.path = os.fspath(path)
        self.name = "<stdin>" if self.path == STDIN else self.path
        """What errors call it."""
        self.before_read = before_read
        self.max_line = max_line
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
        self.rereadable = False
        """Whether another source of the same path gives the same lines: what a pipe gave is gone."""
        self._file: FileIO | None = None
        if self.path != STDIN:
            self._file = open(self.path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
            size = os.fstat(self._file.fileno()).st_size
            self.size = size or None
            self.rereadable = self._file.seekable()
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

    def fileno(self) -> int:
        """The descriptor of what is open. Raises ``OSError`` if it has none."""
        return sys.stdin.fileno() if self._file is None else self._file.fileno()

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
        size, most = 0, self.max_line
        over = False  # whether what comes is the rest of a line that is too long
        for chunk in self._data():
            cut = chunk.find(b"\n")
            if cut < 0:
                size += len(chunk)
                if size <= most:
                    parts.append(chunk)
                elif not over:  # said at once: the end of the line may never come
                    parts, over = [], True
                    yield [OVERLONG]
                    self.lines += 1
                continue
            lines = chunk.split(b"\n")
            if len(chunk) > most:
                lines = [line if len(line) <= most else OVERLONG for line in lines]
            if over:
                del lines[0]
            elif parts:
                parts.append(lines[0])
                lines[0] = b"".join(parts) if size + cut <= most else OVERLONG
            rest = lines.pop()
            parts, size, over = [rest], len(rest), rest is OVERLONG
            yield lines
            self.lines += len(lines)
            if over:
                yield [OVERLONG]
                self.lines += 1
        if size and not over:
            self.torn = True
            yield [b"".join(parts)]
            self.lines += 1

    def _data(self) -> Iterator[bytes]:
        chunks = self._chunks()
        first = next(chunks, b"")
        if first.startswith(_GZIP_MAGIC):
            data = self._inflate(first, chunks)
        elif first and self.path.endswith(".gz"):
            raise DamagedFile(self.name, 1, "not gzip data, though the name ends in .gz")
        else:
            data = chain((first,), chunks)
        yield next(data, b"").removeprefix(_BOM)
        yield from data

    def _chunks(self) -> Iterator[bytes]:
        while True:
            self._announce()
            try:
                chunk = self._read_some()
            except OSError as error:
                error.filename = error.filename or self.name
                raise
            self.reading = False
            if not chunk:
                return
            self.position += len(chunk)
            yield chunk

    def _announce(self) -> None:
        self.reading = True
        if self.before_read is not None:
            self.before_read()

    def _read_some(self) -> bytes:
        """What can be read; nothing at the end. A stream that another program has made non-blocking is waited for,
        or its first pause would be taken for its end."""
        chunk = self._read(_CHUNK)
        waited = False
        while not chunk and (chunk is None or not waited) and self._is_non_blocking():
            with selectors.DefaultSelector() as selector:
                selector.register(self.fileno(), selectors.EVENT_READ)
                selector.select()
            chunk, waited = self._read(_CHUNK), True
        return chunk or b""

    def _is_non_blocking(self) -> bool:
        try:
            return not os.get_blocking(self.fileno())
        except (OSError, AttributeError):  # no descriptor, or none that can be asked
            return False

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
                chunk = inflater.unconsumed_tail or inflater.unused_data
                if chunk:  # there may be a thousand times as much to come as was read
                    self._announce()
                    self.reading = False
                else:
                    chunk = next(chunks, b"")
        except zlib.error as error:
            raise DamagedFile(self.name, self.lines + 1, f"the gzip data is damaged here ({error})") from error
        if not inflater.eof:
            raise DamagedFile(self.name, self.lines + 1, "the gzip data is cut off here")


def overlong(most: int) -> str:
    """What is wrong with a line that is handed out as ``OVERLONG``."""
    return f"the line is longer than {most >> 20} MiB"


def in_words(details: Any) -> str:
    """What pydantic says of one value, in plain words; ``details``: one of ``ValidationError.errors()``."""
    said = _WORDS.get(details["type"])
    if said is None:
        said = details["msg"].removeprefix("Value error, ").replace("Input should", "must").replace(" valid ", " ")
    return f"{said[:1].lower()}{said[1:]}"


def text_of(value: object) -> str:
    """What a log calls something of the host's, such as an id: a text as it is, all else as Python shows it."""
    if isinstance(value, str):
        return value
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - it is the host's own, as an id of the tracker may be
        return f"<{type(value).__name__}>"
