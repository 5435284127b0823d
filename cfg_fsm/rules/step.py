"""One step of a registry, as the rules look at it: the event, the answer, and the world before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cfg_fsm.actions import Dispatched
from cfg_fsm.engine.snapshot import Snapshot
from cfg_fsm.engine.views import RequestView
from cfg_fsm.rules.account import Foreseen
from cfg_fsm.rules.history import History


@dataclass(frozen=True, slots=True)
class Step:
    """One event, its answer, and the world before and after."""

    event: Any
    answer: Dispatched
    before: Snapshot
    after: Snapshot
    views: Sequence[RequestView]
    """The live requests afterwards, as they are shown."""
    past: History
    """The account before the event."""
    present: History
    """The account with it."""
    foreseen: Foreseen

    @property
    def name(self) -> str:
        """The event's type."""
        return str(self.event.type)

    def actions(self, kind: str) -> list[dict[str, Any]]:
        """The actions of one type in the answer, as plain data."""
        return [action.to_dict() for action in self.answer.actions if action.type == kind]

    def waited_for(self, request_id: str) -> str | None:
        """The parent of a request whose release has waited; ``None``: it has not."""
        wait = self.past.waiting.get(request_id)
        if wait is not None:
            return wait.parent_id
        ended = (end.life for end in self.foreseen.ends)
        return next((life.parent_id for life in ended if request_id in life.ids), None)

    def __str__(self) -> str:
        return f"  event    {self.event!r}\n  answer   {self.answer!r}\n  foreseen {self.foreseen}"


class Repetition(NamedTuple):
    """The same event, given to a second registry in the same state."""

    answer: Dispatched
    ours: Sequence[object]
    """The audit records of the step, or the lines made from them."""
    theirs: Sequence[object]
    """Likewise, of the second registry."""
