"""One step: an event that runs through the engine, or a call through the tracker, and what it says on its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

from cfg_fsm.actions import AbortRequests, Action
from cfg_fsm.engine.journal import Journal
from cfg_fsm.states import FailureReason

#: A stage's replica that a request runs on: ``(stage_id, replica_id)``.
Replica: TypeAlias = tuple[int, int]


class Cause(NamedTuple):
    """Why something fails, while the failure runs through the group."""

    reason: FailureReason
    error: str
    """A sentence for the client."""
    gone: tuple[Any, ...] = ()
    """Records of requests that do not run any more, for it is of their own end or of their replica's that the
    cause tells: nobody is told to abort them."""
    stage_id: int | None = None
    error_type: str | None = None
    status_code: int | None = None


class Step:
    """What travels with an event: the time, the journal, the cause of a failure, and what the host is told.

    The group says, the ledger reads. There is one object for each registry and each tracker, begun anew with each
    event: making one would be a tenth of a step.
    """

    __slots__ = ("aborted", "actions", "cause", "forwards", "heard", "journal", "journaled", "now", "running")

    def __init__(self, journal: Journal | None, *, heard: bool = True) -> None:
        self.now = 0.0
        """Monotonic seconds; never goes back."""
        self.journal = journal
        """``None`` if nobody observes."""
        self.heard = heard
        """Whether somebody carries out actions. The tracker's orchestrator knows by itself what to do."""
        self.cause: Cause | None = None
        self.actions: list[Action] = []
        """What was said so far, in order."""
        self.journaled = 0
        """How many of them the journal has."""
        self.running: list[str] = []
        """Ids of the failing group that may still run, taken before anything moves."""
        self.aborted: Sequence[str] = ()
        """Ids of the group that the host was told to abort."""
        self.forwards = 0
        """How many bundles it handed over."""

    def say(self, action: Action) -> None:
        """The host has to do this."""
        self.actions.append(action)

    def abort(self, request_ids: list[str]) -> None:
        """The host has to stop these, if there are any."""
        if request_ids:
            self.aborted = request_ids
            self.actions.append(AbortRequests(request_ids))

    def note_actions(self, parent_id: str | None, life: int | None) -> None:
        """Audit what was said since this was last called. It is about this group, if about one."""
        if self.journal is not None:
            for action in self.actions[self.journaled :]:
                self.journal.action(action, parent_id, life)
            self.journaled = len(self.actions)

    def answer(self) -> tuple[Action, ...]:
        """Hand out what was said, and begin anew."""
        said = tuple(self.actions)
        self.actions = []
        self.journaled = 0
        return said
