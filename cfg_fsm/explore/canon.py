"""What of a registry and its account decides what they will do: a hashable key, with times relative to now.

Two states with the same key answer everything alike, so one of them is enough. Left out are the time of day, the
numbers that only count, and times that no limit in force looks at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cfg_fsm.engine.snapshot import CompanionSnapshot, ParentSnapshot, Snapshot
from cfg_fsm.explore.scenario import Scenario
from cfg_fsm.rules.history import History

#: The name of each payload, by its identity.
Names = Mapping[int, str]


class Slot(NamedTuple):
    """One parent's part of the key."""

    head: tuple[Any, ...]
    """Of the parent and the group."""
    companions: tuple[tuple[Any, ...], ...]
    """Of each companion."""
    order: tuple[str, ...]
    """The companions that have joined, in the order of their roles."""


def key(
    held: Snapshot, history: History, scenario: Scenario, names: Names
) -> tuple[tuple[Slot, ...], tuple[Any, ...]]:
    """A part for each parent, and whatever is about none of them."""
    requests = held.requests
    groups = [request_id for request_id, record in requests.items() if isinstance(record, ParentSnapshot)]
    known: set[str] = set()
    slots = []
    for parent_id in scenario.parent_ids:
        companion_ids = scenario.companion_ids(parent_id)
        known.update((parent_id, *companion_ids))
        place: int | None = None
        order: tuple[str, ...] = ()
        record = requests.get(parent_id)
        if isinstance(record, ParentSnapshot):
            place = groups.index(parent_id)
            order = tuple([companion_id for _, companion_id in record.companions])
        slots.append(
            Slot(
                (place, _of_id(held, parent_id, parent_id, names), _of_life(history, parent_id)),
                tuple([_of_id(held, companion_id, parent_id, names) for companion_id in companion_ids]),
                order,
            )
        )
    others: list[Any] = [
        (other, _of_id(held, other, "", names)) for other in (*requests, *held.tombstones) if other not in known
    ]
    others += history.parent_lives.items()
    if history.waiting:  # in which order their groups are released
        waits = sorted(history.waiting.values(), key=lambda wait: (wait.deadline, wait.seq))
        others.append(tuple(dict.fromkeys(wait.parent_id for wait in waits)))
    if held.limits.tombstones < 1000:  # which goes next matters
        others.append(tuple(held.tombstones))
    return tuple(slots), tuple(others)


def _of_id(held: Snapshot, request_id: str, parent_id: str, names: Names) -> tuple[Any, ...]:
    """One request, live or remembered; ``parent_id`` of the group that it should belong to."""
    record, now = held.requests.get(request_id), held.now
    if record is None:
        stone = held.tombstones.get(request_id)
        if stone is None:
            return _of_told(held, request_id)
        age = 0.0 if held.limits.tombstone_s is None else now - stone.ended_at
        owner = "" if stone.parent_id == parent_id else stone.parent_id
        return ("ended", stone.life, stone.may_report, owner, age, _of_told(held, request_id))
    if isinstance(record, CompanionSnapshot):
        return _of_companion(held, record, parent_id, names)
    limits = record.limits
    waits = age = 0.0
    if limits is not None:
        if limits.deferred_s is not None and record.state == "deferred":
            waits = now - record.since
        if limits.total_s is not None:
            age = now - record.registered_at
    return (
        record.state, record.life, record.sealed, record.announced, record.streaming, record.replica,
        record.stage_id, _name(names, record.engine_outputs, request_id), _name(names, record.context, request_id),
        waits, age,
    )  # fmt: skip


def _of_told(held: Snapshot, request_id: str) -> tuple[Any, ...]:
    """One whose release waits for its report."""
    told = held.told.get(request_id)
    if told is None or told.waits_until is None:
        return ()
    return ("waits", told.parent_id, told.life, told.replica, told.waits_until - held.now)


def _of_companion(held: Snapshot, record: CompanionSnapshot, parent_id: str, names: Names) -> tuple[Any, ...]:
    parent = held.requests.get(record.parent_id)
    limits = parent.limits if isinstance(parent, ParentSnapshot) else None
    waits = silent = 0.0
    if limits is not None:
        if limits.start_s is not None and record.state == "registered":
            waits = held.now - record.since
        if limits.silent_s is not None and record.state == "running":
            silent = held.now - record.seen
    owner = "" if record.parent_id == parent_id else record.parent_id
    return (record.state, record.replica, _name(names, record.output, record.request_id), waits, silent, owner)


def _of_life(history: History, parent_id: str) -> tuple[Any, ...]:
    """What the account knows beyond what the rules compare after every step: the payloads to come."""
    life = history.lives.get(parent_id)
    if life is None:
        return ()
    return (
        life.stage_id, _short(life.engine_outputs, parent_id), _short(life.context, parent_id),
        tuple([_short(companion.output, companion.request_id) for companion in life.companions]),
    )  # fmt: skip


def _name(names: Names, payload: int | None, request_id: str) -> str | None:
    if payload is None:
        return None
    return _short(names.get(payload, f"unknown {payload}"), request_id)  # a broken engine may hold anything


def _short(name: str | None, request_id: str) -> str | None:
    """A payload's name without that of its own request, so that companions can be told apart by what they did
    alone."""
    return None if name is None else name.removeprefix(f"{request_id}:")
