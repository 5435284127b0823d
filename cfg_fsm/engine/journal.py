"""The audit record, and the journal that collects the records of one step.

The core writes records; observers get them when the step is complete. Everything in a record comes from the
events, so the same events give the same records (R12). Only the time of day (``ts``) is not the core's: a sink
stamps it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeAlias

from cfg_fsm.actions import Action
from cfg_fsm.errors import ReentrantDispatch
from cfg_fsm.events import EventBase

_LOGGER = logging.getLogger("cfg_fsm")


class AuditRecord(NamedTuple):
    """One line of the audit. Fields in the order of their keys in a file (``ts`` stands after ``at`` there)."""

    seq: int
    """Number of the record, from 1."""
    at: float
    """The registry's time, monotonic seconds."""
    kind: str
    """``created``, ``transition``, ``ignored``, ``rejected``, ``event`` or ``action``."""
    machine: str | None
    """``parent`` or ``companion``."""
    request_id: str | None
    """The request whose machine it is, or that the event or action names."""
    parent_id: str | None
    """The group."""
    role: str | None
    life: int | None
    trigger: str | None
    """Of a transition the trigger; of an action its type."""
    source: str | None
    dest: str | None
    reason: str | None
    """Of a failure a ``FailureReason``; of a refusal its code."""
    event: Any
    """Name of the event that caused it. Where ``kind`` is ``event`` or ``action``: the event or action itself as
    plain data, of payloads only the type and size."""
    event_seq: int
    """Number of that event, from 1."""


#: ``AuditRecord(*values)`` without the call of its constructor: there are several records in every step.
_make: Callable[[type[AuditRecord], tuple[Any, ...]], AuditRecord] = tuple.__new__

Observer: TypeAlias = Callable[[AuditRecord], object]


class Recorded(Protocol):
    """What the journal needs to know of a parent or companion record."""

    @property
    def machine(self) -> str:
        """``parent`` or ``companion``."""
        ...

    @property
    def request_id(self) -> str:
        """Its id."""
        ...

    @property
    def parent_id(self) -> str:
        """Its group's id."""
        ...

    @property
    def group(self) -> Recorded:
        """The parent's record."""
        ...

    @property
    def role(self) -> str | None:
        """Its role; ``None`` for a parent."""
        ...

    @property
    def life(self) -> int:
        """Its group's life."""
        ...

    @property
    def state(self) -> str:
        """Its state."""
        ...


class Journal:
    """Collects the records of one step and hands them to the observers when the step is complete.

    An observer that raises is logged with its traceback and counted in ``errors``; the step stands, the other
    records and observers get their turn.
    """

    __slots__ = ("_at", "_delivering", "_event", "_observers", "_pending", "errors", "event_seq", "seq")

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = tuple(observers)
        self._pending: list[AuditRecord] = []
        self._delivering = False
        self._event = ""
        self._at = 0.0
        self.seq = 0
        self.event_seq = 0
        self.errors = 0

    def begin(self, name: str, at: float) -> None:
        """A step begins: ``name`` of the event that the records to come are caused by.

        Raises ``ReentrantDispatch`` if an observer is being called.
        """
        if self._delivering:
            raise ReentrantDispatch
        self._event, self._at = name, at
        self.event_seq += 1

    def _add(
        self,
        kind: str,
        machine: str | None = None,
        request_id: str | None = None,
        parent_id: str | None = None,
        role: str | None = None,
        life: int | None = None,
        trigger: str | None = None,
        source: str | None = None,
        dest: str | None = None,
        reason: str | None = None,
        event: Any = None,
    ) -> None:
        self.seq = seq = self.seq + 1
        if event is None:
            event = self._event
        self._pending.append(
            _make(
                AuditRecord,
                (seq, self._at, kind, machine, request_id, parent_id, role, life, trigger, source, dest,
                 reason, event, self.event_seq),
            )
        )  # fmt: skip

    def event(self, event: EventBase) -> None:
        """The event itself, enough of it to dispatch it again."""
        request_id, parent_id, role, life = event.head()
        self.seq = seq = self.seq + 1
        self._pending.append(
            _make(
                AuditRecord,
                (seq, self._at, "event", None, request_id, parent_id, role, life, None, None, None, None,
                 event.log_body(), self.event_seq),
            )
        )  # fmt: skip

    def created(self, record: Recorded) -> None:
        """A machine entered its initial state."""
        self.transition(record, None, None, record.state, None, "created")

    def transition(
        self,
        record: Recorded,
        trigger: str | None,
        source: str | None,
        dest: str,
        reason: str | None,
        kind: str = "transition",
    ) -> None:
        """A machine moves."""
        group = record.group
        self.seq = seq = self.seq + 1
        self._pending.append(
            _make(
                AuditRecord,
                (seq, self._at, kind, record.machine, record.request_id, group.request_id, record.role,
                 group.life, trigger, source, dest, reason, self._event, self.event_seq),
            )
        )  # fmt: skip

    def refused(
        self,
        kind: str,
        reason: str,
        *,
        request_id: str | None,
        record: Recorded | None,
        parent_id: str | None = None,
        life: int | None = None,
    ) -> None:
        """An event was ignored or rejected; ``record`` is the live request it met, if any."""
        if record is None:
            self._add(kind, None, request_id, parent_id, life=life, reason=reason)
        else:
            self._add(
                kind, record.machine, request_id, record.parent_id,
                record.role if request_id == record.request_id else None, record.life,
                source=record.state, dest=record.state, reason=reason,
            )  # fmt: skip

    def action(self, action: Action, parent_id: str | None, life: int | None) -> None:
        """The host was told to do something. ``parent_id``: the group it is about, if it is about one."""
        self._add(
            "action", request_id=parent_id, parent_id=parent_id, life=life, trigger=action.type,
            reason=action.log_reason(), event=action.log_body(),
        )  # fmt: skip

    def deliver(self) -> None:
        """The step is complete: hand out its records."""
        records = self._pending
        if not records:
            return
        self._delivering = True  # until it is done nothing is added: see ``begin``
        try:
            for observer in self._observers:
                for record in records:
                    try:
                        observer(record)
                    except Exception:
                        self.errors += 1
                        _LOGGER.exception("audit observer %r failed on record %d", observer, record.seq)
        finally:
            records.clear()
            self._delivering = False
