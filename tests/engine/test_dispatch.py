"""What dispatch takes, and what it is not disturbed by."""

import pytest
from helpers import (
    Host,
    Restless,
    abort,
    done,
    error,
    kv,
    output,
    register,
    start,
    tick,
    told,
)

from cfg_fsm import Limits, Registry, parse_event
from cfg_fsm.errors import CfgFsmError, NotAnEvent

# ---------------------------------------------------------------------------
# What is an event
# ---------------------------------------------------------------------------


def test_events_may_come_as_mappings_through_parse_event():
    registry = Registry()
    answers = registry.dispatch_many(
        [
            parse_event({"type": "parent_registered", "parent_id": "p", "companions": {}}),
            parse_event('{"type": "parent_output_ready", "parent_id": "p", "engine_outputs": [1]}'),
        ]
    )
    assert [told(answer) for answer in answers] == [[], ["forward p"]]


def test_events_may_be_any_iterable_and_each_has_its_answer():
    answers = Registry().dispatch_many(event for event in (register("p", {}), kv("x"), output("p")))
    assert [answer.disposition for answer in answers] == ["accepted", "ignored", "accepted"]


def test_what_a_class_says_of_its_own_name_stops_nothing():
    class Meta(type):
        @property
        def __name__(cls):
            raise RuntimeError("no name")

    class Nameless(metaclass=Meta):
        pass

    host = Host()
    assert host.verdict(register("p", {}), output("p", Nameless())) == ("accepted", None)


# ---------------------------------------------------------------------------
# What is no event
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "thing", [None, 5, "tick", {"type": "clock_ticked", "at": 1.0}, [], Limits(), type(tick(0))], ids=repr
)
def test_what_is_no_event_is_refused_and_changes_nothing(host, thing):
    host.send(register("p", {}))
    before = host.registry.counters()
    with pytest.raises(NotAnEvent) as caught:
        host.registry.dispatch(thing)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, CfgFsmError)
    assert type(thing).__name__ in str(caught.value)
    assert host.registry.counters() == before
    assert len(host.records) == 2


def test_what_is_no_event_stops_a_batch_before_it_begins():
    registry = Registry()
    with pytest.raises(NotAnEvent):
        registry.dispatch_many([register("p", {}), "parent_finished"])
    assert registry.counters()["events"] == 0


# ---------------------------------------------------------------------------
# Finalizers of payloads
# ---------------------------------------------------------------------------


def test_a_finalizer_that_dispatches_finds_the_whole_tick_done():
    registry, within = Registry(Limits(deferred_s=5)), []
    registry.dispatch_many([register(f"g{n}", {"neg": f"g{n}-a"}, at=0.0) for n in (1, 2, 3)])
    registry.dispatch(output("g1", Restless(lambda: within.append(registry.dispatch(abort("g2")).to_dict()))))
    registry.dispatch_many([output("g2"), output("g3")])
    answer = registry.dispatch(tick(50.0))
    assert [a.parent_id for a in answer.actions if a.type == "fail_parent"] == ["g1", "g2", "g3"]
    assert [outcome["actions"][0]["outcomes"] for outcome in within] == [{"g2": "already_ended"}]


def test_what_a_finalizer_dispatches_is_audited_as_an_event_of_its_own():
    records = []
    registry = Registry(observers=[records.append])
    registry.dispatch(register("p", {"neg": "a", "img": "b"}))
    registry.dispatch(done("a", Restless(lambda: registry.dispatch(start("nested")))))
    registry.dispatch(error("p"))
    assert [r.event_seq for r in records] == sorted(r.event_seq for r in records)
    assert {r.event_seq for r in records if r.kind == "action"} == {3}
    assert [r.event for r in records if r.request_id == "nested" and r.kind == "ignored"] == ["request_started"]
