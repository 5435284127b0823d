"""What of a registry and its account decides what they will do: a hashable key, with times relative to now.

Two states with the same key answer everything alike, so one of them is enough. Left out are the time of day, the
numbers that only count, and times that no limit in force looks at.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.registry import Registry
from cfg_fsm.explore.scenario import Scenario
from cfg_fsm.rules.history import History
from cfg_fsm.rules.step import live_records, tombstones

_NO_LIMITS = (None, None, None, None)


class Slot(NamedTuple):
    """One parent's part of the key."""

    head: tuple[Any, ...]
    """Of the parent and the group."""
    companions: tuple[tuple[Any, ...], ...]
    """Of each companion."""
    order: tuple[str, ...]
    """The companions that have joined, in the order of their roles."""


def key(registry: Registry, history: History, scenario: Scenario) -> tuple[tuple[Slot, ...], tuple[Any, ...]]:
    """A part for each parent, and whatever is about none of them."""
    records, stones = live_records(registry), tombstones(registry)
    groups = [record.request_id for record in records.values() if isinstance(record, Group)]
    known: set[str] = set()
    slots = []
    for parent_id in scenario.parent_ids:
        companion_ids = scenario.companion_ids(parent_id)
        known.update((parent_id, *companion_ids))
        place: int | None = None
        order: tuple[str, ...] = ()
        if parent_id in groups:
            place = groups.index(parent_id)
            order = tuple(companion.request_id for companion in records[parent_id].group.companions)
        slots.append(
            Slot(
                (place, _of_id(registry, parent_id, parent_id), _of_life(history, parent_id)),
                tuple(_of_id(registry, companion_id, parent_id) for companion_id in companion_ids),
                order,
            )
        )
    others: list[Any] = [
        (other, _of_id(registry, other, "")) for other in (*records, *stones) if other not in known
    ]
    others += history.parent_lives.items()
    if registry.limits.tombstones < 1000:  # which goes next matters
        others.append(tuple(stones))
    return tuple(slots), tuple(others)


def _of_id(registry: Registry, request_id: str, parent_id: str) -> tuple[Any, ...]:
    """One request, live or remembered; ``parent_id`` of the group that it should belong to."""
    record, now = live_records(registry).get(request_id), registry.now
    if record is None:
        stone = tombstones(registry).get(request_id)
        if stone is None:
            return ()
        age = 0.0 if registry.limits.tombstone_s is None else now - stone.ended_at
        owner = "" if stone.parent_id == parent_id else stone.parent_id
        return ("ended", stone.life, registry._ledger.tombstones.may_report(request_id), owner, age)
    group = record.group
    limits = group.limits
    deferred_s, silent_s, start_s, total_s = (
        _NO_LIMITS if limits is None else (limits.deferred_s, limits.silent_s, limits.start_s, limits.total_s)
    )
    if isinstance(record, Companion):
        since = record.since if start_s is not None and record.state == "registered" else now
        seen = record.seen if silent_s is not None and record.state == "running" else now
        owner = "" if group.request_id == parent_id else group.request_id
        return (
            record.state, record.replica, _name(record.output, request_id), now - since, now - seen, owner,
        )  # fmt: skip
    waits = group.since if deferred_s is not None and record.state == "deferred" else now
    age = 0.0 if total_s is None else now - group.registered_at
    return (
        group.state, group.life, group.sealed, group.announced, group.streaming, group.replica, group.stage_id,
        _name(group.engine_outputs, request_id), _name(group.context, request_id), now - waits, age,
    )  # fmt: skip


def _of_life(history: History, parent_id: str) -> tuple[Any, ...]:
    """What the account knows beyond what the rules compare after every step: the payloads to come."""
    life = history.lives.get(parent_id)
    if life is None:
        return ()
    return (
        life.stage_id, _name(life.engine_outputs, parent_id), _name(life.context, parent_id),
        tuple(_name(companion.output, companion.request_id) for companion in life.companions),
    )  # fmt: skip


def _name(payload: Any, request_id: str) -> Any:
    """A payload's name without that of its own request, so that companions can be told apart by what they did
    alone."""
    return payload.removeprefix(f"{request_id}:") if isinstance(payload, str) else payload
