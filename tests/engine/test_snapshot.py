"""A snapshot shows everything that a registry holds, and changes nothing."""

import gc
import sys
import weakref
from itertools import pairwise

import pytest
from helpers import TWO, Payload, abort, beat, done, error, finish, join, lose, output, register, start, tick
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import mishaps

from cfg_fsm import Limits, Registry
from cfg_fsm.engine.confirmations import Told, Waiting
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.snapshot import (
    CompanionSnapshot,
    DeadlineSnapshot,
    ParentSnapshot,
    ToldSnapshot,
    TombstoneSnapshot,
)
from cfg_fsm.engine.tombstones import Tombstone

LIMITS = Limits(deferred_s=3, silent_s=2, start_s=4, total_s=10, tombstones=6, tombstone_s=20)


def registry_with(*events, limits=LIMITS):
    registry = Registry(limits)
    registry.dispatch_many(events)
    return registry


def test_an_empty_registry():
    held = Registry().snapshot()
    assert (held.now, held.limits, held.next_deadline) == (0.0, Limits(), None)
    assert not held.requests
    assert not held.tombstones
    assert not held.deadlines
    assert not held.told


def test_a_live_group():
    mine, theirs, context = Payload("P"), Payload("A"), Payload("X")
    registry = registry_with(
        register("p", {"neg": "a", "img": "b"}, limits=Limits(total_s=8)),
        start("p", 2, stage=1, at=1.0), start("a", 0, at=1.5), done("b", theirs, at=2.0),
        output("p", mine, stage=1, context=context, at=2.5),
    )  # fmt: skip
    limits = LIMITS.with_overrides(Limits(total_s=8))
    assert list(registry.snapshot().requests.values()) == [
        ParentSnapshot(
            request_id="p", state="deferred", life=1, seq=1, companions=(("neg", "a"), ("img", "b")),
            announced=True, sealed=True, streaming=False, own_limits=Limits(total_s=8), limits=limits,
            replica=(1, 2), registered_at=0.0, since=2.5, stage_id=1, engine_outputs=id(mine),
            context=id(context), reason=None,
        ),
        CompanionSnapshot(
            request_id="a", state="running", life=1, seq=1, parent_id="p", role="neg", replica=(0, 0), since=1.5,
            seen=1.5, output=None,
        ),
        CompanionSnapshot(
            request_id="b", state="done", life=1, seq=1, parent_id="p", role="img", replica=None, since=2.0,
            seen=0.0, output=id(theirs),
        ),
    ]  # fmt: skip


def test_who_is_what():
    requests = registry_with(register("p", {"neg": "a"})).snapshot().requests
    assert [(r.machine, r.request_id, r.parent_id) for r in requests.values()] == [
        ("parent", "p", "p"),
        ("companion", "a", "p"),
    ]


def test_requests_stand_in_the_order_in_which_they_came():
    registry = registry_with(register("q", None), register("p", {"neg": "a"}), join("q", "neg", "b"))
    assert list(registry.snapshot().requests) == ["q", "p", "a", "b"]


def test_tombstones():
    registry = registry_with(
        register("p", {"neg": "a"}), start("a", 0), error("p", at=1.0), register("q", {}), finish("q", at=2.0)
    )
    assert registry.snapshot().tombstones == {
        "p": TombstoneSnapshot("p", 1, 1.0, False),
        "a": TombstoneSnapshot("p", 1, 1.0, True),
        "q": TombstoneSnapshot("q", 1, 2.0, False),
    }
    registry.dispatch(done("a"))
    assert not registry.snapshot().tombstones["a"].may_report


def test_who_was_told_to_abort():
    registry = registry_with(register("p", TWO), start("a", 1, stage=2), abort("p", at=1.0))
    assert registry.snapshot().told == {
        "p": ToldSnapshot("p", 1, 1.0, None, None),
        "a": ToldSnapshot("p", 1, 1.0, (2, 1), None),
        "b": ToldSnapshot("p", 1, 1.0, None, None),
    }
    registry.dispatch_many([done("a"), start("b", 0, at=2.0)])
    assert registry.snapshot().told == {
        "p": ToldSnapshot("p", 1, 1.0, None, None),
        "b": ToldSnapshot("p", 1, 2.0, (0, 0), None),
    }
    registry.dispatch(tick(21.0))
    assert not registry.snapshot().told


def test_whose_release_waits():
    limits = Limits(confirm_s=9, tombstone_s=5)
    registry = registry_with(register("p", {"neg": "a"}), start("a", 1), abort("p", at=1.0), limits=limits)
    held = registry.snapshot()
    assert held.told == {"p": ToldSnapshot("p", 1, 1.0, None, 10.0), "a": ToldSnapshot("p", 1, 1.0, (0, 1), 10.0)}
    assert (held.next_deadline, held.deadlines) == (10.0, ())
    registry.dispatch(tick(6.0))
    assert registry.snapshot().told == held.told
    assert not registry.snapshot().tombstones
    registry.dispatch(lose(1))
    assert list(registry.snapshot().told) == ["p"]
    registry.dispatch(tick(10.0))
    assert not registry.snapshot().told
    assert registry.snapshot().next_deadline is None


def test_lives_of_an_id_that_was_a_parent_and_is_a_companion():
    registry = registry_with(register("a", {}, life=4), finish("a"), register("p", {"neg": "a"}))
    assert registry.snapshot().parent_lives == {"a": 4}


def test_deadlines():
    registry = registry_with(
        register("p", {"neg": "a"}), register("q", {}, limits=Limits(total_s=3)), start("a", 0, at=1.0),
        beat("a", at=2.0), output("p"),
    )  # fmt: skip
    held = registry.snapshot()
    assert held.deadlines == (
        DeadlineSnapshot(3.0, 2, "q", "total_s"),
        DeadlineSnapshot(4.0, 1, "a", "silent_s"),
        DeadlineSnapshot(5.0, 1, "p", "deferred_s"),
        DeadlineSnapshot(10.0, 1, "p", "total_s"),
    )
    assert held.next_deadline == 3.0
    assert registry_with(register("p", {}), limits=Limits()).snapshot().deadlines == ()


def test_a_deadline_that_went_away_is_not_there():
    registry = registry_with(register("p", {"neg": "a"}), done("a"), limits=Limits(start_s=4))
    held = registry.snapshot()
    assert held.deadlines == ()
    assert held.next_deadline is None


def test_counters_are_those_of_the_registry():
    registry = registry_with(register("p", {"neg": "a"}), abort("p"), error("p"))
    assert registry.snapshot().counters == registry.counters()


@settings(max_examples=60)
@given(mishaps(), st.sampled_from([Limits(), LIMITS, Limits(deferred_s=1, confirm_s=2)]))
def test_it_changes_nothing_and_says_what_the_registry_says(events, limits):
    looked_at, alone = Registry(limits), Registry(limits)
    for event in events:
        assert looked_at.dispatch(event) == alone.dispatch(event)
        held = looked_at.snapshot()
        assert held == looked_at.snapshot() == looked_at.copy().snapshot()
        assert held.now == looked_at.now
        assert held.next_deadline == looked_at.copy().next_deadline()
        views = looked_at.requests()
        assert {view.request_id: view.state for view in views} == {
            request_id: request.state for request_id, request in held.requests.items()
        }
    assert looked_at.snapshot() == alone.snapshot()


def test_two_of_them_differ_when_anything_has_changed():
    registry = registry_with(register("p", {"neg": "a"}), start("a", 0))
    seen = [registry.snapshot()]
    for event in (
        beat("a", at=1.0),
        output("p"),
        output("p", "newer"),
        join("p", "img", "b"),
        error("p"),
        tick(9.0),
    ):
        registry.dispatch(event)
        seen.append(registry.snapshot())
    assert all(one != other for one, other in pairwise(seen))


@pytest.mark.parametrize(
    ("record", "shown", "apart"),
    [
        (Group, ParentSnapshot, {"by_role", "ready"}),  # they follow from the companions
        (Companion, CompanionSnapshot, {"group"}),  # by its ``seq``
        (Tombstone, TombstoneSnapshot, set()),
        (Told, ToldSnapshot, {"request_id"}),  # the key
        (Waiting, ToldSnapshot, {"told", "deadline", "seq"}),  # the keys; ``waits_until``; only puts them in order
    ],
)
def test_every_field_of_a_record_is_shown(record, shown, apart):
    assert set(record.__slots__) - apart <= set(shown._fields)


def test_payloads_are_not_held():
    registry, payload = registry_with(register("p", {"neg": "a"})), Payload("A")
    reference = weakref.ref(payload)
    registry.dispatch(done("a", payload))
    held = registry.snapshot()
    assert held.requests["a"].output == id(payload)
    count = sys.getrefcount(payload)
    del held
    assert sys.getrefcount(payload) == count
    held = registry.snapshot()
    del payload
    registry.dispatch(error("p"))
    gc.collect()
    assert reference() is None
    assert held.requests["a"].output is not None


# -- copies, for those who go on from a state in more than one way -------------------------------------------


def test_a_copy_has_observers_of_its_own():
    ours, theirs = [], []
    registry = Registry(observers=[ours.append])
    registry.dispatch(register("p", {}))
    copy = registry.copy(observers=[theirs.append])
    seen = len(ours)
    copy.dispatch(finish("p"))
    assert len(ours) == seen
    assert [record.seq for record in theirs] == list(range(1, len(theirs) + 1))
    assert [record.dest for record in theirs if record.kind == "transition"] == ["done", "cleaned"]
    registry.copy().dispatch(finish("p"))
    assert len(ours) == seen


def test_an_observer_of_a_copy_must_be_callable():
    with pytest.raises(TypeError, match="cannot be called"):
        Registry().copy(observers=["file.jsonl"])
