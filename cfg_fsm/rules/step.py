"""One step of a registry, as the rules look at it: the event, the answer, and the world before and after."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cfg_fsm.actions import Dispatched
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.registry import Registry
from cfg_fsm.engine.tombstones import Tombstone
from cfg_fsm.engine.views import RequestView
from cfg_fsm.rules.account import Ended, Foreseen
from cfg_fsm.rules.history import History

# -- the inside of a registry -------------------------------------------------------------------------------


def live_records(registry: Registry) -> dict[str, Group | Companion]:
    """The record of each live request, by its id."""
    return registry._ledger.requests


def armed_groups(registry: Registry) -> list[Group]:
    """The groups that the heap of deadlines knows."""
    return registry._ledger.deadlines.groups()


def tombstones(registry: Registry) -> dict[str, Tombstone]:
    """The tombstone of each ended id that is remembered."""
    return registry._ledger.tombstones.by_id


# -- a look at it -------------------------------------------------------------------------------------------

_PAYLOADS = ("engine_outputs", "context", "output")


@dataclass(frozen=True, slots=True)
class Picture:
    """What a registry shows and what it holds. Payloads are named by their identity and not held."""

    views: dict[str, dict[str, Any]]
    records: dict[str, dict[str, Any]]
    """Everything in the records of live requests, but for the bound that the heap of deadlines keeps there."""
    tombstones: dict[str, Ended]
    next_deadline: float | None


_VIEW = tuple(item.name for item in fields(RequestView))


def take_picture(registry: Registry, twin: Registry | None = None) -> Picture:
    """Look at it as it is now. To ask for the next deadline tidies the heap; ``twin``, in the same state, is asked
    in its place if that is not wanted."""
    records = {}
    for request_id, record in live_records(registry).items():
        seen: dict[str, Any] = {}
        for name in type(record).__slots__:
            value = getattr(record, name)
            if name in _PAYLOADS:
                seen[name] = None if value is None else id(value)
            elif name == "companions":
                seen[name] = [(companion.role, companion.request_id) for companion in value]
            elif name == "group":
                seen[name] = value.seq  # a name that it keeps when the registry is copied
            elif name != "alarm":
                seen[name] = value
        records[request_id] = seen
    stones = {
        request_id: Ended(
            stone.parent_id, stone.life, stone.ended_at, registry._ledger.tombstones.may_report(request_id)
        )
        for request_id, stone in tombstones(registry).items()
    }
    views = {view.request_id: {name: getattr(view, name) for name in _VIEW} for view in registry.requests()}
    return Picture(views, records, stones, (registry if twin is None else twin).next_deadline())


@dataclass(frozen=True, slots=True)
class Step:
    """One event, its answer, and the world before and after."""

    registry: Registry
    event: Any
    answer: Dispatched
    before: Picture
    after: Picture
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


class Broken(AssertionError):
    """A step broke a rule. ``rule`` says which, in words."""

    def __init__(self, rule: str, step: Step) -> None:
        super().__init__(
            f"{rule}\n  event    {step.event!r}\n  answer   {step.answer!r}\n  foreseen {step.foreseen}"
        )
        self.rule = rule


def require(condition: bool, rule: str, step: Step) -> None:
    """Raise ``Broken`` unless the condition holds."""
    if not condition:
        raise Broken(rule, step)
