"""Break a call off at a chosen line of the engine, as Ctrl-C or a stack that is too deep would."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ENGINE = str(Path(__file__).parent.parent / "cfg_fsm")


class Interruption:
    """Raises ``error`` at the ``at``-th line that the package runs, once; with 0 it only counts ``lines``.

    ``again``: so many lines later once more. ``error`` may be a function too, which is called there.
    """

    def __init__(self, at: int = 0, error: Any = KeyboardInterrupt, again: int = 0) -> None:
        self.at, self.error, self.again = at, error, again
        self.lines = 0
        self.where = ""

    def __enter__(self) -> Interruption:
        self._before = sys.gettrace()  # that of who measures the coverage
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

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
                if isinstance(self.error, type):
                    raise self.error
                self.error()  # something else that happens there
        return self._line
