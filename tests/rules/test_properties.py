"""Whatever comes, in whatever order, the rules hold after every step."""

import dataclasses
import json
import random
import weakref

import pytest
from helpers import (
    Host,
    Payload,
    abort,
    beat,
    done,
    error,
    finish,
    join,
    kv,
    live_records,
    lose,
    output,
    register,
    reject,
    seal,
    start,
    tick,
    told,
)
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st
from model import PROPERTIES, take_picture, watched

from cfg_fsm import FailureReason, Limits, Registry, ReleaseRequests, parse_event

# ---------------------------------------------------------------------------
# Any events, about ids from a small pool, so that they collide and come back
# ---------------------------------------------------------------------------

PARENTS, COMPANIONS, ROLES = ["p", "q", "r"], ["a", "b", "c", "d"], ["neg", "img", "txt"]
KINDS = [
    "register", "register", "register", "join", "join", "seal", "start", "start", "start", "start", "sign", "sign",
    "output", "output", "output", "done", "done", "done", "done", "done", "error", "abort", "lose", "reject",
    "finish", "tick", "tick",
]  # fmt: skip
#: How time goes on with an event; ``None``: the event does not say. It may seem to go back.
GAPS = [None, None, None, None, 0.0, 0.5, 1.0, 2.0, 4.0, -3.0]
OWN_LIMITS = [None, None, None, None, Limits(), Limits(total_s=2, start_s=6), Limits(silent_s=1, max_requests=1)]


def maybe(*values):
    return st.sampled_from([None, None, *values])


LIMITS = st.builds(
    Limits,
    deferred_s=maybe(1.0, 5.0),
    silent_s=maybe(2.0, 4.0),
    start_s=maybe(1.0, 4.0),
    total_s=maybe(4.0, 20.0),
    max_requests=st.sampled_from([None, None, None, None, 3, 6]),
    max_companions_per_parent=st.sampled_from([None, None, None, None, 1, 2]),
    tombstones=st.sampled_from([65_536, 65_536, 65_536, 4, 0]),
    tombstone_s=st.sampled_from([600.0, 600.0, 4.0, None]),
)


class Chaos:
    """Makes up the next event: of any kind, about anyone, more often about those who live."""

    def __init__(self, choose, registry):
        self.one_of, self.registry = choose, registry

    def live(self, machine):
        return [view.request_id for view in self.registry.requests() if view.machine == machine]

    def parent(self):
        live = self.live("parent")
        return self.one_of([*live, *live, *live, *live, *PARENTS, "a"])

    def companion(self):
        live = self.live("companion")
        return self.one_of([*live, *live, *live, *live, *COMPANIONS, "p"])

    def anyone(self):
        live = self.live("parent") + self.live("companion")
        return self.one_of([*live, *live, *live, *PARENTS, *COMPANIONS, "x"])

    def life(self):
        return self.one_of([None] * 12 + [0, 1, 1, 2, 2, 3])

    def payload(self):
        return self.one_of([Payload("one"), Payload("two"), None])

    def event(self):
        kind, at = self.one_of(KINDS), self.one_of(GAPS)
        if at is not None or kind == "tick":
            at = max(0.0, self.registry.now + (at or 0.0))
        if kind == "tick":
            return tick(at)
        return getattr(self, f"_{kind}")(at=at, life=self.life())

    def _register(self, **fields):
        companions = None
        if self.one_of([True, True, False]):
            companions, free = {}, list(COMPANIONS)
            for role in ROLES[self.one_of([0, 0, 1]) :][: self.one_of([0, 1, 1, 2, 2, 3])]:
                companion = self.one_of([*free, *free, *free, "a", "p"])
                companions[role] = companion
                free = [other for other in free if other != companion]
        streaming, limits = self.one_of([True, False]), self.one_of(OWN_LIMITS)
        return register(
            self.one_of([*PARENTS, *PARENTS, "a"]), companions, streaming=streaming, limits=limits, **fields
        )

    def _join(self, **fields):
        return join(self.parent(), self.one_of(ROLES), self.companion(), **fields)

    def _seal(self, **fields):
        return seal(self.parent(), **fields)

    def _start(self, **fields):
        return start(self.anyone(), self.one_of([None, 0, 0, 1]), stage=self.one_of([0, 0, 1]), **fields)

    def _sign(self, **fields):
        return self.one_of([beat, kv])(self.anyone(), **fields)

    def _output(self, **fields):
        stage, segment = self.one_of([0, 0, 1]), self.one_of([True, False])
        return output(
            self.parent(), self.payload(), stage=stage, segment=segment, context=self.payload(), **fields
        )

    def _done(self, **fields):
        how = self.one_of(["stop"] * 6 + ["length", "abort", "error"])
        return done(self.companion(), self.payload(), how, **fields)

    def _error(self, **fields):
        return error(self.anyone(), stage_id=self.one_of([None, 0, 2]), **fields)

    def _abort(self, **fields):
        return abort(*(self.anyone() for _ in range(self.one_of([1, 2, 3, 0, 5]))), **fields)

    def _lose(self, **fields):
        return lose(self.one_of([0, 1]), stage=self.one_of([0, 0, 1]), **fields)

    def _reject(self, **fields):
        return reject(self.parent(), **fields)

    def _finish(self, **fields):
        return finish(self.parent(), **fields)


SEEDS = st.integers(0, 2**64 - 1)


def wander(choose, steps, registry, dispatch):
    """Dispatch made-up events; all of them. If that breaks a rule, say which events led there."""
    chaos, events = Chaos(choose, registry), []
    for _ in range(steps):
        events.append(chaos.event())
        try:
            dispatch(events[-1])
        except AssertionError as broken:
            raise AssertionError("\n".join([str(broken), "after", *map(repr, events)])) from broken
    return events


def timed(events, gaps):
    """The events with a time each: the sum of the gaps so far."""
    now = 0.0
    for event, gap in zip(events, gaps, strict=True):
        if gap is not None or event.type == "clock_ticked":
            at = max(0.0, now + (gap or 0.0))
            now = max(now, at)
            event = event.model_copy(update={"at": at})
        yield event


# ---------------------------------------------------------------------------
# Groups that mean to go well, and do not
# ---------------------------------------------------------------------------


@st.composite
def plans(draw, parent, companions):
    """The events of one group, from registration to its finish, as they would come if nothing went wrong."""
    roles = dict(zip(["neg", "img", "txt"], companions, strict=False))
    streaming = draw(st.booleans())
    if draw(st.booleans()):
        head = [register(parent, roles, streaming=streaming)]
        body = [join(parent, role, companion) for role, companion in roles.items()]
    else:
        head = [register(parent, None, streaming=streaming)]
        head += [join(parent, role, companion) for role, companion in roles.items()]
        body = [seal(parent)]
    for number, companion in enumerate(companions):
        body += [start(companion, number % 2), beat(companion), kv(companion), done(companion, Payload(companion))]
    body += [start(parent, 0), output(parent, Payload("P1"), segment=streaming, context=Payload("X"))]
    if draw(st.booleans()):
        body = draw(st.permutations(body))
    tail = [output(parent, Payload("P2"))] if streaming else []
    return [*head, *body, *tail, finish(parent)]


BETWEEN = [
    tick(0), tick(0), tick(0), abort("p"), abort("a"), abort("b", "q"), abort("a", "q", "p"), lose(0), lose(1),
    error("p"), error("a"), error("b"), done("a", finish="abort"), done("b", finish="error"), reject("p"),
    start("a", 1),
]  # fmt: skip


@st.composite
def mishaps(draw):
    """Several such groups at once or one after the other, with events lost, doubled, late and swapped, and with
    ticks, aborts, failures and losses in between."""
    queues = [
        draw(plans("p", ["a", "b"])),
        draw(plans("q", draw(st.sampled_from([[], ["c"], ["c", "d"], ["b"]])))),
        draw(plans("p", draw(st.sampled_from([["a"], ["a", "b"], ["d"]])))),
    ]
    queues = queues[: draw(st.integers(1, 3))]
    if draw(st.booleans()):
        queues = [[event for queue in queues for event in queue]]
    events, late = [], []
    while queues:
        queue = draw(st.sampled_from(queues))
        event = queue.pop(0)
        if not queue:
            queues.remove(queue)
        fate = draw(st.sampled_from(["well"] * 14 + ["lost", "twice", "late", "swapped", "between", "between"]))
        if fate == "late":
            late.append(event)
        elif fate == "swapped" and events:
            events.insert(-1, event)
        elif fate != "lost":
            events.append(event)
        if fate == "twice":
            events.append(event)
        if fate == "between":
            events.append(draw(st.sampled_from(BETWEEN)))
    events += late
    return list(timed(events, [draw(st.sampled_from(GAPS)) for _ in events]))


def walk(limits, events):
    registry, checker = watched(limits)
    for event in events:
        answer = checker.dispatch(event)
        note(f"{event.type} {answer.disposition} {answer.reason or ''}")
    return registry


@settings(max_examples=60)
@given(st.data(), LIMITS, st.integers(1, 40))
def test_the_rules_hold_after_every_step_whatever_comes(data, limits, steps):
    registry, checker = watched(limits)
    wander(lambda values: data.draw(st.sampled_from(values)), steps, registry, checker.dispatch)


@settings(max_examples=300)
@given(SEEDS, LIMITS)
def test_the_rules_hold_after_every_step_of_a_long_way(seed, limits):
    registry, checker = watched(limits)

    def dispatch(event):
        answer = checker.dispatch(event)
        note(f"{event.type} {answer.disposition} {answer.reason or ''}")

    wander(random.Random(seed).choice, 80, registry, dispatch)


@settings(max_examples=150)
@given(LIMITS, mishaps())
def test_the_rules_hold_after_every_step_when_good_plans_go_wrong(limits, events):
    walk(limits, events)


BOUNDED = st.builds(
    Limits,
    total_s=st.sampled_from([4.0, 30.0]),
    deferred_s=maybe(5.0),
    start_s=maybe(3.0),
    silent_s=maybe(2.0),
)


@settings(max_examples=60)
@given(SEEDS, BOUNDED)
def test_with_limits_set_nothing_is_live_after_a_tick_far_in_the_future(seed, limits):
    registry, checker = watched(limits)
    wander(random.Random(seed).choice, 80, registry, checker.dispatch)
    checker.dispatch(tick(1e6))
    assert registry.requests() == []
    assert registry.next_deadline() is None
    assert registry.counters()["live"] == registry.counters()["deadlines"] == 0
    checker.dispatch(tick(1e6 + 600))
    assert registry.counters()["tombstones"] == 0


@settings(max_examples=60)
@given(BOUNDED, mishaps())
def test_a_host_that_ticks_at_each_next_deadline_ends_a_parent_with_every_tick(limits, events):
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


@settings(max_examples=60)
@given(SEEDS, LIMITS)
def test_every_audit_record_is_plain_data_without_a_payload(seed, limits):
    records = []
    registry = Registry(limits=limits, observers=[records.append])
    events = wander(random.Random(seed).choice, 80, registry, registry.dispatch)
    assert "SECRET" not in json.dumps(records)
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    assert sum(record.kind == "event" for record in records) == len(events)


@settings(max_examples=60)
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
    assert replay.counters() == registry.counters()


@settings(max_examples=60)
@given(SEEDS, LIMITS)
def test_a_copy_lives_as_the_original_would_and_leaves_it_alone(seed, limits):
    registry, choose = Registry(limits=limits), random.Random(seed).choice
    wander(choose, 40, registry, registry.dispatch)
    before = take_picture(registry)
    other, answers = registry.copy(), []
    assert take_picture(other).views == before.views
    events = wander(choose, 40, other, lambda event: answers.append(other.dispatch(event).to_dict()))
    assert take_picture(registry) == before
    assert [answer.to_dict() for answer in registry.dispatch_many(events)] == answers
    assert registry.counters() == other.counters()


@settings(max_examples=60)
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
    "R2, R6: the outputs": ([*GOOD_RUN, done("a", "A")], lambda a: (change(a[0], companion_outputs=["B", "A"]),)),
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
    "the actions stand in order": ([*GOOD_RUN, error("a")], lambda a: (a[0], a[2], a[1])),
    "every abort is answered": (
        [*GOOD_RUN, abort("p", "x")],
        lambda a: (change(a[0], outcomes={"p": "ended"}), *a[1:]),
    ),
    "R8: what runs without an owner": (
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


def test_the_checker_notices_a_record_that_an_ignored_event_has_changed():
    registry, checker = watched(Limits())
    checker.dispatch(register("p", {"neg": "a"}))
    answer = registry.dispatch(kv("a"))
    live_records(registry)["a"].output = "early"
    with pytest.raises(AssertionError, match="a refused event has changed nothing"):
        checker.step(kv("a"), answer)


def test_the_checker_notices_what_is_left_of_a_group():
    registry, checker = watched(Limits())
    checker.dispatch(register("p", {"neg": "a"}))
    left = live_records(registry)["a"]
    answer = registry.dispatch(error("p"))
    live_records(registry)["a"] = left
    with pytest.raises(AssertionError, match="R7"):
        checker.step(error("p"), answer)


def test_the_checker_notices_two_registries_that_differ():
    registry, checker = watched(Limits())
    checker.twin.dispatch(register("p", {}))
    with pytest.raises(AssertionError, match="R12"):
        checker.step(register("p", {}), registry.dispatch(register("p", {})))


def test_every_rule_has_a_name_that_says_it():
    assert len({holds.__name__ for holds in PROPERTIES}) == len(PROPERTIES)
    assert all(holds.__doc__ for holds in PROPERTIES)


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


class Restless:
    """A payload that does something when it is let go of, as a finalizer of the host's might."""

    def __init__(self, act):
        self.act = act

    def __del__(self):
        self.act()


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
