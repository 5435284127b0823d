"""Break a call off at a chosen line of the engine, as Ctrl-C or a stack that is too deep would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ENGINE = str(Path(__file__).parent.parent / "cfg_fsm")


class Interruption:
    """Raises ``error`` at the ``at``-th line that the package runs (from 1), once; with 0 it only counts ``lines``."""

    def __init__(self, at: int = 0, error: type[BaseException] = KeyboardInterrupt, again: int = 0) -> None:
        self.at, self.error, self.again = at, error, again
        self.lines = 0
        self.where = ""

    def __enter__(self) -> Interruption:
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: Any, event: str, arg: object) -> Any:
        return self._line if frame.f_code.co_filename.startswith(ENGINE) else None

    def _line(self, frame: Any, event: str, arg: object) -> Any:
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_name}:{frame.f_lineno}"
                self.at += self.again  # a second time, so many lines later
                if not self.again:
                    self.at = 0
                self.again = 0
                raise self.error
        return self._line
