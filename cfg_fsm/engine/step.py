"""One step: an event that runs through the engine, or a call through the tracker, and what it says on its way.

A step is all or nothing. When something breaks it off in the middle (Ctrl-C, a stack that is too deep), it is run
again from its beginning, with ``resumed`` set. So whatever a step does must bear being done twice: it says before
it moves, it counts on the line that notes that it was counted, and a trigger that was fired is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from cfg_fsm.actions import AbortRequests, Action, Dispatched
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

    __slots__ = (
        "aborted", "actions", "cause", "concluded", "counted", "effect", "event", "forwards", "heard", "journal",
        "now", "record", "result", "resumed", "running",
    )  # fmt: skip

    def __init__(self, journal: Journal | None, *, heard: bool = True) -> None:
        self.now = 0.0
        """Monotonic seconds; never goes back."""
        self.journal = journal
        """``None`` if nobody observes."""
        self.heard = heard
        """Whether somebody carries out actions. The tracker's orchestrator knows by itself what to do."""
        self.event: Any = None
        """The event that is under way; ``None``: between two steps."""
        self.resumed = False
        """Whether the step was broken off and runs again."""
        self.effect: Callable[..., int] | None = None
        """What the event does, once that is decided, and ..."""
        self.record: Any = None
        """... the record that it does it to."""
        self.result: Dispatched | None = None
        """The answer, once all is done but its delivery to the observers."""
        self.cause: Cause | None = None
        self.running: list[str] | None = None
        """Ids of the failing group that may still run, taken before anything moves."""
        self.aborted: Sequence[str] = ()
        """Ids of the group that the host was told to abort."""
        self.forwards = 0
        """How many bundles the group handed over."""
        self.give_up()

    def give_up(self) -> None:
        """As ``forget``, for a step that did not come to its end."""
        self.cause = self.running = None
        self.aborted = ()
        self.forwards = 0
        self.forget()

    def forget(self) -> None:
        """The step is complete: nothing of it is kept but the time."""
        self.actions: list[Action] = []
        """What was said so far, in order."""
        self.concluded = 0
        """How many of them are of groups that have spoken to their end."""
        self.counted: Any = None
        """The group, or the refusal, that is counted already."""
        self.effect = self.record = self.result = self.event = None
        self.resumed = False

    def is_new(self, action: Action) -> bool:
        """Whether the group has not said so before the step was broken off."""
        return all(type(said) is not type(action) for said in self.actions[self.concluded :])

    def say(self, action: Action) -> None:
        """The host has to do this."""
        if not self.resumed or self.is_new(action):
            self.actions.append(action)

    def abort(self, request_ids: list[str]) -> None:
        """The host has to stop these, if there are any."""
        if self.resumed:
            for said in self.actions[self.concluded :]:
                if type(said) is AbortRequests:
                    request_ids = said.request_ids
        if request_ids:
            self.aborted = request_ids
            self.say(AbortRequests(request_ids))

    def conclude(self, parent_id: str | None, life: int | None, reason: str | None = None) -> None:
        """What was said since this was last called is about this group, if about one. It is audited.

        ``reason``: why it was said, if the actions do not say it.
        """
        if self.journal is not None:
            for action in self.actions[self.concluded :]:
                self.journal.action(action, parent_id, life, reason)
        self.concluded = len(self.actions)
        self.aborted = ()
        self.running = None
        self.cause = None  # it knows records: nothing of the group is left when it has ended (R7)
