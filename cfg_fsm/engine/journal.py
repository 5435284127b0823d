"""The audit record, and the journal that collects the records of one step.

The core writes records; observers get them when the step is complete. Everything in a record comes from the
events, so the same events give the same records (R12). Only the time of day (``ts``) is not the core's: a sink
stamps it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from cfg_fsm.actions import Action
from cfg_fsm.errors import ReentrantDispatch
from cfg_fsm.events import Event, EventBase

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


#: What the journal collects: the fields of an ``AuditRecord`` as a plain tuple, with the event itself in the place
#: of its body where it may be kept. There are several in every step, and the record costs three times as much.
Fields: TypeAlias = tuple[Any, ...]

#: ``AuditRecord(*fields)`` without the call of its constructor.
_make: Callable[[type[AuditRecord], Fields], AuditRecord] = tuple.__new__
_BODY = AuditRecord._fields.index("event")


def as_record(fields: Fields) -> AuditRecord:
    """The record that the journal has collected."""
    body = fields[_BODY]
    if isinstance(body, EventBase):
        return _make(AuditRecord, (*fields[:_BODY], body.log_body(), *fields[_BODY + 1 :]))
    return _make(AuditRecord, fields)


Observer: TypeAlias = Callable[[AuditRecord], object]


@runtime_checkable
class StepObserver(Protocol):
    """An observer that gets all records of a step in one call, as plain tuples. It must not change them."""

    def take_step(self, records: Sequence[Fields]) -> object:
        """The records of a step, in order: the fields of ``AuditRecord``. The list is the journal's own."""
        ...


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

    __slots__ = ("_add", "_at", "_delivering", "_event", "_observers", "_pending", "errors", "event_seq", "seq")

    def __init__(self, observers: Iterable[Observer | StepObserver]) -> None:
        self._observers = tuple(
            (observer.take_step if isinstance(observer, StepObserver) else self._one_by_one(observer), observer)
            for observer in observers
        )
        self._pending: list[Fields] = []
        self._add = self._pending.append
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

    def begin_with(self, event: Event, at: float) -> None:
        """A step begins with an event, enough of which is recorded to dispatch it again.

        Raises ``ReentrantDispatch`` if an observer is being called.
        """
        if self._delivering:
            raise ReentrantDispatch
        self._event, self._at = event.type, at
        self.event_seq = number = self.event_seq + 1
        self.seq = seq = self.seq + 1
        request_id, parent_id, role, life = event.head()
        self._add(
            (seq, at, "event", None, request_id, parent_id, role, life, None, None, None, None,
             event if event.keeps else event.log_body(), number)
        )  # fmt: skip

    def created(self, record: Recorded) -> None:
        """A machine entered its initial state."""
        self.seq = seq = self.seq + 1
        self._add(
            (seq, self._at, "created", record.machine, record.request_id, record.parent_id, record.role,
             record.life, None, None, record.state, None, self._event, self.event_seq)
        )  # fmt: skip

    def transition(self, record: Recorded, trigger: str, source: str, dest: str, reason: str | None) -> None:
        """A machine moves."""
        self.seq = seq = self.seq + 1
        self._add(
            (seq, self._at, "transition", record.machine, record.request_id, record.parent_id, record.role,
             record.life, trigger, source, dest, reason, self._event, self.event_seq)
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
        machine = role = state = None
        if record is not None:
            machine, state, parent_id, life = record.machine, record.state, record.parent_id, record.life
            role = record.role if request_id == record.request_id else None
        self.seq = seq = self.seq + 1
        self._add(
            (seq, self._at, kind, machine, request_id, parent_id, role, life, None, state, state, reason,
             self._event, self.event_seq)
        )  # fmt: skip

    def action(self, action: Action, parent_id: str | None, life: int | None) -> None:
        """The host was told to do something. ``parent_id``: the group it is about, if it is about one."""
        self.seq = seq = self.seq + 1
        self._add(
            (seq, self._at, "action", None, parent_id, parent_id, None, life, action.type, None, None,
             action.log_reason(), action.log_body(), self.event_seq)
        )  # fmt: skip

    def deliver(self) -> None:
        """The step is complete: hand out its records."""
        records = self._pending
        if not records:
            return
        self._delivering = True  # until it is done nothing is added: see ``begin``
        try:
            for take_step, observer in self._observers:
                try:
                    take_step(records)
                except Exception:
                    self.errors += 1
                    _LOGGER.exception("audit observer %r failed on record %d", observer, records[0][0])
        finally:
            records.clear()
            self._delivering = False

    def _one_by_one(self, observer: Observer) -> Callable[[Sequence[Fields]], None]:
        def take_step(records: Sequence[Fields]) -> None:
            for fields in records:
                try:
                    observer(as_record(fields))
                except Exception:
                    self.errors += 1
                    _LOGGER.exception("audit observer %r failed on record %d", observer, fields[0])

        return take_step
