"""The drop-in tracker: the original's methods, where it does better, deadlines, its audit, and what it leaves."""

from __future__ import annotations

import inspect
import itertools
import logging
import math
import types
import weakref
from collections.abc import Iterator, Mapping, Set
from enum import Enum
from typing import Any

import pytest
from helpers import Payload
from hypothesis import given, settings
from pydantic import BaseModel, ValidationError
from real_tracker import ANY_CALLS, IDS, METHODS, Call, Clock, calls_number, make, original_class

from cfg_fsm import Limits
from cfg_fsm.audit.explain import explain
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.engine.views import RequestView
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker

LOGGER = "cfg_fsm"


@pytest.fixture(params=["ours", "original"])
def tracker(request):
    """What is said of the 15 methods holds for ours and for the original."""
    return CfgCompanionTracker(clock=Clock()) if request.param == "ours" else original_class()()


@pytest.fixture
def original():
    return original_class()()


@pytest.fixture
def ours():
    return CfgCompanionTracker(clock=Clock())


def guided(tracker: Any, parent: str = "p", roles: tuple[str, ...] = ("neg", "img")) -> Any:
    """Register a parent with companions ``p-neg``, ``p-img``; the tracker."""
    for role in roles:
        tracker.register_companion(parent, role, f"{parent}-{role}")
    return tracker


def complete(tracker: Any, *companions: str) -> list[str | None]:
    """Each companion's output comes; what that returned."""
    returned = []
    for companion in companions:
        tracker.set_companion_output(companion, f"output of {companion}")
        returned.append(tracker.on_companion_completed(companion))
    return returned


def live(tracker: CfgCompanionTracker) -> list[str]:
    return [view.request_id for view in tracker.requests()]


def shown(tracker: CfgCompanionTracker, request_id: str) -> RequestView:
    return next(view for view in tracker.requests() if view.request_id == request_id)


# -- is_companion --------------------------------------------------------------------------------------------


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


# -- get_parent_id -------------------------------------------------------------------------------------------


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


# -- has_companions ------------------------------------------------------------------------------------------


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


# -- all_companions_done -------------------------------------------------------------------------------------


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


# -- get_companion_request_ids -------------------------------------------------------------------------------


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


# -- register_parent -----------------------------------------------------------------------------------------


def test_to_register_a_parent_again_changes_nothing(tracker):
    guided(tracker)
    complete(tracker, "p-neg")
    tracker.defer_parent("p", "P", 1)
    assert tracker.register_parent("p") is None
    assert tracker.get_companion_request_ids("p") == {"neg": "p-neg", "img": "p-img"}
    assert tracker.is_companion_done("p-neg")
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 1}


# -- register_companion --------------------------------------------------------------------------------------


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


# -- set_companion_output ------------------------------------------------------------------------------------


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


# -- get_companion_outputs -----------------------------------------------------------------------------------


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


# -- is_companion_done ---------------------------------------------------------------------------------------


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


# -- on_companion_completed ----------------------------------------------------------------------------------


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


# -- defer_parent --------------------------------------------------------------------------------------------


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


# -- pop_pending_parent --------------------------------------------------------------------------------------


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


# -- cleanup_parent ------------------------------------------------------------------------------------------


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


# -- abort_parents -------------------------------------------------------------------------------------------


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


# -- the same face -------------------------------------------------------------------------------------------


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


# -- the differences: the original's fault, and what ours does -----------------------------------------------


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


# -- deadlines -----------------------------------------------------------------------------------------------


def with_limit(
    limit_s: float | None = 10.0, now: float = 0.0, **arguments: Any
) -> tuple[CfgCompanionTracker, Clock]:
    clock = Clock(now)
    return CfgCompanionTracker(clock=clock, deferred_limit_s=limit_s, **arguments), clock


def expired(tracker: CfgCompanionTracker, *arguments: float | None) -> list[str]:
    return [parent for parent, _ in tracker.pop_expired_parents(*arguments)]


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


# -- what an operator sees -----------------------------------------------------------------------------------


def test_the_requests_show_what_is_stuck_and_what_it_waits_for():
    tracker, clock = with_limit(10.0)
    guided(tracker)
    clock.now = 1.0
    tracker.defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    tracker.register_parent("alone")
    clock.now = 4.0
    assert [
        (v.request_id, v.machine, v.parent_id, v.role, v.life, v.state, v.age_s, v.missing, v.deadline)
        for v in tracker.requests()
    ] == [
        ("p", "parent", "p", None, 1, "deferred", 3.0, {"img": "p-img"}, 11.0),
        ("p-neg", "companion", "p", "neg", 1, "done", 3.0, {}, None),
        ("p-img", "companion", "p", "img", 1, "registered", 4.0, {}, None),
        ("alone", "parent", "alone", None, 1, "registered", 3.0, {}, None),
    ]


def test_a_parent_that_was_popped_is_forwarded_until_its_cleanup(ours):
    guided(ours).defer_parent("p", "P", 0)
    ours.pop_pending_parent("p")
    assert shown(ours, "p").state == "forwarded"
    ours.cleanup_parent("p")
    assert live(ours) == []


def test_an_id_that_is_used_again_is_in_its_next_life(ours):
    lives = []
    for _ in range(3):
        guided(ours)
        lives += [shown(ours, request_id).life for request_id in ("p", "p-neg")]
        ours.cleanup_parent("p")
    assert lives == [1, 1, 2, 2, 3, 3]


def test_a_parent_that_is_only_ever_deferred_is_in_its_next_life_each_time_too(ours):
    lives = []
    for _ in range(3):
        ours.defer_parent("p", "P", 0)
        lives.append(shown(ours, "p").life)
        ours.pop_pending_parent("p")
    assert lives == [1, 2, 3]


def test_the_counters_count_what_is_there_and_what_was_refused():
    tracker, _ = with_limit()
    guided(tracker)
    guided(tracker, "q")
    tracker.defer_parent("p", "P", 0)
    tracker.on_companion_completed("q-neg")
    tracker.set_companion_output("nobody", "N")
    tracker.on_companion_completed("nobody")
    tracker.register_companion("q", "neg", "p-neg")
    counters = tracker.counters()
    expected = {
        "live": 6,
        "live_parents": 2,
        "live_companions": 4,
        "deferred": 1,
        "done_without_output": 1,
        "deadlines": 1,
        "tombstones": 0,
        "parents_registered": 2,
        "refused": {"id_in_use": 1, "unknown": 2},
        "observer_errors": 0,
    }
    assert {name: counters[name] for name in expected} == expected
    tracker.abort_parents(["p", "q"])
    counters = tracker.counters()
    assert {name: counters[name] for name in ("live", "deferred", "done_without_output", "deadlines")} == {
        "live": 0,
        "deferred": 0,
        "done_without_output": 0,
        "deadlines": 0,
    }


def test_no_payload_shows_in_the_log_the_audit_or_the_views(caplog):
    caplog.set_level(logging.DEBUG)
    records: list[AuditRecord] = []
    tracker, clock = with_limit(observers=[records.append])
    guided(tracker)
    tracker.defer_parent("p", Payload(), 0)
    tracker.set_companion_output("p-neg", Payload())
    tracker.set_companion_output("p-neg", Payload())
    tracker.set_companion_output("nobody", Payload())
    tracker.on_companion_completed("p-neg")
    tracker.on_companion_completed("p-img")
    seen = f"{tracker.requests()}{tracker.counters()}"
    clock.now = 10.0
    tracker.pop_expired_parents()
    tracker.cleanup_parent("p")
    tracker.defer_parent("p", Payload(), 0)
    assert len(records) > 10
    assert "SECRET" in repr(Payload())
    assert "SECRET" not in seen + caplog.text + repr(records)


# -- the audit -----------------------------------------------------------------------------------------------


def audited(**arguments: Any) -> tuple[CfgCompanionTracker, Clock, list[AuditRecord]]:
    records: list[AuditRecord] = []
    clock = Clock()
    return CfgCompanionTracker(clock=clock, observers=[records.append], **arguments), clock, records


def moves(records: list[AuditRecord], request_id: str) -> list[tuple[str | None, ...]]:
    """``(event, kind or trigger, state after it, reason)`` of a request."""
    return [(r.event, r.trigger or r.kind, r.dest, r.reason) for r in records if r.request_id == request_id]


def test_the_audit_tells_how_a_parent_was_deferred_forwarded_and_finished():
    tracker, clock, records = audited()
    guided(tracker, roles=("neg",))
    clock.now = 1.0
    tracker.defer_parent("p", "P", 0)
    clock.now = 2.0
    complete(tracker, "p-neg")
    tracker.pop_pending_parent("p")
    tracker.cleanup_parent("p")
    assert moves(records, "p") == [
        ("register_companion", "created", "registered", None),
        ("defer_parent", "defer", "deferred", None),
        ("pop_pending_parent", "forward", "forwarded", None),
        ("cleanup_parent", "finish", "done", None),
        ("cleanup_parent", "clean", "cleaned", None),
    ]
    assert moves(records, "p-neg") == [
        ("register_companion", "created", "registered", None),
        ("on_companion_completed", "complete", "done", None),
        ("cleanup_parent", "clean", "cleaned", None),
    ]
    assert {(r.parent_id, r.life) for r in records} == {("p", 1)}
    assert [r.at for r in records if r.request_id == "p"] == [0.0, 1.0, 2.0, 2.0, 2.0]
    assert [r.seq for r in records] == list(range(1, len(records) + 1))


def test_the_audit_tells_who_was_stopped_with_an_aborted_parent():
    tracker, _, records = audited()
    guided(tracker)
    complete(tracker, "p-neg")
    tracker.abort_parents(["p"])
    assert moves(records, "p")[1:] == [
        ("abort_parents", "fail", "failed", "aborted"),
        ("abort_parents", "clean", "cleaned", None),
    ]
    assert moves(records, "p-img")[1:] == [
        ("abort_parents", "fail", "failed", "parent_ended"),
        ("abort_parents", "clean", "cleaned", None),
    ]
    assert moves(records, "p-neg")[2:] == [("abort_parents", "clean", "cleaned", None)]


def test_the_audit_tells_that_an_aborted_parent_was_aborted_even_if_nothing_was_missing():
    tracker, _, records = audited()
    guided(tracker, roles=("neg",)).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    tracker.pop_pending_parent("p")
    tracker.abort_parents(["p"])
    assert moves(records, "p")[-2:] == [
        ("abort_parents", "fail", "failed", "aborted"),
        ("abort_parents", "clean", "cleaned", None),
    ]
    assert (tracker.counters()["finished"], tracker.counters()["failed"]) == (0, {"aborted": 1})


def test_the_audit_tells_that_a_parent_was_handed_back_because_of_an_aborted_companion():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    assert (tracker.get_parent_id("p-img"), tracker.is_companion_done("p-img")) == ("p", False)
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 0}
    assert tracker.cleanup_parent("p-img") == []
    assert tracker.cleanup_parent("p") == ["p-neg", "p-img"]
    assert moves(records, "p")[2:] == [
        ("pop_pending_parent", "forward", "forwarded", "companion_aborted"),
        ("cleanup_parent", "fail", "failed", "aborted"),
        ("cleanup_parent", "clean", "cleaned", None),
    ]
    assert (tracker.counters()["finished"], tracker.counters()["failed"]) == (0, {"aborted": 1})


def test_the_audit_tells_that_a_parent_was_handed_back_for_its_deadline():
    tracker, clock, records = audited(deferred_limit_s=10.0)
    guided(tracker).defer_parent("p", "P", 0)
    clock.now = 10.0
    tracker.pop_expired_parents()
    assert moves(records, "p")[-1] == ("pop_expired_parents", "forward", "forwarded", "deferred_deadline")


def test_the_audit_tells_that_a_companion_was_superseded():
    tracker, _, records = audited()
    guided(tracker, roles=("neg",))
    tracker.register_companion("p", "neg", "new")
    assert moves(records, "p-neg")[1:] == [
        ("register_companion", "fail", "failed", "superseded"),
        ("register_companion", "clean", "cleaned", None),
    ]
    assert moves(records, "new") == [("register_companion", "created", "registered", None)]


def test_the_audit_tells_what_was_refused_and_why():
    tracker, _, records = audited()
    guided(tracker)
    complete(tracker, "p-neg")
    before = len(records)
    refused: list[Call] = [
        ("set_companion_output", ("nobody", "N")),
        ("on_companion_completed", ("nobody",)),
        ("set_companion_output", ("p-neg", "second")),
        ("on_companion_completed", ("p-neg",)),
        ("register_companion", ("q", "neg", "p-neg")),
        ("register_companion", ("p-neg", "neg", "new")),
        ("register_companion", ("p", "neg", "p-neg")),
        ("register_parent", ("p-neg",)),
        ("defer_parent", ("p-neg", "D", 0)),
    ]
    for call in refused:
        make(tracker, Clock(), call)
    told = [(r.event, r.kind, r.request_id, r.reason) for r in records[before:]]
    assert told == [
        ("set_companion_output", "ignored", "nobody", "unknown"),
        ("on_companion_completed", "ignored", "nobody", "unknown"),
        ("set_companion_output", "ignored", "p-neg", "duplicate"),
        ("on_companion_completed", "ignored", "p-neg", "duplicate"),
        ("register_companion", "rejected", "p-neg", "id_in_use"),
        ("register_companion", "rejected", "new", "not_a_parent"),
        ("register_companion", "ignored", "p-neg", "duplicate"),
        ("register_parent", "rejected", "p-neg", "id_in_use"),
        ("defer_parent", "ignored", "p-neg", "not_a_parent"),
    ]
    tracker.cleanup_parent("p")
    tracker.defer_parent("p", "late", 0)
    assert (records[-1].kind, records[-1].request_id, records[-1].reason) == ("ignored", "p", "ended")


def test_the_log_and_the_audit_name_the_parent_whose_registration_was_refused(caplog):
    tracker, _, records = audited()
    guided(tracker)
    guided(tracker, "q", roles=("img",))
    tracker.register_companion("q", "neg", "p-neg")
    (refusal,) = (record for record in records if record.kind == "rejected")
    assert "q" in (refusal.request_id, refusal.parent_id), "else nothing tells why q has one companion only"
    assert "q" in caplog.messages[-1].split()


@settings(max_examples=150)
@given(ANY_CALLS)
def test_the_audit_alone_tells_the_state_of_every_request(calls):
    tracker, clock, records = audited(deferred_limit_s=3.0)
    for call in calls:
        make(tracker, clock, call)
    state: dict[tuple[Any, ...], str | None] = {}
    for record in records:
        key = (record.machine, record.request_id)
        if record.kind == "created":
            assert state.get(key, "cleaned") == "cleaned"
        elif record.kind == "transition":
            assert state[key] == record.source
        else:
            assert record.kind in ("ignored", "rejected")
            assert record.reason
            continue
        state[key] = record.dest
    told = {key: known for key, known in state.items() if known != "cleaned"}
    assert told == {(view.machine, view.request_id): view.state for view in tracker.requests()}


@settings(max_examples=50)
@given(ANY_CALLS)
def test_the_same_calls_give_the_same_audit(calls):
    (first, one_clock, told), (second, other_clock, told_again) = audited(), audited()
    for call in calls:
        make(first, one_clock, call)
        make(second, other_clock, call)
    assert told == told_again


def test_an_observer_that_raises_changes_nothing_but_a_counter(caplog):
    def broken(record: AuditRecord) -> None:
        raise RuntimeError("broken observer")

    records: list[AuditRecord] = []
    tracker = CfgCompanionTracker(clock=Clock(), observers=[broken, records.append])
    guided(tracker).defer_parent("p", "P", 0)
    assert complete(tracker, "p-neg", "p-img") == [None, "p"]
    assert tracker.pop_pending_parent("p") == {"engine_outputs": "P", "stage_id": 0}
    assert tracker.abort_parents(["p"]) == ["p", "p-neg", "p-img"]
    assert live(tracker) == []
    assert tracker.counters()["observer_errors"] == len(records) > 0
    assert "broken observer" in caplog.text


def test_an_observer_that_calls_the_tracker_is_refused_and_changes_nothing():
    tracker: CfgCompanionTracker
    tracker = CfgCompanionTracker(clock=Clock(), observers=[lambda record: tracker.register_parent("from within")])
    guided(tracker)
    assert live(tracker) == ["p", "p-neg", "p-img"]
    assert tracker.counters()["observer_errors"] == 3


def story(records: list[AuditRecord], request_id: str) -> str:
    return "\n".join(explain(records, request_id))


def result(told: str) -> str:
    """The result at the end of a story, on one line."""
    return " ".join(told.rpartition("\nResult: ")[2].split())


def test_explain_tells_the_story_of_a_parent_that_finished():
    tracker, clock, records = audited()
    guided(tracker)
    clock.now = 1.0
    tracker.defer_parent("p", "P", 0)
    clock.now = 2.0
    complete(tracker, "p-neg", "p-img")
    tracker.pop_pending_parent("p")
    clock.now = 5.0
    tracker.cleanup_parent("p")
    told = story(records, "p")
    assert told.splitlines()[0].startswith("parent p, life 1")
    assert "neg = p-neg" in told
    assert "img = p-img" in told
    assert "deferred, waiting for neg (p-neg), img (p-img)" in told
    assert result(told) == (
        "ended at +5.000 s: finished; its bundle was forwarded at +2.000 s; waited 1.000 s for neg, img."
    )
    assert story(records, "p-img") == told.replace("img = p-img", "img = p-img (the one asked for)")
    assert "not in this log" not in told, "its registration is the first record"


def test_explain_tells_what_a_parent_waits_for():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    last = result(story(records, "p"))
    assert last.startswith("open when the log ends")
    assert "no output yet of img (p-img" in last
    assert "p-neg" not in last


def test_explain_does_not_call_a_bundle_complete_that_was_not():
    tracker, clock, records = audited(deferred_limit_s=10.0)
    guided(tracker).defer_parent("p", "P", 0)
    clock.now = 10.0
    tracker.pop_expired_parents()
    tracker.cleanup_parent("p")
    told = story(records, "p")
    assert (
        "+10.000 s  parent  pop expired parents; handed back (deferred_deadline) without neg (p-neg), img (p-img)"
    ) in told.splitlines()
    assert result(told) == (
        "ended at +10.000 s: failed, deferred_deadline; it was handed back at +10.000 s without neg (p-neg), "
        "img (p-img); waited 10.000 s for neg, img."
    )


def test_explain_tells_of_a_deadline_even_if_no_companion_was_missing():
    tracker, clock, records = audited(deferred_limit_s=10.0)
    tracker.register_parent("p")
    tracker.defer_parent("p", "P", 0)
    clock.now = 10.0
    tracker.pop_expired_parents()
    told = story(records, "p").splitlines()
    assert told[-2].endswith("pop expired parents; handed back (deferred_deadline)")
    assert told[-1] == (
        "Result: open when the log ends (+10.000 s): handed back (deferred_deadline) since +10.000 s, "
        "waiting for its cleanup."
    )


def test_explain_does_not_blame_the_client_for_a_cleanup_that_follows_an_aborted_companion():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg")
    tracker.pop_pending_parent("p")
    tracker.cleanup_parent("p")
    told = story(records, "p")
    assert "pop pending parent; handed back (companion_aborted) without img (p-img)\n" in told
    assert result(told) == (
        "ended at +0.000 s: cleaned up unfinished; it was handed back at +0.000 s without img (p-img); "
        "waited 0.000 s for neg, img."
    )
    guided(tracker, "q")
    tracker.abort_parents(["q"])
    assert result(story(records, "q")) == "ended at +0.000 s: aborted by the client."


def test_explain_tells_that_a_complete_bundle_was_not_taken():
    tracker, _, records = audited()
    guided(tracker).defer_parent("p", "P", 0)
    complete(tracker, "p-neg", "p-img")
    assert result(story(records, "p")) == (
        "open when the log ends (+0.000 s): the parent is deferred since +0.000 s; "
        "the bundle is complete, waiting for the host to take it."
    )


def test_explain_tells_of_a_companion_that_took_the_role_of_another():
    tracker, _, records = audited()
    guided(tracker, roles=("neg",)).defer_parent("p", "P", 0)
    tracker.register_companion("p", "neg", "new")
    tracker.on_companion_completed("p-neg")
    told = story(records, "p")
    assert told.splitlines()[1] == "  companion neg = new, before it p-neg"
    assert told.splitlines()[-4:-2] == [
        "+0.000 s  neg     register companion; p-neg is superseded",
        "+0.000 s  p-neg   on companion completed; ignored (unknown)",
    ]
    assert result(told) == (
        "open when the log ends (+0.000 s): the parent is deferred since +0.000 s; "
        "no output yet of neg (new: registered since +0.000 s)."
    )
    assert story(records, "p-neg") == told.replace("before it p-neg", "before it p-neg (the one asked for)")


def test_explain_tells_of_every_parent_of_any_calls():
    for seed in range(50):
        tracker, clock, records = audited(deferred_limit_s=3.0)
        for call in calls_number(seed):
            make(tracker, clock, call)
        parents = {view.request_id for view in tracker.requests() if view.role is None}
        for parent in {record.parent_id for record in records if record.parent_id is not None}:
            lives = story(records, parent).split("\n\n")
            own = [result(life) for life in lives if life.startswith(f"parent {parent}, life ")]
            assert len(own) == sum(r.kind == "created" and r.request_id == r.parent_id == parent for r in records)
            if own:
                assert all(last.startswith("ended") for last in own[:-1]), own
                assert own[-1].startswith("open" if parent in parents else "ended"), own
            elif not any(r.kind == "created" and r.request_id == parent for r in records):
                # A companion was refused under it: that is all that is known of it.
                (alone,) = (life for life in lives if life.startswith(f"request {parent}: "))
                assert result(alone) == "it was not registered."


# -- what it leaves: nothing ---------------------------------------------------------------------------------

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
        and not all(callable(value) for value in container)
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
    assert held(tracker) == []
    assert [payload for payload in made if payload() is not None] == []
    assert tracker.requests() == []
    assert {tracker.counters()[name] for name in ("live", "deferred", "deadlines", "tombstones")} == {0}
    assert tracker.next_deadline() is None


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
    assert [where for where in held(tracker) if "tombstone" not in where] == []
    assert any("tombstone" in where for where in held(tracker))


@settings(max_examples=150)
@given(ANY_CALLS)
def test_nothing_is_left_of_any_calls_that_end_every_parent(calls):
    for by_abort in (True, False):
        assert_nothing_is_left(calls, by_abort, observed=by_abort)


@pytest.mark.usefixtures("no_collector")
def test_nothing_is_left_of_many_long_lists_of_calls_and_no_collector_is_needed_for_that():
    for seed in range(200):
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
