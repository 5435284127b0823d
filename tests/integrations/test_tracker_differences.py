"""Where the drop-in tracker differs: the original's fault, and what ours does."""

from __future__ import annotations

import pytest
from helpers import Payload
from real_tracker import Clock, make
from tracker_helpers import complete, guided, live, shown

from cfg_fsm import Limits
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker


def test_role_registered_again_with_another_id(original, ours):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        complete(tracker, "p-neg")
        tracker.register_companion("p", "neg", "new")
        tracker.register_companion("p", "img", "p-img")
    assert original.is_companion("p-neg")
    assert original.cleanup_parent("p") == ["new", "p-img"], "the old one is not aborted"
    assert original.is_companion("p-neg"), "and stays"

    assert not ours.is_companion("p-neg")
    assert ours.get_parent_id("p-neg") is None
    assert not ours.is_companion_done("p-neg")
    assert ours.get_companion_outputs("p") == []
    assert live(ours) == ["p", "new", "p-img"]
    assert ours.cleanup_parent("p") == ["new", "p-img", "p-neg"]
    assert ours.cleanup_parent("p") == []
    assert live(ours) == []


def test_all_that_were_superseded_are_handed_out_once_by_an_abort_too(ours):
    for companion in ("one", "two", "three"):
        ours.register_companion("p", "neg", companion)
    guided(ours, "q")
    assert ours.abort_parents(["two", "p", "q"]) == ["two", "p", "q", "three", "one", "q-neg", "q-img"]
    assert ours.abort_parents(["p"]) == ["p"]


def test_the_late_completion_of_a_superseded_companion_counts_for_nothing(original, ours):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        tracker.register_companion("p", "neg", "new")
        tracker.set_companion_output("p-neg", "of the old one")
    assert original.on_companion_completed("p-neg") is None
    assert ours.on_companion_completed("p-neg") is None
    assert ours.get_companion_outputs("p") == []
    assert not ours.all_companions_done("p")
    assert original.is_companion_done("p-neg")
    assert not ours.is_companion_done("p-neg")


def test_a_superseded_companion_that_comes_back_starts_anew(original, ours):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        complete(tracker, "p-neg")
        tracker.register_companion("p", "neg", "new")
        tracker.register_companion("p", "neg", "p-neg")
    assert original.is_companion_done("p-neg"), "done before it has run"
    assert not ours.is_companion_done("p-neg")
    assert ours.get_companion_outputs("p") == []
    assert ours.cleanup_parent("p") == ["p-neg", "new"]


@pytest.mark.parametrize(
    "call",
    [
        ("register_companion", ("q", "neg", "p-neg")),
        ("register_companion", ("p-neg", "neg", "other")),
        ("register_parent", ("p-neg",)),
        ("defer_parent", ("p-neg", "P", 0)),
    ],
    ids=["as a companion", "as the parent of a companion", "as a parent", "as a deferred parent"],
)
def test_a_superseded_id_that_is_used_again_elsewhere_is_not_aborted_with_the_first_group(ours, call):
    guided(ours, roles=("neg",))
    ours.register_companion("p", "neg", "new")
    make(ours, Clock(), call)
    assert ours.cleanup_parent("p") == ["new"]
    assert "p-neg" in live(ours)


def test_companion_id_under_two_parents(original, ours, caplog):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        tracker.register_companion("q", "neg", "p-neg")
    assert original.get_parent_id("p-neg") == "q"
    assert original.cleanup_parent("q") == ["p-neg"]
    assert original.on_companion_completed("p-neg") is None
    assert not original.all_companions_done("p"), "and never will be"

    assert ours.get_parent_id("p-neg") == "p"
    assert not ours.has_companions("q")
    assert ours.cleanup_parent("q") == []
    ours.defer_parent("p", "P", 0)
    assert complete(ours, "p-neg") == ["p"]
    assert ours.counters()["refused"] == {"id_in_use": 1}
    assert [record.levelname for record in caplog.records if "p-neg" in record.getMessage()] == ["WARNING"]


def test_companion_id_in_two_roles(original, ours):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        tracker.register_companion("p", "img", "p-neg")
        complete(tracker, "p-neg")
    assert original.get_companion_outputs("p") == ["output of p-neg"] * 2
    assert original.cleanup_parent("p") == ["p-neg", "p-neg"]

    assert ours.get_companion_request_ids("p") == {"neg": "p-neg"}
    assert ours.get_companion_outputs("p") == ["output of p-neg"]
    assert ours.cleanup_parent("p") == ["p-neg"]
    assert ours.counters()["refused"] == {"id_in_use": 1}


def test_parent_id_that_is_a_companions(original, ours, caplog):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        tracker.register_parent("p-neg")
        tracker.register_companion("p-neg", "neg", "other")
    assert original.is_companion("p-neg")
    assert original.has_companions("p-neg")

    assert ours.is_companion("p-neg")
    assert not ours.has_companions("p-neg")
    assert not ours.is_companion("other")
    assert live(ours) == ["p", "p-neg"]
    assert sum(ours.counters()["refused"].values()) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


@pytest.mark.parametrize("first", ["registered", "deferred"])
def test_companion_id_that_is_a_parents(original, ours, caplog, first):
    for tracker in (original, ours):
        if first == "registered":
            tracker.register_parent("p")
        else:
            tracker.defer_parent("p", "P", 0)
        tracker.register_companion("q", "neg", "p")
        tracker.register_companion("r", "neg", "r")
    assert original.is_companion("p")
    assert original.is_companion("r")
    assert original.has_companions("r")

    assert live(ours) == ["p"]
    assert not ours.is_companion("p")
    assert not ours.has_companions("q")
    assert sum(ours.counters()["refused"].values()) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_a_defer_under_a_companions_id_is_not_kept(original, ours):
    for tracker in (original, ours):
        guided(tracker)
        tracker.defer_parent("p-neg", "wrong", 0)
    assert original.pop_pending_parent("p-neg") is not None
    assert ours.pop_pending_parent("p-neg") is None
    assert shown(ours, "p-neg").state == "registered"
    assert sum(ours.counters()["refused"].values()) == 1


def test_output_of_an_unknown_id(original, ours):
    for tracker in (original, ours):
        tracker.set_companion_output("p-neg", "early")
        guided(tracker, roles=("neg",))
    assert original.get_companion_outputs("p") == ["early"]
    assert ours.get_companion_outputs("p") == []
    assert ours.counters()["refused"] == {"unknown": 1}


def test_output_of_a_cleaned_id(original, ours):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        tracker.cleanup_parent("p")
        tracker.set_companion_output("p-neg", "late")
        guided(tracker, roles=("neg",))
    assert original.get_companion_outputs("p") == ["late"], "another request's"
    assert ours.get_companion_outputs("p") == []


def test_a_completion_of_an_unknown_or_cleaned_id_is_not_kept(ours):
    guided(ours, roles=("neg",))
    ours.cleanup_parent("p")
    assert ours.on_companion_completed("p-neg") is None
    assert ours.on_companion_completed("nobody") is None
    guided(ours, roles=("neg",))
    assert not ours.is_companion_done("p-neg")
    assert sum(ours.counters()["refused"].values()) == 2


@pytest.mark.parametrize("end", ["cleanup_parent", "abort_parents"])
def test_defer_of_a_parent_whose_group_ended(original, ours, end):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        getattr(tracker, end)("p" if end == "cleanup_parent" else ["p"])
        tracker.defer_parent("p", "late", 0)
        guided(tracker, roles=("neg",))
    assert complete(original, "p-neg") == ["p"], "with the output of another request"
    assert complete(ours, "p-neg") == [None]
    assert ours.pop_pending_parent("p") is None
    assert ours.counters()["refused"] == {"ended": 1}


def test_a_parent_that_was_registered_again_can_be_deferred(ours):
    guided(ours)
    ours.cleanup_parent("p")
    guided(ours)
    ours.defer_parent("p", "P", 0)
    assert ours.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 0}


def test_ended_parents_are_remembered_within_bounds():
    clock = Clock()
    ours = CfgCompanionTracker(clock=clock, limits=Limits(tombstones=2, tombstone_s=10.0))
    for parent in ("one", "two", "three"):
        guided(ours, parent)
        ours.cleanup_parent(parent)
    assert ours.counters()["tombstones"] == 2
    for parent in ("one", "two", "three"):
        ours.defer_parent(parent, "late", 0)
    assert live(ours) == ["one"], "the oldest is forgotten"
    clock.now = 10.0
    ours.defer_parent("two", "very late", 0)
    assert live(ours) == ["one", "two"], "its time is over"
    assert ours.counters()["tombstones"] == 0


def test_each_end_forgets_the_parents_whose_time_is_over():
    clock = Clock()
    ours = CfgCompanionTracker(clock=clock, limits=Limits(tombstone_s=10.0))
    for parent, now in (("one", 0.0), ("two", 9.0)):
        clock.now = now
        guided(ours, parent).cleanup_parent(parent)
    assert ours.counters()["tombstones"] == 2
    clock.now = 10.0
    guided(ours, "three").cleanup_parent("three")
    assert ours.counters()["tombstones"] == 2
    for parent in ("one", "two", "three"):
        ours.defer_parent(parent, "late", 0)
    assert live(ours) == ["one"]


def test_completed_without_an_output(original, ours, caplog):
    for tracker in (original, ours):
        guided(tracker)
        complete(tracker, "p-neg")
        assert tracker.on_companion_completed("p-img") is None
        assert tracker.is_companion_done("p-img")
        assert tracker.all_companions_done("p")
        assert tracker.get_companion_outputs("p") == ["output of p-neg"]
    assert not hasattr(original, "requests"), "nothing tells it from the other"

    assert ours.counters()["done_without_output"] == 1
    assert "p-img" in caplog.text
    assert shown(ours, "p-img").state == "done"
    assert shown(ours, "p").missing == {"img": "p-img"}


def test_a_done_companions_late_output_makes_the_bundle_complete(ours):
    guided(ours, roles=("neg",))
    ours.on_companion_completed("p-neg")
    assert shown(ours, "p").missing == {"neg": "p-neg"}
    ours.set_companion_output("p-neg", "late")
    assert shown(ours, "p").missing == {}
    assert ours.counters()["done_without_output"] == 0


def test_second_output_of_a_companion(original, ours):
    first, second = Payload("first"), Payload("second")
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
        tracker.set_companion_output("p-neg", first)
        tracker.on_companion_completed("p-neg")
        tracker.set_companion_output("p-neg", second)
        tracker.set_companion_output("p-neg", None)
    assert original.get_companion_outputs("p") == []
    assert ours.get_companion_outputs("p") == [first]
    assert ours.counters()["refused"] == {"duplicate": 2}


def test_roles_handed_out_by_get_companion_request_ids(original, ours):
    for tracker in (original, ours):
        guided(tracker, roles=("neg",))
    theirs, handed_out = original.get_companion_request_ids("p"), ours.get_companion_request_ids("p")
    for tracker in (original, ours):
        tracker.register_companion("p", "neg", "other")
        tracker.register_companion("p", "img", "p-img")
    assert theirs == {"neg": "other", "img": "p-img"}, "it changed in the hands of the next stage"
    assert handed_out == {"neg": "p-neg"}

    for tracker in (original, ours):
        tracker.get_companion_request_ids("p").clear()
    assert original.cleanup_parent("p") == [], "the caller took them away"
    assert ours.cleanup_parent("p") == ["other", "p-img", "p-neg"]


def test_order_of_abort_parents(original, ours):
    parents = [f"p{number}" for number in range(20)]
    theirs = []
    for order in (parents, parents[::-1]):
        for tracker in (original, ours):
            for parent in parents:
                guided(tracker, parent)
        with_companions = [f"{parent}-{role}" for parent in order for role in ("neg", "img")]
        assert ours.abort_parents(order) == [*order, *with_companions]
        theirs.append(original.abort_parents(order) == [*order, *with_companions])
    assert not all(theirs)


def test_an_abort_with_duplicates_has_one_order(ours):
    for parent in ("p", "q", "r"):
        guided(ours, parent)
    ours.register_companion("q", "neg", "new")
    ids = ["r", "q-img", "p", "r", "nobody", "q", "p"]
    assert ours.abort_parents(ids) == [*ids, "r-neg", "r-img", "p-neg", "p-img", "new", "q-neg"]


def test_deferred_for_ever(original):
    clock = Clock()
    ours = CfgCompanionTracker(clock=clock, deferred_limit_s=30.0)
    for tracker in (original, ours):
        guided(tracker)
        complete(tracker, "p-neg")
        tracker.defer_parent("p", "P", 0)
    assert not hasattr(original, "pop_expired_parents")
    assert not hasattr(original, "next_deadline")
    clock.now = ours.next_deadline()
    assert clock.now == 30.0
    assert [parent for parent, _ in ours.pop_expired_parents()] == ["p"]
    assert ours.cleanup_parent("p") == ["p-neg", "p-img"]
