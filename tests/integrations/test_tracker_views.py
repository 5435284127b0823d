"""What the drop-in tracker shows an operator: views and counters, and no payload."""

from __future__ import annotations

import logging

import pytest
from helpers import Payload
from tracker_helpers import complete, guided, live, shown, with_limit

from cfg_fsm.engine.journal import AuditRecord


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


@pytest.mark.parametrize(
    ("end", "argument", "finished", "failed"),
    [
        ("pop_pending_parent", "p", 1, {}),
        ("cleanup_parent", "p", 0, {"aborted": 1}),
        ("abort_parents", ["p"], 0, {"aborted": 1}),
        ("pop_expired_parents", None, 0, {"deferred_deadline": 1}),
    ],
)
def test_a_parent_that_is_only_ever_deferred_finishes_by_being_taken_back_alone(end, argument, finished, failed):
    tracker, clock = with_limit(10.0)
    tracker.defer_parent("p", "P", 0)
    clock.now = 10.0
    getattr(tracker, end)(argument)
    assert (tracker.counters()["finished"], tracker.counters()["failed"]) == (finished, failed)
    assert tracker.requests() == []


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
