"""The vocabulary of the machines: states, triggers and the codes that give a reason.

All are string enumerations. A record holds the plain string (``"running"``),
which equals the member (``ParentState.RUNNING == "running"``) and is what JSON shows.
"""

from __future__ import annotations

from enum import Enum


class _Word(str, Enum):
    """A member that is its string in every respect, printing included, on every Python."""

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]


class MachineKind(_Word):
    """The two kinds of state machine."""

    PARENT = "parent"
    COMPANION = "companion"


class ParentState(_Word):
    """States of the request that the client made."""

    REGISTERED = "registered"
    RUNNING = "running"
    #: Its own output is here, the bundle is not complete.
    DEFERRED = "deferred"
    #: The bundle was handed to the next stage, which is still at work.
    FORWARDED = "forwarded"
    DONE = "done"
    FAILED = "failed"
    CLEANED = "cleaned"


class CompanionState(_Word):
    """States of a request made on a parent's behalf."""

    REGISTERED = "registered"
    RUNNING = "running"
    #: Its output is here.
    DONE = "done"
    FAILED = "failed"
    CLEANED = "cleaned"


class Trigger(_Word):
    """Names of the triggers of both machines."""

    START = "start"
    DEFER = "defer"
    FORWARD = "forward"
    COMPLETE = "complete"
    FINISH = "finish"
    FAIL = "fail"
    CLEAN = "clean"


class FailureReason(_Word):
    """Why a parent or a companion took the ``fail`` row."""

    ERROR = "error"
    ABORTED = "aborted"
    COMPANION_FAILED = "companion_failed"
    COMPANION_ABORTED = "companion_aborted"
    REPLICA_LOST = "replica_lost"
    DEFERRED_DEADLINE = "deferred_deadline"
    SILENT = "silent"
    START_DEADLINE = "start_deadline"
    TOTAL_DEADLINE = "total_deadline"
    FORWARD_REJECTED = "forward_rejected"
    SUPERSEDED = "superseded"
    PARENT_ENDED = "parent_ended"


class IgnoredReason(_Word):
    """Why a legal event changed nothing."""

    UNKNOWN = "unknown"
    ENDED = "ended"
    OTHER_LIFE = "other_life"
    DUPLICATE = "duplicate"
    ALREADY_SEALED = "already_sealed"
    ALREADY_PAST = "already_past"
    ALREADY_DONE = "already_done"
    ALREADY_FORWARDED = "already_forwarded"
    NOT_RUNNING = "not_running"
    NOT_FORWARDED = "not_forwarded"
    STILL_DEFERRED = "still_deferred"
    NOT_A_PARENT = "not_a_parent"
    NOT_A_COMPANION = "not_a_companion"
    NOTHING_BOUND = "nothing_bound"
    NOTHING_ENDED = "nothing_ended"


class RejectedReason(_Word):
    """Why a registration was not obeyed."""

    #: An id of it belongs to a live request.
    ID_IN_USE = "id_in_use"
    #: One id stands twice in it.
    DUPLICATE_ID = "duplicate_id"
    #: The parent is live and was registered differently.
    DIFFERENT_REGISTRATION = "different_registration"
    #: The role already has another companion.
    ROLE_IN_USE = "role_in_use"
    #: The set of companions is closed.
    SEALED = "sealed"
    PARENT_ENDED = "parent_ended"
    UNKNOWN_PARENT = "unknown_parent"
    #: The id that stands where a parent's belongs is a companion's.
    NOT_A_PARENT = "not_a_parent"
    #: ``Limits.max_requests``
    REGISTRY_FULL = "registry_full"
    #: ``Limits.max_companions_per_parent``
    TOO_MANY_COMPANIONS = "too_many_companions"
    #: An id was aborted in an earlier life and has not reported its end (R9).
    MAY_STILL_REPORT = "may_still_report"
    #: The given ``life`` is not greater than the last one of that id.
    LIFE_NOT_GREATER = "life_not_greater"
