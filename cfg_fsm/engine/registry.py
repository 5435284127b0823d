"""The registry: takes an event, answers with actions.

Not thread-safe: one owner dispatches. Nothing here reads a clock, starts a thread or calls user code before a
step is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

from cfg_fsm.actions import ACCEPTED, MANY, Action, Dispatched, accepted
from cfg_fsm.engine.arguments import journal_of, limits_of
from cfg_fsm.engine.group import Group
from cfg_fsm.engine.journal import Observer
from cfg_fsm.engine.ledger import Ledger
from cfg_fsm.engine.routes import NAMED, OTHER_LIFE, SEVERAL
from cfg_fsm.engine.snapshot import Snapshot, take_snapshot
from cfg_fsm.engine.views import RequestView, Unconfirmed, view, waits_until
from cfg_fsm.errors import NotAnEvent, ReentrantDispatch
from cfg_fsm.events import Event
from cfg_fsm.limits import Limits

#: In the place of an event: somebody looks at what is held, and nothing may change meanwhile.
_READING = object()
#: In the place of an event: no step is under way, and there are actions of one that was broken off.
_OWED = object()


_R = TypeVar("_R")


def _undisturbed(look: Callable[[Registry], _R]) -> Callable[[Registry], _R]:
    """The method only looks. Meanwhile the collector may run a finalizer that dispatches: it is refused,
    as it is in the middle of a step."""

    @wraps(look)
    def undisturbed(self: Registry) -> _R:
        step = self._ledger.step
        before, step.event = step.event, _READING
        try:
            return look(self)
        finally:
            step.event = before

    return undisturbed


class Registry:
    """Owns every live group.

    ``limits``: bounds in time and size, see ``Limits``; without them no parent ends by itself.
    ``observers``: callables that get each ``AuditRecord`` once its step is complete. One that raises is logged
    and counted (``counters()["observer_errors"]``), nothing else happens.
    """

    def __init__(self, limits: Limits | None = None, observers: Iterable[Observer] = ()) -> None:
        self._ledger = Ledger(limits_of(limits), journal_of(observers))
        self._owed: tuple[Action, ...] = ()
        """What was said by steps that were broken off, until the host has it."""

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
        if step.event is not None:
            return self._after_interruption(event)
        answer = None
        try:
            # On one line, as everywhere where a step counts: it is done once, wherever a step is broken off.
            step.event, step.effect, ledger.events = event, None, ledger.events + 1
            journal = step.journal
            now = event.at
            if now is None:
                now = step.now
                if ledger.dated:
                    ledger.clock.was_undated(event)
            elif now < step.now:  # time never goes back
                now = ledger.clock.went_back(event, now, step.now)
            elif now - step.now > ledger.clock.largest_jump:
                ledger.clock.jumped(event, now, step.now)
            if journal is not None:
                journal.begin_with(event, now)
            step.now = now
            if ledger.tombstones.expire_at <= now:
                ledger.tombstones.expire(now)
            if named is None:
                answer = SEVERAL[type(event)].take(ledger, event)
            else:
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
                    step.effect, step.record = option.effect, record
                    life = option.effect(ledger, record, event)
                    if step.actions:
                        answer = Dispatched("accepted", None, tuple(step.actions), life)
                    else:
                        answer = ACCEPTED[life] if life < MANY else accepted(life)
            if journal is not None:
                journal.deliver()
            if step.actions:
                step.forget()
            else:
                step.record = step.counted = step.event = None
            if ledger.dropped:
                # What this list holds goes as the call returns, last of all: a finalizer may dispatch.
                _held, ledger.dropped = ledger.dropped, []
            return answer
        except BaseException:
            if step.event is not None or answer is not None:  # it had begun: run it to its end
                step.event, step.result, step.resumed = event, answer, True
                self._finish()
            raise

    # -- a step that was broken off ---------------------------------------------------------------------------

    def _again(self, event: Event) -> Dispatched:
        """Take in the event of a step that was broken off: what was not done yet, that is."""
        ledger = self._ledger
        step = ledger.step
        journal = step.journal
        if step.result is None:
            now = max(step.now, event.at or 0.0)
            if journal is not None:
                journal.resume()
                journal.begin_with(event, now)
            step.now = now
            ledger.tombstones.expire(now)
            named = NAMED.get(type(event))
            if named is None:
                step.result = SEVERAL[type(event)].take(ledger, event)
            elif step.effect is not None:
                step.result = self._carry_on(event)
            else:
                request_id = named.subject(event)
                record = ledger.requests.get(request_id)
                option = named.option(ledger, record, event, request_id)
                if option.effect is None:
                    step.result = named.refuse(ledger, event, record, option)
                else:
                    step.effect, step.record = option.effect, record
                    step.result = self._carry_on(event)
        if journal is not None:
            journal.deliver()
        return step.result

    def _carry_on(self, event: Event) -> Dispatched:
        """The effect of the event, or what is left of it."""
        step = self._ledger.step
        group = None if step.record is None else step.record.group
        gone = group is not None and group.ended and self._ledger.requests.get(group.request_id) is not group
        if group is not None and (gone or (step.concluded and not group.ended)):
            life = group.life  # all is done
        else:
            assert step.effect is not None
            life = step.effect(self._ledger, step.record, event)
        return Dispatched("accepted", None, tuple(step.actions), life)

    def _finish(self) -> None:
        """Run the step that was broken off to its end. If that cannot be now, the next event does it."""
        ledger = self._ledger
        step = ledger.step
        try:
            said = self._again(step.event).actions
            # On one line: what was said is owed once, wherever this is broken off.
            self._owed, step.actions, step.resumed, step.event = self._owed + said, [], False, _OWED
            step.concluded, ledger.interrupted = 0, ledger.interrupted + 1
        except (RecursionError, MemoryError):
            raise  # the next event finds more room
        except Exception:  # a defect: the step is given up, and the registry stays of use
            if step.journal is not None:
                step.journal.abandon()
            step.give_up()
            raise
        step.forget()
        step.event = _OWED

    def _after_interruption(self, event: Event) -> Dispatched:
        """A step before was broken off, or still runs."""
        step = self._ledger.step
        if step.resumed:
            self._finish()
        elif step.event is not _OWED:
            raise ReentrantDispatch
        step.event = None
        answer = self.dispatch(event)
        owed, self._owed = self._owed, ()
        return answer._replace(actions=owed + answer.actions)

    def recover(self) -> tuple[Action, ...]:
        """What the host has to do for events whose ``dispatch`` was broken off, by Ctrl-C for example.

        An event whose ``dispatch`` did not return was taken in all the same, and whole, if ``dispatch`` had begun
        with it: a step that is broken off is run to its end. To dispatch it again is right, and at worst ignored.
        What the broken step says comes with the answer to the next event, before what that says; or here, if the
        host asks first.
        """
        step = self._ledger.step
        if step.resumed:
            self._finish()
        if step.event is _OWED:
            step.event = None
        owed, self._owed = self._owed, ()
        return owed

    def copy(self, observers: Iterable[Observer] = ()) -> Registry:
        """An independent registry in the same state. Payloads are shared; observers are not.

        ``observers``: those of the copy. They get its records, numbered from 1. A step that was broken off and
        could not be finished is finished first, and its actions are owed by both.
        """
        if self._ledger.step.resumed:
            self._finish()
        twin = Registry.__new__(Registry)
        twin._ledger = self._ledger.copy(journal_of(observers))
        twin._owed = self._owed
        twin._ledger.step.event = self._ledger.step.event
        return twin

    def __copy__(self) -> Registry:
        raise TypeError("a registry is copied by its method copy(): its observers cannot be shared")

    def __deepcopy__(self, memo: object) -> Registry:
        raise TypeError("a registry is copied by its method copy(): payloads and observers are the host's")

    def __reduce__(self) -> str:
        raise TypeError(
            "a registry cannot be pickled, with the host's payloads in it: within a process there is its method "
            "copy(), and elsewhere its events can be replayed"
        )

    @_undisturbed
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

    @_undisturbed
    def next_deadline(self) -> float | None:
        """When the next ``clock_ticked`` will end a parent, monotonic seconds; ``None``: no deadline is set."""
        return self._ledger.next_deadline()

    @_undisturbed
    def unconfirmed(self) -> list[Unconfirmed]:
        """Requests that were told to abort and have not reported their end: what may still run, the oldest first.

        Those whose tombstone has gone are forgotten, unless their release waits for the report.
        """
        ledger = self._ledger
        return [
            Unconfirmed(one.request_id, one.parent_id, one.life, one.since, one.replica, waits_until(ledger, one))
            for one in sorted(ledger.unconfirmed().values(), key=lambda one: one.since)
        ]

    @_undisturbed
    def requests(self) -> list[RequestView]:
        """The live requests, for people: groups in order of registration, a parent before its companions."""
        ledger = self._ledger
        groups = (record for record in ledger.requests.values() if isinstance(record, Group))
        return view(groups, ledger.step.now)

    @_undisturbed
    def counters(self) -> dict[str, Any]:
        """What is there and what has happened so far, as numbers.

        ``ignored``, ``rejected`` and ``failed`` are dictionaries by code; all others are plain integers.
        """
        return self._ledger.counters()
