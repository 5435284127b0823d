"""What a registry or a tracker is made with, checked at once: a wrong argument says what to write."""

from __future__ import annotations

from collections.abc import Iterable

from cfg_fsm.engine.journal import Journal
from cfg_fsm.limits import Limits


def limits_of(limits: object) -> Limits:
    """The limits. Raises ``TypeError`` for anything else."""
    if limits is None:
        return Limits()
    if not isinstance(limits, Limits):
        shown = f"Limits(**{limits!r})" if isinstance(limits, dict) else "Limits(deferred_s=30.0)"
        raise TypeError(f"limits is of type {type(limits).__name__}; give a Limits object, as in {shown}")
    return limits


def journal_of(observers: object) -> Journal | None:
    """A journal for the observers; ``None``: there are none. Raises ``TypeError`` for what cannot observe."""
    if isinstance(observers, str | bytes):
        raise TypeError(
            f"observers is a list of callables, not a text; for a file: observers=[JsonlAudit({observers!r})]"
        )
    if callable(observers):
        raise TypeError(f"observers is a list of callables, as in observers=[{observers!r}]")
    if not isinstance(observers, Iterable):
        raise TypeError(f"observers is a list of callables, as in observers=[MemoryAudit()]; not {observers!r}")
    observers = tuple(observers)
    for observer in observers:
        if not callable(observer):
            raise TypeError(f"an observer is called with each record; {observer!r} cannot be called")
    return Journal(observers) if observers else None
