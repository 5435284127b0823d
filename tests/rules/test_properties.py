"""Whatever comes, in whatever order, the rules hold after every step."""

import dataclasses
import json
import random
import weakref
from unittest import mock

import pytest
from budget import part_of
from helpers import (
    Host,
    Payload,
    Restless,
    abort,
    beat,
    done,
    error,
    finish,
    kv,
    lose,
    output,
    register,
    reject,
    start,
    tick,
    told,
)
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from model import Checker, watched
from strategies import BOUNDED, LIMITS, SEEDS, mishaps, wander

from cfg_fsm import FailureReason, Limits, Registry, ReleaseRequests, parse_event
from cfg_fsm.engine import group
from cfg_fsm.rules.checker import broken_by


def walk(limits, events):
    registry, checker = watched(limits)
    for event in events:
        answer = checker.dispatch(event)
        note(f"{event.type} {answer.disposition} {answer.reason or ''}")
    return registry


@settings(max_examples=part_of(60))
@given(st.data(), LIMITS, st.integers(1, 40))
def test_the_rules_hold_after_every_step_whatever_comes(data, limits, steps):
    registry, checker = watched(limits)
    wander(lambda values: data.draw(st.sampled_from(values)), steps, registry, checker.dispatch)


@settings(max_examples=part_of(300))
@given(SEEDS, LIMITS)
def test_the_rules_hold_after_every_step_of_a_long_way(seed, limits):
    registry, checker = watched(limits)

    def dispatch(event):
        answer = checker.dispatch(event)
        note(f"{event.type} {answer.disposition} {answer.reason or ''}")

    wander(random.Random(seed).choice, 80, registry, dispatch)


@settings(max_examples=part_of(150))
@given(LIMITS, mishaps())
def test_the_rules_hold_after_every_step_when_good_plans_go_wrong(limits, events):
    walk(limits, events)


@settings(max_examples=part_of(100))
@given(SEEDS, LIMITS)
def test_the_rules_hold_for_groups_that_count_as_large(seed, limits):
    registry, checker = watched(limits)
    with mock.patch.object(group, "MANY", 1):
        wander(random.Random(seed).choice, 80, registry, checker.dispatch)


@settings(max_examples=part_of(100))
@given(SEEDS, mishaps())
def test_a_group_that_counts_as_large_answers_as_any_other(seed, events):
    few, many, sketch = Registry(), Registry(), Registry()
    for event in [*events, *wander(random.Random(seed).choice, 60, sketch, sketch.dispatch)]:
        expected = few.dispatch(event)
        with mock.patch.object(group, "MANY", 1):
            assert many.dispatch(event) == expected
        assert many.snapshot() == few.snapshot()


@settings(max_examples=part_of(60))
@given(SEEDS, BOUNDED)
def test_with_limits_set_nothing_is_live_after_a_tick_far_in_the_future(seed, limits):
    registry, checker = watched(limits)
    wander(random.Random(seed).choice, 80, registry, checker.dispatch)
    checker.dispatch(tick(1e6))
    assert registry.requests() == []
    assert registry.counters()["live"] == registry.counters()["deadlines"] == 0
    checker.dispatch(tick(1e6 + 600))
    assert registry.next_deadline() is None
    assert {registry.counters()[name] for name in ("tombstones", "waiting", "unconfirmed")} == {0}


@settings(max_examples=part_of(60))
@given(BOUNDED, mishaps())
def test_a_host_that_ticks_at_each_next_deadline_ends_a_parent_or_a_wait_with_every_tick(limits, events):
    registry, checker = watched(limits)
    for event in [*events, beat("nobody", at=1e6)]:
        due = registry.next_deadline()
        while due is not None and event.at is not None and due <= event.at:
            assert checker.dispatch(tick(due)).actions != ()
            later = registry.next_deadline()
            assert later is None or later > due
            due = later
        checker.dispatch(event)
    assert registry.requests() == []
    assert registry.counters()["waiting"] == 0


@settings(max_examples=part_of(60))
@given(SEEDS, LIMITS)
def test_every_audit_record_is_plain_data_without_a_payload(seed, limits):
    records = []
    registry = Registry(limits=limits, observers=[records.append])
    events = wander(random.Random(seed).choice, 80, registry, registry.dispatch)
    assert "SECRET" not in json.dumps(records)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert sum(record.kind == "event" for record in records) == len(events)


@settings(max_examples=part_of(60))
@given(SEEDS, LIMITS)
def test_the_events_in_the_audit_are_enough_to_live_it_all_again(seed, limits):
    records, again = [], []
    registry = Registry(limits=limits, observers=[records.append])
    wander(random.Random(seed).choice, 80, registry, registry.dispatch)
    replay = Registry(limits=limits, observers=[again.append])
    for record in records:
        if record.kind == "event":
            replay.dispatch(parse_event({**json.loads(json.dumps(record.event)), "at": record.at}))
    plain = [record for record in records if record.kind in ("created", "transition", "ignored", "rejected")]
    assert plain == [record for record in again if record.kind in ("created", "transition", "ignored", "rejected")]
    # Times that are behind the clock are not in the audit.
    assert {**replay.counters(), "clock": None} == {**registry.counters(), "clock": None}


@settings(max_examples=part_of(60))
@given(SEEDS, LIMITS)
def test_a_copy_lives_as_the_original_would_and_leaves_it_alone(seed, limits):
    registry, choose = Registry(limits=limits), random.Random(seed).choice
    wander(choose, 40, registry, registry.dispatch)
    before = registry.snapshot()
    other, answers = registry.copy(), []
    assert other.snapshot() == before
    assert other.requests() == registry.requests()
    events = wander(choose, 40, other, lambda event: answers.append(other.dispatch(event).to_dict()))
    assert registry.snapshot() == before
    assert [answer.to_dict() for answer in registry.dispatch_many(events)] == answers
    assert registry.counters() == other.counters()


@settings(max_examples=part_of(60))
@given(SEEDS, LIMITS)
def test_a_machine_moves_along_its_rows_from_its_creation_to_its_cleaning(seed, limits):
    records, states = [], {}
    registry = Registry(limits=limits, observers=[records.append])
    wander(random.Random(seed).choice, 80, registry, registry.dispatch)
    for record in records:
        if record.kind == "created":
            assert record.request_id not in states
            states[record.request_id] = record.dest
        elif record.kind == "transition":
            assert states[record.request_id] == record.source
            states[record.request_id] = record.dest
            if record.dest == "cleaned":
                del states[record.request_id]
    assert states == {view.request_id: view.state for view in registry.requests()}


# ---------------------------------------------------------------------------
# The checker itself: a wrong answer does not get past it
# ---------------------------------------------------------------------------

GOOD_RUN = [register("p", {"neg": "a", "img": "b"}), start("a"), done("b", "B"), output("p", "P")]


def change(action, **fields):
    return dataclasses.replace(action, **fields)


TAMPERED = {
    "R2: the outputs": ([*GOOD_RUN, done("a", "A")], lambda a: (change(a[0], companion_outputs=["B", "A"]),)),
    "R2: every role": (
        [*GOOD_RUN, done("a", "A")],
        lambda a: (change(a[0], companion_request_ids={"img": "b", "neg": "a"}),),
    ),
    "R2: engine_outputs": ([*GOOD_RUN, done("a", "A")], lambda a: (change(a[0], engine_outputs="old"),)),
    "R2: a bundle is sent when": ([*GOOD_RUN, done("a", "A")], lambda a: ()),
    "R1: a parent is told of once": ([*GOOD_RUN, done("a", "A")], lambda a: (*a, *a)),
    "R1: the failures that are told": (
        [*GOOD_RUN, error("a")],
        lambda a: (change(a[0], reason=FailureReason.ERROR), *a[1:]),
    ),
    "R1: nothing is said about a life": (
        [*GOOD_RUN, error("a")],
        lambda a: (change(a[0], life=2), *a[1:]),
    ),
    "R3: aborted are": ([*GOOD_RUN, error("a")], lambda a: (a[0], change(a[1], request_ids=["p", "a"]), a[2])),
    "R3: released is": ([*GOOD_RUN, error("a")], lambda a: (*a, ReleaseRequests(["p"]))),
    "order: the actions stand in order": ([*GOOD_RUN, error("a")], lambda a: (a[0], a[2], a[1])),
    "aborts: every abort is answered": (
        [*GOOD_RUN, abort("p", "x")],
        lambda a: (change(a[0], outcomes={"p": "ended"}), *a[1:]),
    ),
    "R3: what runs without an owner": (
        [*GOOD_RUN, finish("p"), error("p"), start("a")],
        lambda a: (change(a[0], request_ids=["a", "b"]),),
    ),
}


@pytest.mark.parametrize("rule", TAMPERED)
def test_the_checker_notices_a_wrong_answer(rule):
    events, tamper = TAMPERED[rule]
    registry, checker = watched(Limits())
    for event in events[:-1]:
        checker.dispatch(event)
    answer = registry.dispatch(events[-1])
    checker.twin = None
    with pytest.raises(AssertionError, match=rule):
        checker.step(events[-1], answer._replace(actions=tuple(tamper(answer.actions))))


class Altered(Registry):
    """A registry that shows of itself what a test makes of it."""

    change = staticmethod(lambda held: held)

    def snapshot(self):
        return self.change(super().snapshot())


def with_request(held, request_id, **fields):
    """The same with other values in a record."""
    return dataclasses.replace(
        held, requests={**held.requests, request_id: held.requests[request_id]._replace(**fields)}
    )


def with_tombstone(held, request_id, **fields):
    stone = held.tombstones[request_id]._replace(**fields)
    return dataclasses.replace(held, tombstones={**held.tombstones, request_id: stone})


def without_tombstone(held, request_id):
    left = {other: stone for other, stone in held.tombstones.items() if other != request_id}
    return dataclasses.replace(held, tombstones=left)


def with_told(held, request_id, **fields):
    return dataclasses.replace(held, told={**held.told, request_id: held.told[request_id]._replace(**fields)})


class Name(str):
    """A name that is like any other, and holds a payload."""

    payload = Payload()


#: Somebody waits to be released, and a client's abort of somebody else.
WAITS = [register("p", {"neg": "a"}, limits=Limits(confirm_s=4)), start("a", 2), abort("p"), abort("x")]

#: What is wrong: the events, and what is seen after the last of them in the place of what is there, given this and
#: what was there before.
LEFT_BEHIND = {
    "refusals: a refused event has changed nothing": (
        [*GOOD_RUN, kv("b")],
        lambda before, after: with_request(after, "b", since=-1.0),
    ),
    "refusals: a refused event has changed no order": (
        [*GOOD_RUN, kv("b")],
        lambda before, after: dataclasses.replace(after, requests=dict(reversed(after.requests.items()))),
    ),
    "refusals: a refused event makes no tombstone": (
        [*GOOD_RUN, error("p"), start("a")],
        lambda before, after: with_tombstone(after, "a", ended_at=5.0),
    ),
    "R5: q is not touched": (
        [register("q", {}), *GOOD_RUN],
        lambda before, after: with_request(after, "q", sealed=False),
    ),
    "R6: the first output wins": (
        [*GOOD_RUN, beat("a")],
        lambda before, after: with_request(after, "b", output=7),
    ),
    "R6: nothing but its output completes a companion": (
        [*GOOD_RUN, beat("a")],
        lambda before, after: with_request(after, "a", state="done"),
    ),
    "R6: done comes with its output": (
        GOOD_RUN[:3],
        lambda before, after: with_request(after, "b", output=None),
    ),
    "R7: the registry holds the live requests and no others": (
        [*GOOD_RUN, error("p")],
        lambda before, after: dataclasses.replace(after, requests={"a": before.requests["a"]}),
    ),
    "R7: a group holds its own companions and no others": (
        GOOD_RUN,
        lambda before, after: with_request(after, "p", companions=(("neg", "a"),)),
    ),
    "R7: every record belongs to a live group": (
        GOOD_RUN,
        lambda before, after: with_request(after, "b", seq=9),
    ),
    "R7: no timer of a group that ended": (
        [*GOOD_RUN, error("p")],
        lambda before, after: dataclasses.replace(after, deadlines=before.deadlines),
    ),
    "R7: the counters agree": (
        GOOD_RUN,
        lambda before, after: dataclasses.replace(after, counters={**after.counters, "live": 4}),
    ),
    "R7: a live id has no tombstone": (
        [*GOOD_RUN, error("p"), register("q", {})],
        lambda before, after: dataclasses.replace(after, tombstones={"q": after.tombstones["p"]}),
    ),
    "R7: a tombstone says how its id ended": (
        [*GOOD_RUN, error("p")],
        lambda before, after: with_tombstone(after, "p", may_report=True),
    ),
    "R7: a tombstone holds no payload": (
        [*GOOD_RUN, error("p")],
        lambda before, after: with_tombstone(after, "p", parent_id=Name("p")),
    ),
    "R7: an ended id is remembered for its time": (
        [*GOOD_RUN, error("p")],
        lambda before, after: without_tombstone(after, "p"),
    ),
    "R7: what waits to be released is": (
        WAITS,
        lambda before, after: with_told(after, "p", waits_until=3.0),
    ),
    "R7: what waits": (
        WAITS,
        lambda before, after: with_told(after, "a", replica=(0, 1)),
    ),
    "R7: who was told to abort is": (
        WAITS,
        lambda before, after: dataclasses.replace(
            after, told={**after.told, "x": after.told["p"]._replace(waits_until=None)}
        ),
    ),
    "R7: who was told to abort": (
        [*GOOD_RUN, error("p")],
        lambda before, after: dataclasses.replace(after, told={}),
    ),
    "R7: who was told to abort holds no payload": (
        WAITS,
        lambda before, after: with_told(after, "p", parent_id=Name("p")),
    ),
    "R7: lives are counted": (
        GOOD_RUN,
        lambda before, after: dataclasses.replace(after, parent_lives={"x": 3}),
    ),
    "R8: nothing comes back": (
        [*GOOD_RUN, error("p"), tick(1.0)],
        lambda before, after: dataclasses.replace(after, requests={"x": 1}, tombstones={}),
    ),
    "R9: a registration is taken in whole": (
        GOOD_RUN[:1],
        lambda before, after: dataclasses.replace(after, requests={"p": after.requests["p"]}),
    ),
    "R11: the next deadline is exact": (
        GOOD_RUN,
        lambda before, after: dataclasses.replace(after, next_deadline=6.0),
    ),
    "R11: the deadlines that are set": (
        [*GOOD_RUN, register("q", at=1.0), output("q", at=2.0)],
        lambda before, after: dataclasses.replace(after, deadlines=before.deadlines),
    ),
    "views: the registry's time": (
        GOOD_RUN,
        lambda before, after: dataclasses.replace(after, now=8.0),
    ),
}


@pytest.mark.parametrize("rule", LEFT_BEHIND)
def test_the_checks_notice_what_is_left_behind(rule):
    events, alter = LEFT_BEHIND[rule]
    registry = Altered(Limits(deferred_s=5.0))
    checker = Checker(registry)
    for event in events[:-1]:
        checker.dispatch(event)
    before = registry.snapshot()
    registry.change = lambda after: alter(before, after)
    with pytest.raises(AssertionError) as raised:
        checker.dispatch(events[-1])
    found = [broken.headline for broken in broken_by(raised.value.context)]
    assert any(headline.startswith(rule) for headline in found), found


def test_the_checker_notices_two_registries_that_differ():
    registry, checker = watched(Limits())
    checker.twin.dispatch(register("p", {}))
    with pytest.raises(AssertionError, match="R12"):
        checker.step(register("p", {}), registry.dispatch(register("p", {})))


# ---------------------------------------------------------------------------
# R7: payloads are let go of, at once and without the garbage collector
# ---------------------------------------------------------------------------

LAST = {
    "finish": lambda: finish("p"),
    "failure of the parent": lambda: error("p"),
    "failure of a companion": lambda: error("b"),
    "error finish": lambda: done("b", finish="error"),
    "abort by the client": lambda: abort("p"),
    "abort of a companion": lambda: abort("b"),
    "lost replica": lambda: lose(0),
    "deadline": lambda: tick(10.0),
}


def watch(payload):
    return weakref.ref(payload)


def handed(host, make, name):
    """Dispatch ``make(payload)`` and keep nothing of it but a weak reference."""
    payload = Payload(name)
    host.send(make(payload))
    return watch(payload)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("observed", [True, False], ids=["observed", "unobserved"])
@pytest.mark.parametrize("how", [how for how in LAST if how != "finish"])
def test_no_payload_outlives_a_group_that_ended_before_its_forward(how, observed):
    host = Host(total_s=10)
    if not observed:
        host.registry = Registry(Limits(total_s=10))
    host.send(register("p", {"neg": "a", "img": "b"}), start("b", 0))
    held = [
        handed(host, lambda payload: output("p", payload), "P"),
        handed(host, lambda payload: output("p", payload, context=payload), "P again"),
        handed(host, lambda payload: done("a", payload), "A"),
    ]
    assert [reference() is not None for reference in held] == [False, True, True]
    host.send(LAST[how]())
    assert [reference() for reference in held] == [None, None, None]
    assert host.live() == []


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("how", [how for how in LAST if how not in ("failure of a companion", "error finish")])
def test_no_payload_outlives_a_group_that_was_forwarded(how):
    survives = how in ("lost replica", "abort of a companion")
    end = [LAST[how](), *([finish("p")] if survives else [])]
    host = Host(total_s=10)
    host.send(register("p", {"neg": "a"}), start("p", 0))
    own = handed(host, lambda payload: output("p", payload, context=payload), "P")
    companions = handed(host, lambda payload: done("a", payload), "A")
    assert host.state("p") == "forwarded"
    assert own() is None  # the host has it now
    assert companions() is not None  # the bundle is kept until the parent has finished
    for event in end:
        host.send(event)
    assert companions() is None
    assert host.live() == []


@pytest.mark.usefixtures("no_collector")
def test_a_rejected_forward_lets_the_bundle_go():
    host = Host()
    host.send(register("p", {"neg": "a"}), output("p"))
    companions = handed(host, lambda payload: done("a", payload), "A")
    host.send(reject("p"))
    assert companions() is None


@pytest.mark.usefixtures("no_collector")
def test_the_bundle_of_a_streaming_parent_is_kept_from_forward_to_forward():
    host = Host()
    host.send(register("p", {"neg": "a"}, streaming=True))
    companions = handed(host, lambda payload: done("a", payload), "A")
    for _ in range(3):
        own = handed(host, lambda payload: output("p", payload, segment=True), "P")
        assert own() is None
        assert companions() is not None
    host.send(finish("p"))
    assert companions() is None


@pytest.mark.usefixtures("no_collector")
def test_a_replaced_output_is_let_go_of_with_its_context():
    host = Host()
    host.send(register("p", {"neg": "a"}))
    older = handed(host, lambda payload: output("p", payload), "older")
    context = handed(host, lambda payload: output("p", None, context=payload), "context")
    assert older() is None
    assert context() is not None
    host.send(output("p", None))
    assert context() is None


@pytest.mark.usefixtures("no_collector")
def test_a_payload_that_was_ignored_is_not_kept():
    host = Host()
    host.send(register("p", {"neg": "a"}), register("q", {}), finish("q"), done("a"))
    for make in (
        lambda payload: done("a", payload),
        lambda payload: done("a", payload, life=9),
        lambda payload: done("p", payload),
        lambda payload: done("x", payload),
        lambda payload: done("q", payload),
        lambda payload: output("q", payload, context=payload),
        lambda payload: output("x", payload),
        lambda payload: output("a", payload),
        lambda payload: output("p", payload, life=9),
    ):
        assert handed(host, make, "ignored")() is None
    host.send(output("p"))
    assert host.state("p") == "forwarded"
    assert handed(host, lambda payload: output("p", payload), "second")() is None


@pytest.mark.usefixtures("no_collector")
def test_a_late_output_to_an_ended_group_is_not_kept():
    host = Host()
    host.send(register("p", {"neg": "a"}), abort("p"))
    assert handed(host, lambda payload: done("a", payload), "late")() is None
    assert handed(host, lambda payload: output("p", payload, context=payload), "late")() is None


@pytest.mark.usefixtures("no_collector")
def test_the_output_of_a_companion_that_finished_in_failure_is_not_kept():
    host = Host()
    host.send(register("p", {"neg": "a"}))
    assert handed(host, lambda payload: done("a", payload, finish="error"), "partial")() is None


@pytest.mark.usefixtures("no_collector")
def test_the_records_of_a_group_are_let_go_of_with_it():
    class Watched(list):
        pass

    host = Host(total_s=10)
    for end in LAST.values():
        host.send(
            register("p", {"neg": "a", "img": "b"}, life=host.registry.counters()["parents_registered"] + 1),
            start("b", 0),
        )
        payload = Watched()
        reference = weakref.ref(payload)
        host.send(done("a", payload))
        del payload
        event = end()
        if event.type == "clock_ticked":
            event = tick(host.registry.now + 10.0)
        host.send(event)
        assert host.live() == []
        assert reference() is None


@pytest.mark.usefixtures("no_collector")
def test_what_the_host_was_handed_is_the_hosts():
    host = Host()
    host.send(register("p", {"neg": "a"}))
    companions = handed(host, lambda payload: done("a", payload), "A")
    answer = host.send(output("p"))
    host.send(finish("p"))
    assert companions() is answer.actions[0].companion_outputs[0]
    del answer
    assert companions() is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("observed", [True, False], ids=["observed", "unobserved"])
def test_what_runs_when_a_payload_is_let_go_of_finds_the_step_complete(observed):
    registry, told_within = Registry(observers=[lambda record: None] if observed else ()), []
    registry.dispatch(register("p", {"neg": "a"}))
    registry.dispatch(output("p", Restless(lambda: told_within.append(told(registry.dispatch(error("p")))))))
    assert told(registry.dispatch(output("p", "newer"))) == []
    assert told_within == [["fail p: error", "abort a", "release p a"]]
    assert registry.counters()["live"] == registry.counters()["live_parents"] == 0


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("observed", [True, False], ids=["observed", "unobserved"])
def test_what_runs_when_a_group_is_let_go_of_finds_that_it_has_ended(observed):
    registry, told_within = Registry(observers=[lambda record: None] if observed else ()), []
    registry.dispatch(register("p", {"neg": "a"}))
    registry.dispatch(done("a", Restless(lambda: told_within.append(told(registry.dispatch(abort("p")))))))
    assert told(registry.dispatch(error("p"))) == ["fail p: error", "release p a"]
    assert told_within == [["acknowledge p=already_ended"]]
    assert registry.counters()["failed"] == {"error": 1}
