"""What can go wrong in the hands of a caller, as one small tree.

Each error carries the ids, state and event it is about as attributes, so that
a program can act on it without reading the sentence.
"""

from __future__ import annotations

from transitions import MachineError


class CfgFsmError(Exception):
    """Base of every error that this package raises on its own account."""


class InvalidDefinition(CfgFsmError, ValueError):
    """The tables contradict themselves. Raised at import, never while running.

    ``machine``, ``state`` and ``trigger`` name the place, where one applies.
    """

    def __init__(
        self, message: str, *, machine: str | None = None, state: str | None = None, trigger: str | None = None
    ) -> None:
        super().__init__(message)
        self.machine, self.state, self.trigger = machine, state, trigger


class InvalidTransition(CfgFsmError, MachineError):
    """A trigger was fired in a state that has no row for it. Nothing has changed.

    It is also a ``transitions.MachineError``, so code written for stock
    machines catches it.
    """

    def __init__(self, *, machine: str, state: str, trigger: str, request_id: str | None = None) -> None:
        who = f" (request {request_id!r})" if request_id is not None else ""
        super().__init__(f"{machine}: no row for trigger {trigger!r} in state {state!r}{who}")
        self.machine, self.state, self.trigger, self.request_id = machine, state, trigger, request_id


class NotAnEvent(CfgFsmError, TypeError):
    """``dispatch`` was given something that is not one of the event models."""

    def __init__(self, value: object) -> None:
        super().__init__(
            f"{type(value).__name__} is not an event; build one from cfg_fsm.events or with parse_event()"
        )


class ReentrantDispatch(CfgFsmError, RuntimeError):
    """``dispatch`` was called while another was running: by an observer, or by a finalizer.

    Queue the event and dispatch it after the running ``dispatch`` returned.
    """

    def __init__(self) -> None:
        super().__init__(
            "another dispatch is running: an observer must not dispatch, nor must a finalizer; queue the event "
            "and dispatch it afterwards"
        )


class BadLine(CfgFsmError, ValueError):
    """A line of a trace or an audit log cannot be used.

    ``path`` and ``line`` (1-based) say where; ``why`` says what is wrong.
    """

    def __init__(self, path: str, line: int, why: str) -> None:
        super().__init__(f"{path}:{line}: {why}")
        self.path, self.line, self.why = path, line, why


class MissingExtra(CfgFsmError, ImportError):
    """An optional part needs a package that is not installed. ``extra`` names it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional package: pip install 'cfg_fsm[{extra}]'")
        self.extra = extra
