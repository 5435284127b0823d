"""Signals that ask the program to end: Ctrl-C, and those of whoever supervises it.

Before a command is at work there is nothing to be saved, and the process ends at once. While it is, a signal is an
exception, which every ``with`` and ``finally`` gets to see. What was ignored when the program began stays ignored.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "hung up"}


class Stopped(KeyboardInterrupt):
    """A signal came. ``number``: its number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def exit_code(stop: KeyboardInterrupt) -> int:
    """The code with which a program ends that a signal has stopped: 130, 143, 129."""
    return 128 + int(getattr(stop, "number", signal.SIGINT))


def word(stop: KeyboardInterrupt) -> str:
    """Why it ended, in a word."""
    return _WORDS[signal.Signals(getattr(stop, "number", signal.SIGINT)).name]


def end_at_once(number: int, frame: FrameType | None = None) -> None:
    """End the process: nothing is saved, nothing is said."""
    os._exit(128 + number)


def raise_stopped(number: int, frame: FrameType | None = None) -> None:
    """Raise ``Stopped``."""
    raise Stopped(number)


def hear(on_signal: Callable[[int, FrameType | None], object]) -> dict[int, Any]:
    """Have the signals call this. What was called before, by signal; empty in any thread but the main one."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    heard = {number: what for number, what in before.items() if what not in (signal.SIG_IGN, None)}
    try:
        for number in heard:
            signal.signal(number, on_signal)
    except ValueError:  # another thread's business
        return {}
    return heard


@contextmanager
def hearing(on_signal: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """The same for a while."""
    before = hear(on_signal)
    try:
        yield
    finally:
        for number, what in before.items():
            signal.signal(number, what)
