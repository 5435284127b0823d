"""Observers: every step is recorded, whatever they do, and they change nothing."""

import json
import logging

import pytest
from helpers import (
    TWO,
    Payload,
    abort,
    done,
    error,
    finish,
    output,
    register,
    start,
    tick,
    told,
)

from cfg_fsm import Limits, Registry
from cfg_fsm.errors import CfgFsmError, ReentrantDispatch


def test_the_fields_of_an_audit_record_stand_in_the_agreed_order(host):
    host.send(register("p", {}))
    assert host.records[0]._fields == (
        "seq", "at", "kind", "machine", "request_id", "parent_id", "role", "life", "trigger", "source", "dest",
        "reason", "event", "event_seq",
    )  # fmt: skip


def test_every_step_is_recorded_event_first_then_machines_then_actions(host):
    host.send(
        register("p", {"neg": "a"}, at=1.0), done("a", Payload("A"), at=2.0), output("p", Payload("P"), at=3.0)
    )
    host.send(error("p", at=4.0))
    lines = [
        (r.seq, r.at, r.kind, r.machine, r.request_id, r.role, r.trigger, r.dest, r.reason, r.event_seq)
        for r in host.records
    ]
    assert lines == [
        (1, 1.0, "event", None, "p", None, None, None, None, 1),
        (2, 1.0, "created", "parent", "p", None, None, "registered", None, 1),
        (3, 1.0, "created", "companion", "a", "neg", None, "registered", None, 1),
        (4, 2.0, "event", None, "a", None, None, None, None, 2),
        (5, 2.0, "transition", "companion", "a", "neg", "complete", "done", None, 2),
        (6, 3.0, "event", None, "p", None, None, None, None, 3),
        (7, 3.0, "transition", "parent", "p", None, "defer", "deferred", None, 3),
        (8, 3.0, "transition", "parent", "p", None, "forward", "forwarded", None, 3),
        (9, 3.0, "action", None, "p", None, "forward_parent", None, None, 3),
        (10, 4.0, "event", None, "p", None, None, None, None, 4),
        (11, 4.0, "transition", "parent", "p", None, "fail", "failed", "error", 4),
        (12, 4.0, "transition", "parent", "p", None, "clean", "cleaned", None, 4),
        (13, 4.0, "transition", "companion", "a", "neg", "clean", "cleaned", None, 4),
        (14, 4.0, "action", None, "p", None, "fail_parent", None, "error", 4),
        (15, 4.0, "action", None, "p", None, "release_requests", None, None, 4),
    ]
    assert {record.parent_id for record in host.records if record.kind != "event"} == {"p"}
    assert {record.life for record in host.records if record.kind != "event"} == {1}
    assert [record.event for record in host.records[1:3]] == ["parent_registered", "parent_registered"]
    assert host.records[8].event == {
        "type": "forward_parent",
        "parent_id": "p",
        "life": 1,
        "stage_id": 0,
        "engine_outputs": {"type": "Payload"},
        "companion_request_ids": {"neg": "a"},
        "companion_outputs": [{"type": "Payload"}],
        "context": {"type": "NoneType"},
    }
    assert "SECRET" not in repr(host.records)


def test_refusals_are_recorded_with_their_code_and_the_state_that_they_met(host):
    host.send(register("p", {"neg": "a"}), done("a"))
    host.records.clear()
    host.send(done("a"), register("q", {"neg": "a"}), start("x"), abort("x"))
    refusals = [(r.kind, r.request_id, r.source, r.dest, r.reason) for r in host.records if r.kind != "event"]
    assert refusals == [
        ("ignored", "a", "done", "done", "already_done"),
        ("rejected", "q", None, None, "id_in_use"),
        ("ignored", "x", None, None, "unknown"),
        ("ignored", None, None, None, "nothing_ended"),
        ("action", None, None, None, None),
    ]


def test_what_a_refusal_answers_is_recorded_with_the_group_that_it_is_about(host):
    host.send(register("p", {"neg": "a"}, life=3), abort("p"))
    host.records.clear()
    host.send(start("a"))
    refusal, action = host.records[1:]
    assert (refusal.kind, refusal.request_id, refusal.parent_id, refusal.life) == ("ignored", "a", "p", 3)
    assert (action.kind, action.trigger, action.parent_id, action.life) == ("action", "abort_requests", "p", 3)


def test_an_acknowledgement_is_recorded_once_and_before_the_groups(host):
    host.send(register("p", {}), register("q", {}))
    host.records.clear()
    host.send(abort("p", "q"))
    actions = [(r.trigger, r.parent_id) for r in host.records if r.kind == "action"]
    assert actions == [
        ("acknowledge_abort", None),
        ("abort_requests", "p"),
        ("release_requests", "p"),
        ("abort_requests", "q"),
        ("release_requests", "q"),
    ]


def test_what_a_host_does_to_the_lists_that_it_was_handed_does_not_reach_the_audit(host):
    host.send(register("p", {"neg": "a"}), output("p"))
    (forward,) = host.send(done("a")).actions
    acknowledged, aborted, released = host.send(abort("p")).actions
    audited = json.dumps(host.records)
    forward.companion_request_ids.clear()
    forward.companion_outputs.clear()
    acknowledged.outcomes.clear()
    aborted.request_ids.clear()
    released.request_ids.clear()
    assert json.dumps(host.records) == audited


def test_what_a_host_does_to_an_event_that_it_has_dispatched_does_not_reach_the_audit(host):
    registration, end = register("p", {"neg": "a"}, limits=Limits(total_s=5)), abort("p")
    host.send(registration, end)
    audited = json.dumps(host.records)
    registration.companions.clear()
    end.request_ids.clear()
    assert json.dumps(host.records) == audited


def test_an_observer_that_raises_stops_neither_the_step_nor_the_others(caplog):
    seen = []

    def first(record):
        raise RuntimeError(f"no disk for {record.seq}")

    registry = Registry(observers=[first, seen.append])
    with caplog.at_level(logging.ERROR, logger="cfg_fsm"):
        registry.dispatch(register("p", {"neg": "a"}))
        registry.dispatch(done("a"))
        answer = registry.dispatch(output("p"))
    assert told(answer) == ["forward p"]
    assert [view.state for view in registry.requests()] == ["forwarded", "done"]
    assert [record.seq for record in seen] == list(range(1, 10))
    assert registry.counters()["observer_errors"] == 9
    assert len(caplog.records) == 9
    assert "no disk for 1" in caplog.text


def test_an_observer_sees_a_step_that_is_complete():
    states = []

    def observer(record):
        states.append((record.kind, len(registry.requests()), registry.next_deadline()))

    registry = Registry(Limits(total_s=5), observers=[observer])
    registry.dispatch(register("p", {"neg": "a"}))
    assert set(states) == {("event", 2, 5.0), ("created", 2, 5.0)}
    states.clear()
    registry.dispatch(finish("p"))
    assert {(live, deadline) for _, live, deadline in states} == {(0, None)}


def test_an_observer_must_not_dispatch_and_the_attempt_changes_nothing(caplog):
    refused = []

    def observer(record):
        try:
            registry.dispatch(error("p"))
        except ReentrantDispatch as refusal:
            refused.append(refusal)
            raise

    registry = Registry(observers=[observer])
    with caplog.at_level(logging.ERROR, logger="cfg_fsm"):
        assert registry.dispatch(register("p", {})).disposition == "accepted"
    assert len(refused) == 2
    assert isinstance(refused[0], CfgFsmError)
    assert isinstance(refused[0], RuntimeError)
    assert registry.counters()["observer_errors"] == 2
    assert registry.counters()["events"] == 1
    assert [view.state for view in registry.requests()] == ["registered"]


def test_after_a_refused_attempt_to_dispatch_from_within_dispatch_works_as_before():
    def observer(record):
        registry.dispatch(tick(1))

    registry = Registry(observers=[observer])
    logging.getLogger("cfg_fsm").disabled = True
    try:
        registry.dispatch(register("p", {}))
        assert told(registry.dispatch(output("p"))) == ["forward p"]
    finally:
        logging.getLogger("cfg_fsm").disabled = False


def test_an_interrupt_in_an_observer_comes_through_and_the_registry_goes_on():
    def observer(record):
        if record.kind == "event" and record.event_seq == 1:
            raise KeyboardInterrupt

    registry = Registry(observers=[observer])
    with pytest.raises(KeyboardInterrupt):
        registry.dispatch(register("p", {}))
    assert [view.state for view in registry.requests()] == ["registered"]
    assert told(registry.dispatch(output("p"))) == ["forward p"]


def test_observers_make_no_difference_to_the_answers():
    events = [register("p", TWO), start("a"), done("b"), output("p"), error("a"), start("a"), abort("p", "x")]
    silent, watched = Registry(), Registry(observers=[lambda record: None])
    assert [a.to_dict() for a in silent.dispatch_many(events)] == [
        a.to_dict() for a in watched.dispatch_many(events)
    ]


def test_observers_may_be_any_iterable():
    seen = []
    registry = Registry(observers=(observe for observe in (seen.append, lambda record: None)))
    registry.dispatch(tick(0))
    registry.dispatch(tick(1))
    assert [record.event_seq for record in seen] == [1, 2]


def test_what_cannot_be_called_is_no_observer():
    with pytest.raises(TypeError, match="called with each record"):
        Registry(observers=["audit.jsonl"])
