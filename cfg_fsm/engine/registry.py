"""The registry: takes an event, answers with actions.

Not thread-safe: one owner dispatches. Nothing here reads a clock, starts a thread or calls user code before a
step is complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from cfg_fsm.actions import Dispatched
from cfg_fsm.engine.group import Group
from cfg_fsm.engine.handlers import OTHER_LIFE, ROUTES, refuse
from cfg_fsm.engine.journal import Journal, Observer
from cfg_fsm.engine.ledger import Books
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
        observers = tuple(observers)
        for observer in observers:
            if not callable(observer):
                raise TypeError(f"an observer is called with each record; {observer!r} cannot be called")
        journal = Journal(observers) if observers else None
        self._books = Books(Limits() if limits is None else limits, journal)

    def __repr__(self) -> str:
        books = self._books
        return f"<Registry: {books.parents} live parents, {len(books.requests) - books.parents} companions>"

    def dispatch(self, event: Event) -> Dispatched:
        """Take in one event and say what the host has to do.

        Never raises for a well-formed event: what must not be obeyed is ``rejected``, what changes nothing is
        ``ignored``, each with a code. Raises ``NotAnEvent`` (a ``TypeError``) for anything that is not an event,
        and ``ReentrantDispatch`` when an observer calls it.
        """
        route = ROUTES.get(type(event))
        if route is None:
            raise NotAnEvent(event)
        books = self._books
        journal = books.journal
        now = event.at
        if now is None or now < books.now:  # time never goes back
            now = books.now
        if journal is not None:
            journal.begin(event.type, now)
            journal.event(event)
        books.now = now
        if books.tombstones.expire_at <= now:
            books.tombstones.expire(now)
        books.events += 1
        if route.take is not None:
            answer = route.take(books, event, route)
        else:
            # One request is named: find it, classify, then refuse or carry out.
            request_id = route.subject(event)
            record = books.requests.get(request_id)
            if record is None:
                cell = route.cell_of_gone(books, event, request_id)  # type: ignore[arg-type]
            else:
                cell = route.cells[record.machine][record.state]
                life = event.life  # type: ignore[union-attr]
                if life is not None and route.checks_life and life != record.life:
                    cell = _OTHER_LIFE
            option = cell[0]
            if option.guard is not None:
                for option in cell:  # pragma: no branch - the last has no guard
                    if option.guard is None or option.guard(books, record, event):
                        break
            if option.refused:
                answer = refuse(books, event, record, option)  # type: ignore[arg-type]
            else:
                answer = route.effect(books, record, event, option.choice)
        if journal is not None:
            journal.deliver()
        if books.dropped:
            # What this list holds goes as the call returns, last of all: a finalizer may dispatch.
            _held, books.dropped = books.dropped, []
        return answer

    def copy(self) -> Registry:
        """An independent registry in the same state, without observers. Payloads are shared."""
        twin = Registry.__new__(Registry)
        twin._books = self._books.copy()
        return twin

    def dispatch_many(self, events: Iterable[Event]) -> list[Dispatched]:
        """Dispatch in order; one answer for each event.

        Raises ``NotAnEvent`` if one of them is none, before anything is dispatched: no answer is lost.
        """
        events = list(events)
        for event in events:
            if type(event) not in ROUTES:
                raise NotAnEvent(event)
        return [self.dispatch(event) for event in events]

    @property
    def limits(self) -> Limits:
        """The limits it was made with."""
        return self._books.limits

    @property
    def now(self) -> float:
        """The latest time that an event brought, monotonic seconds. It never goes back."""
        return self._books.now

    def next_deadline(self) -> float | None:
        """When the next ``clock_ticked`` will end a parent, monotonic seconds; ``None``: no deadline is set."""
        return self._books.deadlines.next()

    def requests(self) -> list[RequestView]:
        """The live requests, for people: groups in order of registration, a parent before its companions."""
        books = self._books
        return view((record for record in books.requests.values() if isinstance(record, Group)), books.now)

    def counters(self) -> dict[str, Any]:
        """What is there and what has happened so far, as numbers.

        ``ignored``, ``rejected`` and ``failed`` are dictionaries by code; all others are plain integers.
        """
        books = self._books
        return {
            "live": len(books.requests),
            "live_parents": books.parents,
            "live_companions": len(books.requests) - books.parents,
            "deadlines": len(books.deadlines),
            "tombstones": len(books.tombstones),
            "events": books.events,
            "accepted": books.events - books.ignored.total() - books.rejected.total(),
            "ignored": _by_code(books.ignored),
            "rejected": _by_code(books.rejected),
            "parents_registered": books.registered,
            "forwards": books.forwarded,
            "finished": books.finished,
            "failed": _by_code(books.failed),
            "observer_errors": 0 if books.journal is None else books.journal.errors,
        }


_OTHER_LIFE = (OTHER_LIFE,)


def _by_code(counter: Counter[Any]) -> dict[str, int]:
    return {code.value: count for code, count in sorted(counter.items())}
