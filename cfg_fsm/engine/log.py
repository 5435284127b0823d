"""What the engine says to the host's log, under the name ``cfg_fsm``.

A handler of the host's that raises does no harm here, and no text from outside begins a new line in the log.
"""

from __future__ import annotations

import logging
from typing import Any

from cfg_fsm.lines import printable, text_of

_LOGGER = logging.getLogger("cfg_fsm")


def log_failure(message: str, *values: object) -> None:
    """An error, with the traceback of the exception that is being handled."""
    _log(logging.ERROR, message, values, exc_info=True)


def log_warning(message: str, *values: object) -> None:
    """A warning. ``values`` stand in it as printable text, on one line."""
    _log(logging.WARNING, message, values, exc_info=False)


def _log(level: int, message: str, values: tuple[object, ...], *, exc_info: bool) -> None:
    shown: list[Any] = [value if isinstance(value, float) else printable(text_of(value)) for value in values]
    try:
        _LOGGER.log(
            level, message.replace("%r", "%s").replace("%d", "%s"), *shown, exc_info=exc_info, stacklevel=3
        )
    except Exception:  # noqa: BLE001 - whatever the host's handler raises, it is the host's
        logging.getLogger(__name__).disabled = False
