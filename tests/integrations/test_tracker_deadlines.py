"""What the drop-in tracker adds: deferred parents that waited too long."""

from __future__ import annotations

import math

import pytest
from helpers import Payload
from pydantic import ValidationError
from real_tracker import Clock
from tracker_helpers import complete, expired, guided, live, with_limit

from cfg_fsm import Limits
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker


def test_a_parent_expires_at_its_deadline_and_not_before():
    tracker, clock = with_limit(10.0, now=5.0)
    guided(tracker).defer_parent("p", output := Payload(), 3)
    assert tracker.next_deadline() == 15.0
    clock.now = math.nextafter(15.0, 0.0)
    assert tracker.pop_expired_parents() == []
    clock.now = 15.0
    assert tracker.pop_expired_parents() == [
        ("p", {"engine_outputs": output, "stage_id": 3, "deferred_at": 5.0}),
    ]
    assert tracker.pop_expired_parents() == []
    assert tracker.next_deadline() is None


def test_what_expired_is_not_pending_any_more_and_its_group_stays_until_the_cleanup():
    tracker, clock = with_limit()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    clock.now = 10.0
    assert expired(tracker) == ["p"]
    assert tracker.pop_pending_parent("p") is None
    assert complete(tracker, "p-img") == [None]
    assert tracker.get_companion_outputs("p") == ["output of p-neg", "output of p-img"]
    assert tracker.cleanup_parent("p") == ["p-neg", "p-img"]
    assert live(tracker) == []


def test_an_expired_parent_that_was_never_registered_is_forgotten_with_its_output():
    tracker, clock = with_limit()
    tracker.defer_parent("p", "P", 0)
    clock.now = 10.0
    assert expired(tracker) == ["p"]
    assert live(tracker) == []


def test_those_that_were_deferred_first_expire_first_and_of_equals_those_that_were_registered_first():
    tracker, clock = with_limit()
    for parent in ("a", "b", "c", "d"):
        guided(tracker, parent)
    for parent, clock.now in (("d", 1.0), ("c", 2.0), ("b", 2.0), ("a", 2.5)):
        tracker.defer_parent(parent, parent, 0)
    assert tracker.next_deadline() == 11.0
    clock.now = 12.0
    assert expired(tracker) == ["d", "b", "c"]
    assert tracker.next_deadline() == 12.5


def test_a_second_defer_keeps_the_first_deadline():
    tracker, clock = with_limit()
    guided(tracker).defer_parent("p", "one", 0)
    clock.now = 9.0
    tracker.defer_parent("p", "two", 1)
    assert tracker.next_deadline() == 10.0
    clock.now = 10.0
    assert tracker.pop_expired_parents() == [
        ("p", {"engine_outputs": "two", "stage_id": 1, "deferred_at": 0.0}),
    ]


@pytest.mark.parametrize("how", ["popped", "expired"])
def test_a_defer_after_the_parent_was_handed_back_starts_a_new_wait(how):
    tracker, clock = with_limit()
    guided(tracker).defer_parent("p", "one", 0)
    clock.now = 10.0
    assert expired(tracker) == ["p"] if how == "expired" else tracker.pop_pending_parent("p") is not None
    assert tracker.next_deadline() is None
    clock.now = 11.0
    tracker.defer_parent("p", "two", 0)
    assert tracker.next_deadline() == 21.0
    clock.now = 20.0
    assert expired(tracker) == []
    clock.now = 21.0
    assert [pending["deferred_at"] for _, pending in tracker.pop_expired_parents()] == [11.0]


def test_what_was_popped_or_cleaned_or_aborted_has_no_deadline():
    tracker, clock = with_limit()
    for parent, clock.now in (("a", 0.0), ("b", 1.0), ("c", 2.0), ("d", 3.0)):
        guided(tracker, parent).defer_parent(parent, parent, 0)
    deadlines = [tracker.next_deadline()]
    tracker.pop_pending_parent("a")
    deadlines.append(tracker.next_deadline())
    tracker.cleanup_parent("b")
    deadlines.append(tracker.next_deadline())
    tracker.abort_parents(["c"])
    deadlines.append(tracker.next_deadline())
    assert deadlines == [10.0, 11.0, 12.0, 13.0]
    clock.now = 100.0
    assert expired(tracker) == ["d"]
    assert tracker.counters()["deadlines"] == 0


def test_an_id_that_is_used_again_does_not_inherit_a_deadline():
    tracker, clock = with_limit()
    guided(tracker).defer_parent("p", "one", 0)
    tracker.cleanup_parent("p")
    clock.now = 5.0
    guided(tracker).defer_parent("p", "two", 0)
    assert tracker.next_deadline() == 15.0
    clock.now = 10.0
    assert expired(tracker) == []


def test_a_parent_that_was_deferred_when_all_were_done_expires_like_any_other():
    tracker, clock = with_limit()
    guided(tracker, roles=("neg",))
    complete(tracker, "p-neg")
    tracker.defer_parent("p", "P", 0)
    clock.now = 10.0
    assert expired(tracker) == ["p"]


def test_a_time_out_may_be_given_and_replaces_the_limit():
    tracker, clock = with_limit(10.0)
    for parent, clock.now in (("a", 0.0), ("b", 4.0)):
        guided(tracker, parent).defer_parent(parent, parent, 0)
    clock.now = 5.0
    assert expired(tracker, 5.5) == []
    assert expired(tracker, 5) == ["a"]
    clock.now = 20.0
    assert expired(tracker, 100.0) == []


def test_a_time_may_be_given_and_replaces_the_clocks():
    tracker, clock = with_limit(10.0)
    guided(tracker).defer_parent("p", "P", 0)
    assert expired(tracker, None, 9.5) == []
    assert clock.now == 0.0
    assert expired(tracker, None, 10.0) == ["p"]


def test_a_given_time_is_forgotten_after_the_call():
    tracker, clock = with_limit(10.0)
    assert expired(tracker, None, 1_000_000.0) == []
    clock.now = 1.0
    guided(tracker).defer_parent("p", "P", 0)
    assert tracker.next_deadline() == 11.0
    clock.now = 11.0
    assert expired(tracker) == ["p"]


def test_a_time_and_a_time_out_may_be_given_by_name_without_a_limit():
    tracker, _ = with_limit(None)
    guided(tracker).defer_parent("p", "P", 0)
    assert tracker.next_deadline() is None
    assert tracker.pop_expired_parents(now=1_000_000.0) == []
    assert tracker.pop_expired_parents(timeout_s=2.0, now=1.5) == []
    assert [parent for parent, _ in tracker.pop_expired_parents(timeout_s=2.0, now=2.0)] == ["p"]


def test_without_a_limit_and_a_time_out_nothing_expires():
    tracker, clock = with_limit(None)
    guided(tracker).defer_parent("p", "P", 0)
    clock.now = 1_000_000.0
    assert expired(tracker) == []
    assert tracker.next_deadline() is None


def test_the_limit_may_come_in_limits_and_the_short_form_goes_before_it():
    clock = Clock()
    for arguments, deadline in (
        ({"limits": Limits(deferred_s=7.0)}, 7.0),
        ({"limits": Limits(deferred_s=7.0), "deferred_limit_s": 3.0}, 3.0),
        ({"limits": Limits(), "deferred_limit_s": 3}, 3.0),
        ({"limits": Limits()}, None),
        ({"limits": Limits(silent_s=1.0, start_s=1.0, total_s=1.0)}, None),
        ({}, None),
    ):
        tracker = CfgCompanionTracker(clock=clock, **arguments)
        guided(tracker).defer_parent("p", "P", 0)
        assert tracker.next_deadline() == deadline, arguments


def test_limits_of_size_refuse_no_registration():
    tracker = CfgCompanionTracker(clock=Clock(), limits=Limits(max_requests=1, max_companions_per_parent=1))
    guided(tracker)
    guided(tracker, "q")
    assert len(live(tracker)) == 6


BAD_TIMES = [math.nan, math.inf, -math.inf, 0, 0.0, -0.0, -1, -0.5]


@pytest.mark.parametrize("value", BAD_TIMES)
def test_a_limit_that_is_no_positive_finite_time_is_refused(value):
    with pytest.raises(ValueError, match="deferred_limit_s"):
        CfgCompanionTracker(deferred_limit_s=value)
    with pytest.raises(ValidationError):  # it is a ValueError
        CfgCompanionTracker(limits=Limits(deferred_s=value))


@pytest.mark.parametrize("value", BAD_TIMES)
def test_a_time_out_that_is_no_positive_finite_time_is_refused_and_nothing_expires(value):
    tracker, clock = with_limit()
    guided(tracker).defer_parent("p", "P", 0)
    clock.now = 100.0
    with pytest.raises(ValueError, match="timeout_s"):
        tracker.pop_expired_parents(value)
    assert expired(tracker) == ["p"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_not_finite_is_refused_and_nothing_expires(value):
    tracker, clock = with_limit()
    guided(tracker).defer_parent("p", "P", 0)
    clock.now = 100.0
    with pytest.raises(ValueError, match="now"):
        tracker.pop_expired_parents(now=value)
    assert expired(tracker) == ["p"]


def test_the_next_deadline_is_exact_whatever_came_and_went():
    tracker, clock = with_limit(10.0)
    names = [f"p{number}" for number in range(200)]
    for number, parent in enumerate(names):
        clock.now = number * 0.125
        guided(tracker, parent, roles=("neg",)).defer_parent(parent, parent, 0)
    waiting = {parent: number * 0.125 for number, parent in enumerate(names)}
    for number, parent in enumerate(sorted(names)):
        assert tracker.next_deadline() == min(waiting.values()) + 10.0
        (tracker.pop_pending_parent, tracker.cleanup_parent)[number % 2](parent)
        del waiting[parent]
    assert tracker.next_deadline() is None
