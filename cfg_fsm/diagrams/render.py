"""DOT text to SVG or PNG with the Graphviz that is there: the system's ``dot``, or ``graphviz-pure`` from PyPI."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from cfg_fsm.errors import CfgFsmError, MissingExtra

FORMATS = ("svg", "png")

#: Seconds. These pictures take well under one; a first start on a loaded machine may take some.
TIMEOUT_S = 60.0

_DIGEST = re.compile(rb"<!-- sha256 of the DOT text: ([0-9a-f]{64}) -->")


class RenderFailed(CfgFsmError, RuntimeError):
    """A renderer was found and did not do its work.

    ``command`` is what was run, ``status`` its exit status (``None``: it did not start, or took longer than
    ``TIMEOUT_S``), ``stderr`` what it said.
    """

    def __init__(self, command: Sequence[str], status: int | None, stderr: str) -> None:
        how = "failed" if status is None else f"ended with status {status}"
        super().__init__(f"{' '.join(command)} {how}: {stderr.strip() or 'it said nothing'}")
        self.command, self.status, self.stderr = tuple(command), status, stderr


def find_renderer() -> str | None:
    """Path of the program to draw with; ``None`` if there is none."""
    beside = str(Path(sys.executable).parent)  # an environment may be in use without being activated
    return shutil.which("dot") or shutil.which("graphviz-pure") or shutil.which("graphviz-pure", path=beside)


def draw(dot: str, format: str) -> bytes:
    """The picture of ``dot``. An SVG carries the digest of the text it was drawn from, and ends in a line feed.

    Raises ``ValueError`` for a format not in ``FORMATS``, ``MissingExtra`` without a renderer, ``RenderFailed``
    when it fails.
    """
    if format not in FORMATS:
        raise ValueError(f"unknown image format {format!r}; there are: {', '.join(FORMATS)}")
    renderer = find_renderer()
    if renderer is None:
        raise MissingExtra(f"drawing {format.upper()} without a `dot` program (Graphviz) on PATH", extra="render")
    command = [renderer, "-Kdot", f"-T{format}", *(["-Gdpi=144"] if format == "png" else [])]
    try:
        done = subprocess.run(command, input=dot.encode(), capture_output=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RenderFailed(command, None, f"not done after {TIMEOUT_S:g} s") from error
    except OSError as error:
        raise RenderFailed(command, None, str(error)) from error
    if done.returncode != 0 or not done.stdout:
        raise RenderFailed(command, done.returncode, done.stderr.decode(errors="replace"))
    return _signed(done.stdout, dot) if format == "svg" else done.stdout


def digest(dot: str) -> str:
    """SHA-256 of DOT text, hexadecimal."""
    return sha256(dot.encode()).hexdigest()


def digest_in(svg: bytes) -> str | None:
    """Digest of the DOT text that an SVG was drawn from; ``None`` if it does not say."""
    found = _DIGEST.search(svg)
    return found[1].decode() if found else None


def _signed(svg: bytes, dot: str) -> bytes:
    head, tag, rest = svg.partition(b"<svg")
    mark = f"<!-- sha256 of the DOT text: {digest(dot)} -->\n".encode()
    return head + mark + tag + rest.replace(b"\r\n", b"\n").rstrip() + b"\n"
