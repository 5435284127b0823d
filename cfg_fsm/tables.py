"""The tables: everything that can change a state, and what every event means in every state.

Theory of operation
===================

A *parent* is the request a client made. Its *companions* are requests made on its behalf, each in a *role*.
A parent with its companions is a *group*. Each of them is a state machine; the group is more than their sum
because of the *coupling rows*.

1.  An event names a request. ``CLASSIFICATION`` looks up the event and the state that request's machine is
    in, and says one of four things: the machine **moves** (with the trigger named there), the event
    **stays** (it is taken in without a transition), it is **ignored** (legal, changes nothing) or
    **rejected** (must not be obeyed, changes nothing). A cell may hold several choices, each with a guard
    but the last; the first whose guard holds is taken. An id that has ended is looked up in the state
    ``cleaned``, and an id that was never heard of in the pseudo-state ``ABSENT``, so there is a cell for
    every event and no case outside the table.

2.  A trigger fires its *row* (``PARENT_ROWS``, ``COMPANION_ROWS``). Where there is no row there is no
    transition; the import of ``machines`` checks that every "moves" has its row.

3.  Entering a state may satisfy a *coupling row* (``COUPLING_ROWS``): a condition on the states of the group,
    and the trigger it fires. That may satisfy another. They run to a fixed point before the step ends, so
    between two events no coupling row is ever satisfied. This is the only way in which one machine moves
    another. In particular there is one way to readiness: the parent's output always brings the parent to
    ``deferred``, and the coupling row forwards it, in the same step if the bundle is complete. Nobody
    checks first and acts later, so nothing can come between.

4.  Time is an event as well. ``DEADLINE_ROWS`` says in which states which limit counts and from when; a
    ``clock_ticked`` at or after it fires ``fail``. Between two events a deadline moves nothing.

A machine that is ``cleaned`` has left the registry with its whole group. What remains is a tombstone: its id,
its life, and whether it may still report.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Literal, NamedTuple

from cfg_fsm.states import (
    CompanionState,
    FailureReason,
    IgnoredReason,
    MachineKind,
    ParentState,
    RejectedReason,
    Trigger,
)

PARENT, COMPANION = MachineKind.PARENT, MachineKind.COMPANION
P, C = ParentState, CompanionState

#: Pseudo-state of an id that no live request and no tombstone has.
ABSENT = "absent"

# ---------------------------------------------------------------------------
# Event-triggered rows
# ---------------------------------------------------------------------------


class Row(NamedTuple):
    """One transition of one machine. ``guard`` names an attribute of the record that must be true."""

    trigger: Trigger
    source: str
    dest: str
    guard: str | None = None


def _rows(trigger: Trigger, sources: Iterable[str], dest: str, guard: str | None = None) -> tuple[Row, ...]:
    return tuple(Row(trigger, source, dest, guard) for source in sources)


COMPANION_ROWS: tuple[Row, ...] = (
    *_rows(Trigger.START, (C.REGISTERED, C.RUNNING), C.RUNNING),  # from running: bound to another replica
    *_rows(Trigger.COMPLETE, (C.REGISTERED, C.RUNNING), C.DONE),
    *_rows(Trigger.FAIL, (C.REGISTERED, C.RUNNING), C.FAILED),
    *_rows(Trigger.CLEAN, (C.DONE, C.FAILED), C.CLEANED),
)

PARENT_ROWS: tuple[Row, ...] = (
    *_rows(Trigger.START, (P.REGISTERED, P.RUNNING), P.RUNNING),
    *_rows(Trigger.DEFER, (P.REGISTERED, P.RUNNING, P.DEFERRED), P.DEFERRED),
    *_rows(Trigger.DEFER, (P.FORWARDED,), P.DEFERRED, guard="streaming"),
    *_rows(Trigger.FORWARD, (P.DEFERRED,), P.FORWARDED),
    *_rows(Trigger.FINISH, (P.REGISTERED, P.RUNNING, P.FORWARDED), P.DONE),
    *_rows(Trigger.FAIL, (P.REGISTERED, P.RUNNING, P.DEFERRED, P.FORWARDED), P.FAILED),
    *_rows(Trigger.CLEAN, (P.DONE, P.FAILED), P.CLEANED),
)

ROWS: dict[MachineKind, tuple[Row, ...]] = {PARENT: PARENT_ROWS, COMPANION: COMPANION_ROWS}
STATES: dict[MachineKind, tuple[str, ...]] = {PARENT: tuple(ParentState), COMPANION: tuple(CompanionState)}
INITIAL: dict[MachineKind, str] = {PARENT: P.REGISTERED, COMPANION: C.REGISTERED}
FINAL: dict[MachineKind, str] = {PARENT: P.CLEANED, COMPANION: C.CLEANED}

#: States in which a request has not ended yet.
LIVE_PARENT: tuple[str, ...] = (P.REGISTERED, P.RUNNING, P.DEFERRED, P.FORWARDED)
OPEN_COMPANION: tuple[str, ...] = (C.REGISTERED, C.RUNNING)
#: States in which a record of a request is kept between two events.
LIVE: dict[MachineKind, tuple[str, ...]] = {PARENT: LIVE_PARENT, COMPANION: (*OPEN_COMPANION, C.DONE)}

# ---------------------------------------------------------------------------
# State-triggered rows: the coupling of the machines of one group
# ---------------------------------------------------------------------------


class Quantifier(Enum):
    """How many companions must be in the states that a coupling row names."""

    EVERY = "every companion"
    ANY = "a companion"
    #: As ``ANY``, and the row fires on each of them.
    EACH = "each companion"


class CouplingRow(NamedTuple):
    """When the group looks like this, that trigger fires."""

    name: str
    parent: tuple[str, ...]
    """The parent is in one of these states, ..."""
    sealed: bool
    """... the set of companions is closed, if this is true, ..."""
    quantifier: Quantifier
    companions: tuple[str, ...]
    """... and so many companions are in one of these."""
    fires: Literal["parent", "companion", "group"]
    """Whose trigger fires: the parent's, that of each companion found, or that of all of the group."""
    trigger: Trigger
    reason: FailureReason | None = None
    """The reason of a ``fail``; ``None``: the companion found is the cause and gives it."""


COUPLING_ROWS: tuple[CouplingRow, ...] = (
    CouplingRow("bundle_complete", (P.DEFERRED,), True, Quantifier.EVERY, (C.DONE,), "parent", Trigger.FORWARD),
    CouplingRow("companion_failed", LIVE_PARENT, False, Quantifier.ANY, (C.FAILED,), "parent", Trigger.FAIL),
    CouplingRow(
        "parent_ended",
        (P.DONE, P.FAILED),
        False,
        Quantifier.EACH,
        OPEN_COMPANION,
        "companion",
        Trigger.FAIL,
        FailureReason.PARENT_ENDED,
    ),
    CouplingRow(
        "group_ended", (P.DONE, P.FAILED), False, Quantifier.EVERY, (C.DONE, C.FAILED), "group", Trigger.CLEAN
    ),
)

#: A parent's reason where a companion's failure is the cause; a reason not named here stays what it is.
REASON_OF_PARENT: dict[FailureReason, FailureReason] = {
    FailureReason.ERROR: FailureReason.COMPANION_FAILED,
    FailureReason.ABORTED: FailureReason.COMPANION_ABORTED,
}

#: Finish reasons that are failures, not results (R6), and the reason that the companion fails for.
FAILED_FINISH: dict[str, FailureReason] = {"abort": FailureReason.ABORTED, "error": FailureReason.ERROR}

# ---------------------------------------------------------------------------
# Deadlines
# ---------------------------------------------------------------------------


class DeadlineRow(NamedTuple):
    """While a machine is in one of ``states``, it fails ``limit`` seconds after ``since``."""

    limit: str
    """Name of the field of ``Limits``."""
    machine: MachineKind
    states: tuple[str, ...]
    since: str
    """Attribute of the record that holds the time it counts from."""
    reason: FailureReason


#: In the order in which they are taken when several of a group are due at the same time.
DEADLINE_ROWS: tuple[DeadlineRow, ...] = (
    DeadlineRow("deferred_s", PARENT, (P.DEFERRED,), "since", FailureReason.DEFERRED_DEADLINE),
    DeadlineRow("total_s", PARENT, LIVE_PARENT, "registered_at", FailureReason.TOTAL_DEADLINE),
    DeadlineRow("start_s", COMPANION, (C.REGISTERED,), "since", FailureReason.START_DEADLINE),
    DeadlineRow("silent_s", COMPANION, (C.RUNNING,), "seen", FailureReason.SILENT),
)

#: HTTP status of a parent that a deadline ended.
DEADLINE_STATUS = 504

# ---------------------------------------------------------------------------
# Classification: every event in every state
# ---------------------------------------------------------------------------


class Verdict(Enum):
    """What an event means where it meets a machine."""

    MOVES = "moves"
    STAYS = "stays"
    IGNORED = "ignored"
    REJECTED = "rejected"


class Subjects(Enum):
    """Which requests an event is about. Each of them meets its own cell."""

    ONE = "the request it names"
    NAMED = "every request it names"
    BOUND = "every request that is bound to the replica it names"
    DUE = "every request whose deadline has come"


class Choice(NamedTuple):
    """One possible answer of a cell."""

    verdict: Verdict
    trigger: Trigger | None = None
    """The trigger that a "moves" fires; ``None``: a new machine enters its initial state."""
    reason: IgnoredReason | RejectedReason | None = None
    """The code of a refusal; ``None`` in a "rejected" cell: R9 has several, and names the one that applies."""
    guard: str | None = None
    """Name in ``GUARDS``; ``None``: always."""
    answer: tuple[str, ...] = ()
    """Types of the actions that a refusal brings for the request the event names, so that it does not run
    without an owner; none while that id is live."""


Cell = tuple[Choice, ...]

#: The guards that cells may name, and what they ask.
GUARDS: dict[str, str] = {
    "admissible": "R9 lets these ids in",
    "same_registration": "it is the registration that the parent was made from",
    "known_pair": "the companion is announced or registered in that role",
    "joins": "the group is unsealed and R9 lets the role and the id in",
    "unsealed": "the set of companions is open",
    "streaming": "the parent was registered as streaming",
    "failed_finish": f"the finish reason is {' or '.join(FAILED_FINISH)}",
    "bound": "the request is bound to the lost replica",
    "due": "the earliest deadline of the group is this machine's, and it has come",
}


def _moves(trigger: Trigger | None = None, *, guard: str | None = None) -> Choice:
    return Choice(Verdict.MOVES, trigger, None, guard)


def _stays(*, guard: str | None = None) -> Choice:
    return Choice(Verdict.STAYS, None, None, guard)


def _ignored(reason: IgnoredReason, *, guard: str | None = None, answer: tuple[str, ...] = ()) -> Choice:
    return Choice(Verdict.IGNORED, None, reason, guard, answer)


def _rejected(
    reason: RejectedReason | None = None, *, guard: str | None = None, answer: tuple[str, ...] = ()
) -> Choice:
    return Choice(Verdict.REJECTED, None, reason, guard, answer)


_I, _R, _T = IgnoredReason, RejectedReason, Trigger
_ENDED_PARENT = (P.DONE, P.FAILED, P.CLEANED)
_ENDED_COMPANION = (C.FAILED, C.CLEANED)
_EVERY_COMPANION = tuple(CompanionState)

_STOP = ("abort_requests",)
_STOP_AND_FREE = ("abort_requests", "release_requests")

_Block = dict[tuple[str, ...], Choice | Cell]


class _Event(NamedTuple):
    """The column of one event: what it means for a parent, a companion, and an id nobody knows."""

    parent: _Block
    companion: _Block
    absent: Choice | Cell = _ignored(_I.UNKNOWN)
    about: Subjects = Subjects.ONE


_GONE: _Block = {_ENDED_COMPANION: _ignored(_I.ENDED)}
_ONLY_FOR_PARENTS: _Block = {
    (C.REGISTERED, C.RUNNING, C.DONE): _ignored(_I.NOT_A_PARENT),
    **_GONE,
}
_HEARTBEAT = _Event(
    parent={
        (P.REGISTERED, P.RUNNING): _stays(),
        (P.DEFERRED, P.FORWARDED): _ignored(_I.NOT_RUNNING),
        _ENDED_PARENT: _ignored(_I.ENDED),
    },
    companion={(C.RUNNING,): _stays(), (C.REGISTERED, C.DONE): _ignored(_I.NOT_RUNNING), **_GONE},
)

_EVENTS: dict[str, _Event] = {
    "parent_registered": _Event(
        parent={
            LIVE_PARENT: (
                _ignored(_I.DUPLICATE, guard="same_registration"),
                _rejected(_R.DIFFERENT_REGISTRATION),
            ),
            _ENDED_PARENT: (_moves(guard="admissible"), _rejected()),
        },
        companion={
            (C.REGISTERED, C.RUNNING, C.DONE): _rejected(_R.ID_IN_USE),
            _ENDED_COMPANION: (_moves(guard="admissible"), _rejected()),
        },
        absent=(_moves(guard="admissible"), _rejected()),
    ),
    "companion_registered": _Event(
        parent={
            LIVE_PARENT: (
                _ignored(_I.DUPLICATE, guard="known_pair"),
                _stays(guard="joins"),
                _rejected(guard="unsealed"),
                _rejected(_R.SEALED, answer=_STOP_AND_FREE),
            ),
            _ENDED_PARENT: _rejected(_R.PARENT_ENDED, answer=_STOP_AND_FREE),
        },
        companion={_EVERY_COMPANION: _rejected(_R.NOT_A_PARENT)},
        absent=_rejected(_R.UNKNOWN_PARENT),
    ),
    "companions_sealed": _Event(
        parent={
            LIVE_PARENT: (_stays(guard="unsealed"), _ignored(_I.ALREADY_SEALED)),
            _ENDED_PARENT: _ignored(_I.ENDED),
        },
        companion=_ONLY_FOR_PARENTS,
    ),
    "request_started": _Event(
        parent={
            (P.REGISTERED, P.RUNNING): _moves(_T.START),
            (P.DEFERRED, P.FORWARDED): _ignored(_I.ALREADY_PAST),
            _ENDED_PARENT: _ignored(_I.ENDED, answer=_STOP),
        },
        companion={
            OPEN_COMPANION: _moves(_T.START),
            (C.DONE,): _ignored(_I.ALREADY_PAST),
            _ENDED_COMPANION: _ignored(_I.ENDED, answer=_STOP),
        },
    ),
    "request_progressed": _HEARTBEAT,
    "kv_ready": _HEARTBEAT,
    "parent_output_ready": _Event(
        parent={
            (P.REGISTERED, P.RUNNING, P.DEFERRED): _moves(_T.DEFER),
            (P.FORWARDED,): (_moves(_T.DEFER, guard="streaming"), _ignored(_I.ALREADY_FORWARDED)),
            _ENDED_PARENT: _ignored(_I.ENDED),
        },
        companion=_ONLY_FOR_PARENTS,
    ),
    "companion_output_ready": _Event(
        parent={LIVE_PARENT: _ignored(_I.NOT_A_COMPANION), _ENDED_PARENT: _ignored(_I.ENDED)},
        companion={
            OPEN_COMPANION: (_moves(_T.FAIL, guard="failed_finish"), _moves(_T.COMPLETE)),
            (C.DONE,): _ignored(_I.ALREADY_DONE),
            **_GONE,
        },
    ),
    "request_failed": _Event(
        parent={LIVE_PARENT: _moves(_T.FAIL), _ENDED_PARENT: _ignored(_I.ENDED)},
        companion={OPEN_COMPANION: _moves(_T.FAIL), (C.DONE,): _ignored(_I.ALREADY_DONE), **_GONE},
    ),
    "requests_aborted": _Event(
        parent={LIVE_PARENT: _moves(_T.FAIL), _ENDED_PARENT: _ignored(_I.ENDED)},
        companion={OPEN_COMPANION: _moves(_T.FAIL), (C.DONE,): _ignored(_I.ALREADY_DONE), **_GONE},
        about=Subjects.NAMED,
    ),
    "replica_lost": _Event(
        parent={
            (P.RUNNING,): (_moves(_T.FAIL, guard="bound"), _ignored(_I.NOTHING_BOUND)),
            (P.REGISTERED, P.DEFERRED, P.FORWARDED): _ignored(_I.NOTHING_BOUND),
            _ENDED_PARENT: _ignored(_I.NOTHING_BOUND),
        },
        companion={
            (C.RUNNING,): (_moves(_T.FAIL, guard="bound"), _ignored(_I.NOTHING_BOUND)),
            (C.REGISTERED, C.DONE, *_ENDED_COMPANION): _ignored(_I.NOTHING_BOUND),
        },
        absent=_ignored(_I.NOTHING_BOUND),
        about=Subjects.BOUND,
    ),
    "forward_rejected": _Event(
        parent={
            (P.FORWARDED,): _moves(_T.FAIL),
            (P.REGISTERED, P.RUNNING, P.DEFERRED): _ignored(_I.NOT_FORWARDED),
            _ENDED_PARENT: _ignored(_I.ENDED),
        },
        companion=_ONLY_FOR_PARENTS,
    ),
    "parent_finished": _Event(
        parent={
            (P.REGISTERED, P.RUNNING, P.FORWARDED): _moves(_T.FINISH),
            (P.DEFERRED,): _ignored(_I.STILL_DEFERRED),
            _ENDED_PARENT: _ignored(_I.ENDED),
        },
        companion=_ONLY_FOR_PARENTS,
    ),
    "clock_ticked": _Event(
        parent={LIVE_PARENT: (_moves(_T.FAIL, guard="due"), _stays()), _ENDED_PARENT: _stays()},
        companion={
            OPEN_COMPANION: (_moves(_T.FAIL, guard="due"), _stays()),
            (C.DONE, *_ENDED_COMPANION): _stays(),
        },
        absent=_stays(),
        about=Subjects.DUE,
    ),
}


class Classification(NamedTuple):
    """The cells of one event, by state: one table for each kind of machine, one cell for unknown ids."""

    parent: dict[str, Cell]
    companion: dict[str, Cell]
    absent: Cell
    about: Subjects = Subjects.ONE


def _cell(choice: Choice | Cell) -> Cell:
    return (choice,) if isinstance(choice, Choice) else choice


def _spread(block: _Block) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    for states, choice in block.items():
        for state in states:
            if state in cells:
                raise ValueError(f"state {state} is classified twice")
            cells[str.__str__(state)] = _cell(choice)
    return cells


CLASSIFICATION: dict[str, Classification] = {
    name: Classification(_spread(event.parent), _spread(event.companion), _cell(event.absent), event.about)
    for name, event in _EVENTS.items()
}
