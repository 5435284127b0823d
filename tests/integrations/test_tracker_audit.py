"""The audit of the drop-in tracker."""

from __future__ import annotations

from typing import Any

from budget import part_of
from hypothesis import given, settings
from real_tracker import ANY_CALLS, Call, Clock, make
from tracker_helpers import audited, complete, guided, live, moves

from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker


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


@settings(max_examples=part_of(150))
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


@settings(max_examples=part_of(50))
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
