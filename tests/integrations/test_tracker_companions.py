"""The drop-in tracker, and the original: companions, from their registration to their completion."""

from __future__ import annotations

from helpers import Payload
from tracker_helpers import complete, guided

# -- is_companion ---------------------------------------------------------------------------------------------


def test_an_id_is_a_companions_from_its_registration_until_the_cleanup_of_its_parent(tracker):
    assert not tracker.is_companion("p-neg")
    guided(tracker)
    assert tracker.is_companion("p-neg")
    complete(tracker, "p-neg")
    assert tracker.is_companion("p-neg")
    tracker.cleanup_parent("p")
    assert not tracker.is_companion("p-neg")


def test_a_parent_is_no_companion(tracker):
    guided(tracker)
    tracker.register_parent("alone")
    assert [tracker.is_companion(request_id) for request_id in ("p", "alone", "nobody")] == [False] * 3


# -- get_parent_id --------------------------------------------------------------------------------------------


def test_the_parent_of_a_companion_is_known_until_its_cleanup(tracker):
    guided(tracker)
    guided(tracker, "q")
    assert [tracker.get_parent_id(companion) for companion in ("p-neg", "q-img", "p-img")] == ["p", "q", "p"]
    tracker.cleanup_parent("p")
    assert [tracker.get_parent_id(companion) for companion in ("p-neg", "q-img", "p-img")] == [None, "q", None]


def test_a_parent_and_an_unknown_id_have_no_parent(tracker):
    guided(tracker)
    assert tracker.get_parent_id("p") is None
    assert tracker.get_parent_id("nobody") is None


# -- has_companions -------------------------------------------------------------------------------------------


def test_a_parent_has_companions_once_it_is_registered_even_alone(tracker):
    assert not tracker.has_companions("p")
    guided(tracker)
    tracker.register_parent("alone")
    assert tracker.has_companions("p")
    assert tracker.has_companions("alone")
    tracker.cleanup_parent("p")
    assert not tracker.has_companions("p")


def test_a_companion_and_a_parent_that_was_only_deferred_have_no_companions(tracker):
    guided(tracker)
    tracker.defer_parent("deferred", Payload(), 0)
    assert not tracker.has_companions("p-neg")
    assert not tracker.has_companions("deferred")


# -- all_companions_done --------------------------------------------------------------------------------------


def test_all_companions_are_done_once_the_last_one_is_completed(tracker):
    guided(tracker)
    assert not tracker.all_companions_done("p")
    complete(tracker, "p-img")
    assert not tracker.all_companions_done("p")
    complete(tracker, "p-neg")
    assert tracker.all_companions_done("p")


def test_all_companions_of_a_parent_without_any_are_done(tracker):
    tracker.register_parent("alone")
    assert tracker.all_companions_done("alone")
    assert tracker.all_companions_done("nobody")


def test_a_companion_that_joins_later_is_waited_for(tracker):
    guided(tracker, roles=("neg",))
    complete(tracker, "p-neg")
    tracker.register_companion("p", "img", "p-img")
    assert not tracker.all_companions_done("p")


# -- get_companion_request_ids --------------------------------------------------------------------------------


def test_the_companions_ids_stand_in_the_order_in_which_the_roles_were_registered(tracker):
    for role in ("img", "neg", "audio"):
        tracker.register_companion("p", role, f"p-{role}")
    tracker.register_companion("p", "neg", "p-neg")
    assert list(tracker.get_companion_request_ids("p").items()) == [
        ("img", "p-img"),
        ("neg", "p-neg"),
        ("audio", "p-audio"),
    ]


def test_a_role_keeps_its_place_when_another_id_takes_it(tracker):
    guided(tracker)
    tracker.register_companion("p", "neg", "other")
    assert list(tracker.get_companion_request_ids("p").items()) == [("neg", "other"), ("img", "p-img")]


def test_there_are_no_companions_ids_of_an_unknown_parent_a_lone_parent_or_a_companion(tracker):
    guided(tracker)
    tracker.register_parent("alone")
    assert [tracker.get_companion_request_ids(i) for i in ("nobody", "alone", "p-neg")] == [{}, {}, {}]


# -- register_parent ------------------------------------------------------------------------------------------


def test_to_register_a_parent_again_changes_nothing(tracker):
    guided(tracker)
    complete(tracker, "p-neg")
    tracker.defer_parent("p", "P", 1)
    assert tracker.register_parent("p") is None
    assert tracker.get_companion_request_ids("p") == {"neg": "p-neg", "img": "p-img"}
    assert tracker.is_companion_done("p-neg")
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 1}


# -- register_companion ---------------------------------------------------------------------------------------


def test_to_register_a_companion_registers_its_parent_too(tracker):
    assert tracker.register_companion("p", "neg", "p-neg") is None
    assert tracker.has_companions("p")
    assert tracker.get_parent_id("p-neg") == "p"
    assert not tracker.is_companion_done("p-neg")


def test_to_register_a_companion_again_in_its_role_changes_nothing(tracker):
    guided(tracker)
    complete(tracker, "p-neg")
    tracker.register_companion("p", "neg", "p-neg")
    assert tracker.is_companion_done("p-neg")
    assert tracker.get_companion_outputs("p") == ["output of p-neg"]
    assert tracker.cleanup_parent("p") == ["p-neg", "p-img"]


# -- set_companion_output -------------------------------------------------------------------------------------


def test_an_output_is_kept_by_reference_and_does_not_complete_the_companion(tracker):
    guided(tracker)
    output = Payload()
    assert tracker.set_companion_output("p-neg", output) is None
    assert tracker.get_companion_outputs("p")[0] is output
    assert not tracker.is_companion_done("p-neg")


def test_an_output_may_come_after_the_completion(tracker):
    guided(tracker, roles=("neg",))
    tracker.on_companion_completed("p-neg")
    tracker.set_companion_output("p-neg", "late")
    assert tracker.get_companion_outputs("p") == ["late"]


def test_an_empty_output_is_an_output(tracker):
    guided(tracker)
    tracker.set_companion_output("p-neg", [])
    tracker.set_companion_output("p-img", 0)
    assert tracker.get_companion_outputs("p") == [[], 0]


# -- get_companion_outputs ------------------------------------------------------------------------------------


def test_outputs_stand_in_the_order_of_the_roles_not_of_their_arrival(tracker):
    guided(tracker)
    complete(tracker, "p-img", "p-neg")
    assert tracker.get_companion_outputs("p") == ["output of p-neg", "output of p-img"]


def test_an_output_that_is_not_there_is_left_out(tracker):
    guided(tracker)
    tracker.set_companion_output("p-neg", None)
    tracker.on_companion_completed("p-neg")
    complete(tracker, "p-img")
    assert tracker.get_companion_outputs("p") == ["output of p-img"]


def test_outputs_can_be_read_again_until_the_cleanup_of_the_parent(tracker):
    guided(tracker)
    complete(tracker, "p-neg", "p-img")
    first = tracker.get_companion_outputs("p")
    assert tracker.cleanup_parent("p-neg") == []
    tracker.defer_parent("p", "P", 0)
    tracker.pop_pending_parent("p")
    assert tracker.get_companion_outputs("p") == first == ["output of p-neg", "output of p-img"]
    tracker.cleanup_parent("p")
    assert tracker.get_companion_outputs("p") == []


def test_an_unknown_parent_has_no_outputs(tracker):
    assert tracker.get_companion_outputs("nobody") == []


# -- is_companion_done ----------------------------------------------------------------------------------------


def test_a_companion_is_done_from_its_completion_until_the_cleanup_of_its_parent(tracker):
    guided(tracker)
    complete(tracker, "p-neg")
    assert [tracker.is_companion_done(companion) for companion in ("p-neg", "p-img")] == [True, False]
    tracker.cleanup_parent("p-neg")
    assert tracker.is_companion_done("p-neg")
    tracker.cleanup_parent("p")
    assert not tracker.is_companion_done("p-neg")


def test_a_parent_and_an_unknown_id_are_not_done(tracker):
    guided(tracker)
    complete(tracker, "p-neg", "p-img")
    assert [tracker.is_companion_done(request_id) for request_id in ("p", "nobody")] == [False, False]


# -- on_companion_completed -----------------------------------------------------------------------------------


def test_the_last_completion_returns_the_parent_if_that_is_pending(tracker):
    guided(tracker)
    tracker.defer_parent("p", "P", 0)
    assert complete(tracker, "p-img", "p-neg") == [None, "p"]


def test_the_last_completion_returns_nothing_if_the_parent_is_not_pending(tracker):
    guided(tracker)
    assert complete(tracker, "p-img", "p-neg") == [None, None]
    guided(tracker, "q")
    tracker.defer_parent("q", "Q", 0)
    tracker.pop_pending_parent("q")
    assert complete(tracker, "q-img", "q-neg") == [None, None]


def test_a_second_completion_returns_nothing(tracker):
    guided(tracker)
    tracker.defer_parent("p", "P", 0)
    assert complete(tracker, "p-img", "p-img", "p-neg", "p-neg") == [None, None, "p", None]


def test_the_completion_of_something_else_than_a_companion_returns_nothing(tracker):
    guided(tracker)
    tracker.defer_parent("p", "P", 0)
    assert [tracker.on_companion_completed(request_id) for request_id in ("p", "nobody")] == [None, None]
    assert not tracker.all_companions_done("p")


def test_a_parent_that_was_deferred_again_is_returned_by_the_companion_that_it_then_waits_for(tracker):
    guided(tracker)
    tracker.defer_parent("p", "one", 0)
    complete(tracker, "p-neg")
    tracker.pop_pending_parent("p")
    tracker.defer_parent("p", "two", 0)
    assert complete(tracker, "p-img") == ["p"]
