"""The drop-in tracker, and the original: parents, from their defer to their end."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from helpers import Payload
from real_tracker import METHODS, original_class
from tracker_helpers import complete, guided

from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker

# -- defer_parent ---------------------------------------------------------------------------------------------


def test_what_is_deferred_last_is_what_is_pending(tracker):
    guided(tracker)
    assert tracker.defer_parent("p", "one", 0) is None
    tracker.defer_parent("p", "two", 3)
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "two", "stage_id": 3}
    assert tracker.pop_pending_parent("p") is None


def test_a_parent_that_was_never_registered_can_be_deferred(tracker):
    tracker.defer_parent("p", "P", 0)
    assert not tracker.has_companions("p")
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 0}


def test_a_parent_that_was_deferred_first_and_registered_later_waits_for_its_companions(tracker):
    tracker.defer_parent("p", "P", 0)
    guided(tracker)
    assert complete(tracker, "p-neg", "p-img") == [None, "p"]


def test_a_parent_that_is_deferred_when_all_are_done_stays_pending(tracker):
    guided(tracker)
    complete(tracker, "p-neg", "p-img")
    tracker.defer_parent("p", "P", 0)
    assert tracker.on_companion_completed("p-img") is None
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 0}


# -- pop_pending_parent ---------------------------------------------------------------------------------------


def test_what_was_deferred_comes_back_once_by_reference_and_nothing_else_changes(tracker):
    guided(tracker)
    complete(tracker, "p-neg")
    output = Payload()
    tracker.defer_parent("p", output, 2)
    pending = tracker.pop_pending_parent("p")
    assert pending == {"engine_outputs": output, "stage_id": 2}
    assert list(pending) == ["engine_outputs", "stage_id"]
    assert tracker.pop_pending_parent("p") is None
    assert tracker.get_companion_request_ids("p") == {"neg": "p-neg", "img": "p-img"}
    assert tracker.get_companion_outputs("p") == ["output of p-neg"]


def test_nothing_as_an_output_can_be_deferred_and_comes_back(tracker):
    guided(tracker)
    tracker.defer_parent("p", None, 0)
    assert tracker.pop_pending_parent("p") == {"engine_outputs": None, "stage_id": 0}


def test_nothing_is_pending_of_a_parent_that_was_not_deferred(tracker):
    guided(tracker)
    assert [tracker.pop_pending_parent(request_id) for request_id in ("p", "p-neg", "nobody")] == [None] * 3


# -- cleanup_parent -------------------------------------------------------------------------------------------


def test_a_cleanup_returns_the_companions_in_role_order_and_the_second_one_nothing(tracker):
    guided(tracker, roles=("img", "neg"))
    assert tracker.cleanup_parent("p") == ["p-img", "p-neg"]
    assert tracker.cleanup_parent("p") == []


def test_the_cleanup_of_a_companions_id_changes_nothing(tracker):
    guided(tracker)
    complete(tracker, "p-neg")
    tracker.defer_parent("p", "P", 0)
    assert tracker.cleanup_parent("p-neg") == []
    assert tracker.is_companion_done("p-neg")
    assert complete(tracker, "p-img") == ["p"]
    assert tracker.get_companion_outputs("p") == ["output of p-neg", "output of p-img"]


def test_the_cleanup_of_an_unknown_id_returns_nothing(tracker):
    assert tracker.cleanup_parent("nobody") == []


def test_a_cleanup_forgets_what_was_pending(tracker):
    guided(tracker)
    tracker.defer_parent("p", "P", 0)
    tracker.defer_parent("unregistered", "U", 0)
    assert tracker.cleanup_parent("p") == ["p-neg", "p-img"]
    assert tracker.cleanup_parent("unregistered") == []
    assert tracker.pop_pending_parent("p") is None
    assert tracker.pop_pending_parent("unregistered") is None


def test_after_a_cleanup_the_ids_can_be_used_again_as_if_they_were_new(tracker):
    guided(tracker)
    tracker.defer_parent("p", "P", 0)
    complete(tracker, "p-neg", "p-img")
    tracker.cleanup_parent("p")
    guided(tracker)
    assert not tracker.all_companions_done("p")
    assert tracker.get_companion_outputs("p") == []
    assert tracker.pop_pending_parent("p") is None
    tracker.defer_parent("p", "again", 0)
    assert complete(tracker, "p-neg", "p-img") == [None, "p"]


def test_a_cleanup_leaves_other_parents_alone(tracker):
    guided(tracker)
    guided(tracker, "q")
    tracker.defer_parent("q", "Q", 0)
    complete(tracker, "q-neg")
    tracker.cleanup_parent("p")
    assert tracker.get_companion_outputs("q") == ["output of q-neg"]
    assert complete(tracker, "q-img") == ["q"]


# -- abort_parents --------------------------------------------------------------------------------------------


def test_an_abort_returns_the_given_ids_and_the_companions_and_forgets_them(tracker):
    guided(tracker)
    tracker.defer_parent("p", "P", 0)
    assert tracker.abort_parents(["p"]) == ["p", "p-neg", "p-img"]
    assert tracker.abort_parents(["p"]) == ["p"]
    assert not tracker.has_companions("p")
    assert tracker.pop_pending_parent("p") is None


def test_an_abort_passes_unknown_ids_through(tracker):
    guided(tracker)
    assert tracker.abort_parents(["x", "p", "y"]) == ["x", "p", "y", "p-neg", "p-img"]
    assert tracker.abort_parents([]) == []


def test_an_abort_of_a_companions_id_passes_it_through_and_leaves_its_group(tracker):
    guided(tracker)
    assert tracker.abort_parents(["p-neg"]) == ["p-neg"]
    assert tracker.get_companion_request_ids("p") == {"neg": "p-neg", "img": "p-img"}


def test_an_abort_returns_duplicates_in_the_given_list_as_given_and_each_companion_once(tracker):
    guided(tracker)
    ids = ["p", "p-img", "p", "x", "x"]
    assert tracker.abort_parents(ids) == ["p", "p-img", "p", "x", "x", "p-neg"]
    assert ids == ["p", "p-img", "p", "x", "x"]


# -- the same face --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_each_method_takes_what_the_originals_takes(method):
    def parameters(owner: type) -> list[tuple[str, Any, Any]]:
        return [(p.name, p.kind, p.default) for p in inspect.signature(getattr(owner, method)).parameters.values()]

    assert parameters(CfgCompanionTracker) == parameters(original_class())


def test_arguments_may_be_given_by_name(tracker):
    tracker.register_companion(parent_id="p", role="neg", companion_id="c")
    tracker.set_companion_output(companion_id="c", output="C")
    tracker.defer_parent(parent_id="p", engine_outputs="P", stage_id=1)
    assert tracker.on_companion_completed(companion_id="c") == "p"
    assert tracker.abort_parents(request_ids=["p"]) == ["p", "c"]


def test_it_is_constructed_without_arguments_and_what_it_takes_beyond_is_taken_by_name():
    CfgCompanionTracker()
    kinds = {p.kind for p in inspect.signature(CfgCompanionTracker).parameters.values()}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}
