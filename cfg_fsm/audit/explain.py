"""The story of one request and its group, told from audit records.

``explain`` reads records (of a file or of ``MemoryAudit``) and writes one line per step in time order. A log may
be cut off at either end: what is not in it is not made up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any, Protocol

from cfg_fsm import tables
from cfg_fsm.errors import CfgFsmError
from cfg_fsm.states import CompanionState, FailureReason, MachineKind, ParentState, Trigger
from cfg_fsm.traces import printable

_PARENT = MachineKind.PARENT.value
_COMPARED = 50_000


class Logged(Protocol):
    """The fields that the story needs: an ``AuditRecord`` or an ``AuditLine``."""

    # fmt: off
    @property
    def seq(self) -> int: ...  # noqa: D102
    @property
    def at(self) -> float: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def machine(self) -> str | None: ...  # noqa: D102
    @property
    def request_id(self) -> str | None: ...  # noqa: D102
    @property
    def parent_id(self) -> str | None: ...  # noqa: D102
    @property
    def role(self) -> str | None: ...  # noqa: D102
    @property
    def life(self) -> int | None: ...  # noqa: D102
    @property
    def trigger(self) -> str | None: ...  # noqa: D102
    @property
    def source(self) -> str | None: ...  # noqa: D102
    @property
    def dest(self) -> str | None: ...  # noqa: D102
    @property
    def reason(self) -> str | None: ...  # noqa: D102
    @property
    def event(self) -> Any: ...  # noqa: D102
    @property
    def event_seq(self) -> int: ...  # noqa: D102
    # fmt: on


class NotInAudit(CfgFsmError, LookupError):
    """No record names the id. ``request_id`` is the id, ``close`` are ids of the log that resemble it."""

    def __init__(self, request_id: str, close: list[str]) -> None:
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        super().__init__(f"no request {request_id} in this audit{hint}")
        self.request_id, self.close = request_id, close
