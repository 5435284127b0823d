"""The audit record, and the journal that collects the records of one step.

The core writes records; observers get them when the step is complete. Everything in a record comes from the
events, so the same events give the same records (R12). Only the time of day (``ts``) is not the core's: a sink
stamps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from cfg_fsm.actions import Action
from cfg_fsm.engine.log import log_failure
from cfg_fsm.errors import ReentrantDispatch
from cfg_fsm.events import Event, EventBase


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
    records and observers get their turn. So they do when an observer is interrupted.
    """

    __slots__ = (
        "_add", "_at", "_before", "_delivering", "_event", "_observers", "_pending", "_turn", "errors",
        "event_seq", "seq",
    )  # fmt: skip

    def __init__(self, observers: Iterable[Observer | StepObserver]) -> None:
        observers = tuple(observers)
        alone = len(observers) == 1
        self._observers = tuple(
            (
                observer.take_step if isinstance(observer, StepObserver) else self._one_by_one(observer, alone),
                observer,
            )
            for observer in observers
        )
        self._pending: list[Fields] = []
        self._add = self._pending.append
        self._before: list[Fields] = []
        """What a step had recorded before it was broken off."""
        self._turn = 0
        """Number of the observer that is the next to have the records of the step."""
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
        seq, number = self.seq + 1, self.event_seq + 1
        request_id, parent_id, role, life = event.head()
        self._add(
            (seq, at, "event", None, request_id, parent_id, role, life, None, None, None, None,
             event if event.keeps else event.log_body(), number)
        )  # fmt: skip
        self.seq, self.event_seq = seq, number

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

    def action(self, action: Action, parent_id: str | None, life: int | None, reason: str | None = None) -> None:
        """The host was told to do something. ``parent_id``: the group it is about, if it is about one."""
        self.seq = seq = self.seq + 1
        self._add(
            (seq, self._at, "action", None, parent_id, parent_id, None, life, action.type, None, None,
             reason or action.log_reason(), action.log_body(), self.event_seq)
        )  # fmt: skip

    def deliver(self) -> None:
        """The step is complete: hand out its records. What breaks it off (Ctrl-C) comes out when all have them."""
        records = self._pending
        broken: BaseException | None = None
        if records:
            if not self._delivering:
                self._join()
                self._delivering = True  # until it is done nothing is added: see ``begin``
            while self._turn < len(self._observers):
                take_step, observer = self._observers[self._turn]
                try:
                    self._turn, _ = self._turn + 1, take_step(records)  # on one line: it has its turn once
                except BaseException as error:  # noqa: BLE001 - it comes out below, or is logged and counted
                    self._turn += 1
                    if isinstance(error, Exception):
                        self._failed(observer, records[0][0])
                    else:
                        self.errors += 1
                        broken = error
            records.clear()
        self._turn, self._delivering = 0, False
        if broken is not None:
            raise broken

    def _one_by_one(self, observer: Observer, alone: bool) -> Callable[[Sequence[Fields]], None]:
        """``alone``: no other observer sees what this one does to a record's body."""

        def take_step(records: Sequence[Fields]) -> None:
            broken: BaseException | None = None
            for fields in records:
                try:
                    observer(as_record(fields) if alone else own_record(fields))
                except Exception:  # noqa: BLE001 - logged and counted there
                    self._failed(observer, fields[0])
                except BaseException as error:  # noqa: BLE001 - it comes out below, when all are handed out
                    broken = error
            if broken is not None:
                raise broken

        return take_step

    def _failed(self, observer: object, seq: int) -> None:
        self.errors += 1
        log_failure("audit observer %r failed on record %d", observer, seq)

    # -- a step that was broken off ---------------------------------------------------------------------------

    def resume(self) -> None:
        """The step runs again: what it has recorded is kept, and recorded again."""
        if self._pending:
            self.seq, self.event_seq = self._pending[0][0] - 1, self._pending[0][-1] - 1
            self._before += self._pending
            self._pending.clear()

    def abandon(self) -> None:
        """The step is given up, and with it what it has recorded."""
        self.resume()
        self._before.clear()
        self._turn, self._delivering = 0, False

    def _join(self) -> None:
        """Each record of a step that ran again once, in the order in which they were first made."""
        if self._before:
            known: dict[tuple[Any, ...], Fields] = {}
            for fields in (*self._before, *self._pending):
                known.setdefault(_what(fields), fields)
            first = self._pending[0][0]
            self._pending[:] = [(first + n, *fields[1:]) for n, fields in enumerate(known.values())]
            self.seq = first + len(known) - 1
            self._before.clear()


def own_record(fields: Fields) -> AuditRecord:
    """The record that the journal has collected, with a body of its own."""
    record = as_record(fields)
    return record._replace(event=_copied(record.event)) if isinstance(record.event, dict) else record


def _copied(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: _copied(value) for key, value in body.items()}
    return [_copied(value) for value in body] if isinstance(body, list) else body


def _what(fields: Fields) -> tuple[Any, ...]:
    """What tells the records of one step apart: a machine fires a trigger once in it."""
    record = as_record(fields)
    return (record.kind, record.request_id, record.parent_id, record.life, record.trigger)
