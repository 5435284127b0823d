"""The registry: takes an event, answers with actions.

Not thread-safe: one owner dispatches. Nothing here reads a clock, starts a thread or calls user code before a
step is complete.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cfg_fsm.actions import Dispatched, accepted
from cfg_fsm.engine.group import Group
from cfg_fsm.engine.journal import Journal, Observer
from cfg_fsm.engine.ledger import Ledger
from cfg_fsm.engine.routes import NAMED, OTHER_LIFE, SEVERAL
from cfg_fsm.engine.snapshot import Snapshot, take_snapshot
from cfg_fsm.engine.views import RequestView, view
from cfg_fsm.errors import NotAnEvent
from cfg_fsm.events import Event
from cfg_fsm.limits import Limits


class Registry:
    """Owns every live group.

    ``limits``: bounds in time and size, see ``Limits``; without them no parent ends by itself.
    ``observers``: callables that get each ``AuditRecord`` once its step is complete. One that raises is logged
    and counted (``counters()["observer_errors"]``), nothing else happens.
    """

    def __init__(self, limits: Limits | None = None, observers: Iterable[Observer] = ()) -> None:
        self._ledger = Ledger(Limits() if limits is None else limits, _journal(observers))

    def __repr__(self) -> str:
        ledger = self._ledger
        return f"<Registry: {ledger.parents} live parents, {len(ledger.requests) - ledger.parents} companions>"

    def dispatch(self, event: Event) -> Dispatched:
        """Take in one event and say what the host has to do.

        Never raises for a well-formed event: what must not be obeyed is ``rejected``, what changes nothing is
        ``ignored``, each with a code. Raises ``NotAnEvent`` (a ``TypeError``) for anything that is not an event,
        and ``ReentrantDispatch`` when an observer calls it.
        """
        named = NAMED.get(type(event))
        if named is None and type(event) not in SEVERAL:
            raise NotAnEvent(event)
        ledger = self._ledger
        step = ledger.step
        journal = step.journal
        now = event.at
        if now is None or now < step.now:  # time never goes back
            now = step.now
        if journal is not None:
            journal.begin_with(event, now)
        step.now = now
        if ledger.tombstones.expire_at <= now:
            ledger.tombstones.expire(now)
        ledger.events += 1
        if named is not None:
            # One request is named: find it, classify, then refuse or carry out.
            request_id = named.subject(event)
            record = ledger.requests.get(request_id)
            if record is None:
                cell = named.cell_of_gone(ledger, event, request_id)
            else:
                cell = named.cells[record.machine][record.state]
                if event.life is not None and named.checks_life and event.life != record.life:
                    cell = OTHER_LIFE
            option = cell[0]
            if option.guard is not None:
                for option in cell:  # pragma: no branch - the last has no guard
                    if option.guard is None or option.guard(ledger, record, event):
                        break
            if option.effect is None:
                answer = named.refuse(ledger, event, record, option)
            else:
                life = option.effect(ledger, record, event)
                answer = Dispatched("accepted", None, step.answer(), life) if step.actions else accepted(life)
        else:
            answer = SEVERAL[type(event)].take(ledger, event)
        if journal is not None:
            journal.deliver()
        if ledger.dropped:
            # What this list holds goes as the call returns, last of all: a finalizer may dispatch.
            _held, ledger.dropped = ledger.dropped, []
        return answer

    def copy(self, observers: Iterable[Observer] = ()) -> Registry:
        """An independent registry in the same state. Payloads are shared; observers are not.

        ``observers``: those of the copy. They get its records, numbered from 1.
        """
        twin = Registry.__new__(Registry)
        twin._ledger = self._ledger.copy(_journal(observers))
        return twin

    def snapshot(self) -> Snapshot:
        """Everything that is held, as plain data; see ``Snapshot``. For tests and for looking inside.

        It walks through all live requests and all tombstones, and changes nothing.
        """
        return take_snapshot(self._ledger)

    def dispatch_many(self, events: Iterable[Event]) -> list[Dispatched]:
        """Dispatch in order; one answer for each event.

        Raises ``NotAnEvent`` if one of them is none, before anything is dispatched: no answer is lost.
        """
        events = list(events)
        for event in events:
            if type(event) not in NAMED and type(event) not in SEVERAL:
                raise NotAnEvent(event)
        return [self.dispatch(event) for event in events]

    @property
    def limits(self) -> Limits:
        """The limits it was made with."""
        return self._ledger.limits

    @property
    def now(self) -> float:
        """The latest time that an event brought, monotonic seconds. It never goes back."""
        return self._ledger.step.now

    def next_deadline(self) -> float | None:
        """When the next ``clock_ticked`` will end a parent, monotonic seconds; ``None``: no deadline is set."""
        return self._ledger.deadlines.next()

    def requests(self) -> list[RequestView]:
        """The live requests, for people: groups in order of registration, a parent before its companions."""
        ledger = self._ledger
        return view((record for record in ledger.requests.values() if isinstance(record, Group)), ledger.step.now)

    def counters(self) -> dict[str, Any]:
        """What is there and what has happened so far, as numbers.

        ``ignored``, ``rejected`` and ``failed`` are dictionaries by code; all others are plain integers.
        """
        return self._ledger.counters()


def _journal(observers: Iterable[Observer]) -> Journal | None:
    observers = tuple(observers)
    for observer in observers:
        if not callable(observer):
            raise TypeError(f"an observer is called with each record; {observer!r} cannot be called")
    return Journal(observers) if observers else None
