"""Nothing is left in the drop-in tracker of parents that have ended."""

from __future__ import annotations

import itertools
import types
import weakref
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import Any

import pytest
from budget import part_of
from helpers import Payload
from hypothesis import given, settings
from pydantic import BaseModel
from real_tracker import ANY_CALLS, IDS, Call, Clock, calls_number, make
from tracker_helpers import guided, with_limit

from cfg_fsm import Limits
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker

LEAVES = (str, bytes, int, float, type(None), Enum, type, types.FunctionType, types.MethodType, BaseModel)


def containers(owner: Any, where: str, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Every container that can be reached from an object's attributes, with the way to it."""
    seen = set() if seen is None else seen
    if id(owner) in seen or isinstance(owner, (*LEAVES, types.BuiltinFunctionType)):
        return
    seen.add(id(owner))
    if isinstance(owner, Mapping):
        yield where, owner
        inside = itertools.chain.from_iterable(owner.items())
    elif isinstance(owner, (Set, list, tuple)) or type(owner).__name__ == "deque":
        yield where, owner
        inside = iter(owner)
    else:
        names = [
            *getattr(owner, "__dict__", ()),
            *(n for c in type(owner).__mro__ for n in vars(c).get("__slots__", ())),
        ]
        for name in names:
            if hasattr(owner, name):
                yield from containers(getattr(owner, name), f"{where}.{name}", seen)
        return
    for value in inside:
        yield from containers(value, f"{where}[]", seen)


def held(tracker: CfgCompanionTracker) -> list[str]:
    """The containers of a tracker that hold something, counters by code and the observers apart."""
    return [
        where
        for where, container in containers(tracker, "tracker")
        if len(container)
        and "_observers" not in where
        and not (isinstance(container, Mapping) and not set(container) & set(IDS) and _are_counts(container))
    ]


def _are_counts(container: Mapping[Any, Any]) -> bool:
    return all(isinstance(key, str) and type(value) is int for key, value in container.items())


def fresh(call: Call, made: list[weakref.ref[Payload]]) -> Call:
    """The call with a payload that nobody else holds."""
    method, arguments = call
    if not any(isinstance(argument, Payload) for argument in arguments):
        return call
    payload = Payload()
    made.append(weakref.ref(payload))
    return method, tuple(payload if isinstance(argument, Payload) else argument for argument in arguments)


def end_every_parent(tracker: CfgCompanionTracker, by_abort: bool) -> None:
    parents = [view.request_id for view in tracker.requests() if view.machine == "parent"]
    if by_abort:
        tracker.abort_parents(parents)
    else:
        for parent in parents:
            tracker.cleanup_parent(parent)


def assert_nothing_is_left(calls: list[Call], by_abort: bool, observed: bool) -> None:
    clock = Clock()
    tracker = CfgCompanionTracker(
        clock=clock,
        limits=Limits(deferred_s=3.0, tombstones=0),
        observers=[lambda record: None] if observed else (),
    )
    made: list[weakref.ref[Payload]] = []
    for call in calls:
        make(tracker, clock, fresh(call, made))
    end_every_parent(tracker, by_abort)
    assert tracker.next_deadline() is None  # and the heap has forgotten its bounds
    assert held(tracker) == []
    assert [payload for payload in made if payload() is not None] == []
    assert tracker.requests() == []
    assert {tracker.counters()[name] for name in ("live", "deferred", "deadlines", "tombstones")} == {0}


def test_what_is_left_would_be_seen():
    tracker = CfgCompanionTracker(clock=Clock(), deferred_limit_s=1.0, observers=[lambda record: None])
    assert held(tracker) == []
    tracker.set_companion_output("nobody", "N")
    assert held(tracker) == []
    guided(tracker).defer_parent("p", "P", 0)
    tracker.register_companion("p", "neg", "new")
    found = held(tracker)
    assert len(found) >= 4, found
    end_every_parent(tracker, by_abort=False)
    assert tracker.next_deadline() is None
    assert [where for where in held(tracker) if "tombstone" not in where] == []
    assert any("tombstone" in where for where in held(tracker))


@settings(max_examples=part_of(150))
@given(ANY_CALLS)
def test_nothing_is_left_of_any_calls_that_end_every_parent(calls):
    for by_abort in (True, False):
        assert_nothing_is_left(calls, by_abort, observed=by_abort)


@pytest.mark.usefixtures("no_collector")
def test_nothing_is_left_of_many_long_lists_of_calls_and_no_collector_is_needed_for_that():
    for seed in range(part_of(200)):
        assert_nothing_is_left(calls_number(seed), by_abort=seed % 2 == 0, observed=seed % 4 < 2)


@pytest.mark.usefixtures("no_collector")
def test_the_memory_of_ended_parents_holds_no_payload():
    tracker, clock = with_limit()
    made: list[weakref.ref[Payload]] = []
    for seed in range(50):
        for call in calls_number(seed):
            make(tracker, clock, fresh(call, made))
        end_every_parent(tracker, by_abort=seed % 2 == 0)
    assert len(made) > 100
    assert not any(payload() for payload in made)
    assert tracker.next_deadline() is None
    assert [where for where in held(tracker) if "tombstone" not in where] == []


@pytest.mark.usefixtures("no_collector")
def test_a_payload_is_let_go_as_soon_as_it_is_of_no_more_use(ours):
    def alive(*calls: Call) -> bool:
        made: list[weakref.ref[Payload]] = []
        for call in calls:
            make(ours, Clock(), fresh(call, made))
        return made[0]() is not None

    guided(ours)
    guided(ours, "q")
    payload = Payload()
    assert not alive(("set_companion_output", ("nobody", payload)))
    assert not alive(("defer_parent", ("p-neg", payload, 0)))
    assert alive(("set_companion_output", ("p-neg", payload)))
    assert not alive(("set_companion_output", ("p-neg", payload))), "a second output"
    assert not alive(("defer_parent", ("p", payload, 0)), ("defer_parent", ("p", None, 0))), "replaced"
    assert not alive(("defer_parent", ("p", payload, 0)), ("pop_pending_parent", ("p",))), "handed back"
    superseded = ("register_companion", ("q", "neg", "new"))
    assert not alive(("set_companion_output", ("q-neg", payload)), superseded)
    assert not alive(("set_companion_output", ("q-img", payload)), ("cleanup_parent", ("q",)))
