"""Deadlines: with limits set every parent ends in time (R10), in the order of the deadlines (R11)."""

import pytest
from helpers import (
    THREE,
    TWO,
    Host,
    beat,
    bundle,
    done,
    finish,
    forwarded,
    join,
    kv,
    output,
    register,
    start,
    tick,
    told,
)

from cfg_fsm import Limits
from cfg_fsm.engine.group import Group


def test_the_bundle_must_be_complete_in_time_from_the_first_output():
    host = Host(deferred_s=10)
    host.send(
        register("p", THREE), done("b"), start("p"), output("p", stage=4, at=5.0), output("p", stage=4, at=12.0)
    )
    assert host.registry.next_deadline() == 15.0
    assert host.tells(tick(14.999)) == []
    answer = host.send(tick(15.0))
    assert told(answer) == ["fail p: deferred_deadline", "abort p a c", "release p a b c"]
    fail = answer.actions[0]
    assert (fail.status_code, fail.stage_id, fail.companion_id, fail.error_type) == (504, 4, None, None)
    assert "deferred_s = 10 s" in fail.error
    assert "neg (a), txt (c)" in fail.error
    assert "img" not in fail.error


def test_a_group_that_was_never_sealed_says_so_at_its_deadline():
    host = Host(deferred_s=10)
    host.send(register("p", None), join("p", "neg", "a"), done("a"), output("p"))
    assert "never sealed" in host.send(tick(10)).actions[0].error


def test_a_companion_must_be_started_in_time_from_its_registration():
    host = Host(start_s=3)
    host.send(register("p", TWO, at=1.0), start("b", at=2.0))
    assert host.registry.next_deadline() == 4.0
    assert host.tells(tick(3.999)) == []
    answer = host.send(tick(4.0))
    assert told(answer) == ["fail p: start_deadline", "abort p a b", "release p a b"]
    fail = answer.actions[0]
    assert (fail.companion_id, fail.status_code) == ("a", 504)
    assert "companion a (role neg)" in fail.error
    assert "start_s = 3 s" in fail.error


def test_a_companion_that_joined_later_has_its_time_from_then_and_a_confirmation_gives_no_more():
    host = Host(start_s=3)
    host.send(register("p", None), join("p", "neg", "a", at=2.0), join("p", "neg", "a", at=4.0))
    assert host.registry.next_deadline() == 5.0
    assert host.tells(tick(5.0))[0] == "fail p: start_deadline"


def test_a_running_companion_must_give_signs_of_life():
    host = Host(silent_s=3)
    host.send(register("p", TWO), start("a", at=1.0), beat("a", at=2.0), kv("a", at=4.0))
    assert host.registry.next_deadline() == 7.0
    assert host.tells(tick(6.999)) == []
    answer = host.send(tick(7.0))
    assert told(answer) == ["fail p: silent", "abort p a b", "release p a b"]
    fail = answer.actions[0]
    assert (fail.companion_id, fail.status_code) == ("a", 504)
    assert "silent_s = 3 s" in fail.error


def test_a_companion_that_was_started_anew_has_given_a_sign_of_life():
    host = Host(silent_s=3)
    host.send(register("p", {"neg": "a"}), start("a", 0, at=1.0), start("a", 1, at=3.0))
    assert host.registry.next_deadline() == 6.0


def test_a_silent_parent_has_no_deadline_for_it():
    host = Host(silent_s=3, start_s=3)
    host.send(register("p", {}), start("p"))
    assert host.registry.next_deadline() is None
    assert host.tells(tick(1e9)) == []


def test_a_companion_that_is_done_owes_nothing():
    host = Host(silent_s=3, start_s=3)
    host.send(register("p", TWO), done("a"), start("b"), done("b"))
    assert host.registry.next_deadline() is None
    assert host.tells(tick(1e9)) == []


@pytest.mark.parametrize(
    "before",
    [[], [start("p")], [output("p")], [output("p"), done("a")]],
    ids=["registered", "running", "deferred", "forwarded"],
)
def test_the_total_time_ends_a_parent_in_every_state(before):
    host = Host(total_s=20)
    host.send(register("p", {"neg": "a"}, at=2.0), *before)
    assert host.registry.next_deadline() == 22.0
    answer = host.send(tick(22.0))
    fail = answer.actions[0]
    assert (fail.reason, fail.status_code, fail.companion_id) == ("total_deadline", 504, None)
    assert "total_s = 20 s" in fail.error
    assert told(answer)[1].startswith("abort p")
    assert host.live() == []


def test_a_forward_ends_the_wait():
    host = Host(deferred_s=10)
    forwarded(host)
    assert host.registry.next_deadline() is None
    assert host.tells(tick(1e9)) == []


def test_a_streaming_parent_begins_a_new_wait_with_each_segment_and_it_ends_at_once():
    host = Host(deferred_s=10, total_s=100)
    host.send(register("p", {"neg": "a"}, streaming=True), output("p", segment=True, at=1.0))
    assert host.registry.next_deadline() == 11.0
    assert host.tells(done("a", at=10.9)) == ["forward p"]
    assert host.tells(tick(11.0)) == []
    assert host.tells(output("p", at=50.0)) == ["forward p"]
    assert host.registry.next_deadline() == 100.0
    assert host.tells(tick(99.9)) == []
    assert host.state("p") == "forwarded"


def test_an_event_at_the_deadline_that_comes_before_the_tick_is_in_time():
    host = Host(deferred_s=10)
    host.send(register("p", {"neg": "a"}), output("p"))
    assert host.tells(done("a", at=10.0)) == ["forward p"]
    assert host.tells(tick(10.0)) == []


def test_an_event_long_after_the_deadline_is_in_time_if_no_tick_came_before():
    host = Host(deferred_s=10, total_s=10)
    host.send(register("p", {"neg": "a"}), output("p"))
    assert host.tells(done("a", at=500.0)) == ["forward p"]


def test_no_event_but_a_tick_ends_a_parent_by_its_deadline():
    host = Host(total_s=10)
    host.send(register("p", {"neg": "a"}), register("q", {}), beat("q", at=50.0))
    assert host.live() == ["p", "a", "q"]
    assert host.registry.next_deadline() == 10.0
    assert host.tells(tick(0)) == [
        "fail p: total_deadline",
        "abort p a",
        "release p a",
        "fail q: total_deadline",
        "abort q",
        "release q",
    ]


def test_groups_that_are_due_end_in_the_order_of_deadline_then_registration():
    host = Host(total_s=10)
    host.send(register("q", {}, at=1.0), register("p", {}, at=1.0), register("r", {}, limits=Limits(total_s=4)))
    host.send(register("s", {}, at=2.0))
    fails = [line for line in host.tells(tick(100)) if line.startswith("fail")]
    assert fails == [f"fail {parent}: total_deadline" for parent in "rqps"]


def test_deadlines_that_moved_are_taken_in_the_order_that_they_have_now():
    host = Host(silent_s=10)
    host.send(register("p", {"neg": "a"}), register("q", {"neg": "b"}), start("a", at=1.0), start("b", at=2.0))
    host.send(beat("a", at=3.0))
    assert [line for line in host.tells(tick(50)) if line.startswith("fail")] == [
        "fail q: silent",
        "fail p: silent",
    ]


def test_of_equal_deadlines_of_one_group_deferred_comes_first_then_total_then_companions_in_role_order():
    def reason(**limits):
        host = Host(**limits)
        host.send(register("p", {"neg": "a", "img": "b", "txt": "c"}), start("b"), start("c"), output("p"))
        fail = host.send(tick(5)).actions[0]
        return str(fail.reason), fail.companion_id

    assert reason(deferred_s=5, total_s=5, start_s=5, silent_s=5) == ("deferred_deadline", None)
    assert reason(total_s=5, start_s=5, silent_s=5) == ("total_deadline", None)
    assert reason(start_s=5, silent_s=5) == ("start_deadline", "a")
    assert reason(silent_s=5) == ("silent", "b")


def test_role_order_and_not_the_limit_decides_between_companions():
    host = Host(start_s=5, silent_s=5)
    host.send(register("p", TWO), start("a"))
    assert host.tells(tick(5))[0] == "fail p: silent"


def test_the_earliest_deadline_of_a_group_is_its_reason_even_when_the_tick_comes_late():
    host = Host(deferred_s=5, total_s=7, start_s=6)
    host.send(register("p", TWO), output("p", at=3.0))
    assert host.tells(tick(100))[0] == "fail p: start_deadline"


def test_a_parent_may_bring_its_own_limits_field_by_field():
    host = Host(deferred_s=10, silent_s=10, start_s=10, total_s=100)
    host.send(register("p", {"neg": "a"}, limits=Limits(start_s=2)), register("q", {"neg": "b"}))
    assert host.registry.next_deadline() == 2.0
    host.send(start("a"))
    assert host.view("a").deadline == 10.0
    assert host.view("b").deadline == 10.0
    host.send(register("r", {}, limits=Limits(total_s=500)))
    assert host.view("r").deadline == 500.0
    assert host.view("p").deadline == 100.0


def test_a_parent_may_bring_limits_where_the_registry_has_none():
    host = Host()
    host.send(register("p", {}, limits=Limits(total_s=2)), register("q", {}))
    assert host.tells(tick(1000))[0] == "fail p: total_deadline"
    assert host.live() == ["q"]


def test_with_limits_set_every_parent_ends_in_bounded_time_whatever_stays_silent():
    host = Host(deferred_s=1, silent_s=1, start_s=1, total_s=10)
    host.send(register("p", None), register("q", TWO), register("r", {}), output("r"), register("s", {}))
    host.send(start("s"), start("a"))
    host.send(tick(10))
    assert host.live() == []
    assert host.registry.next_deadline() is None


def test_next_deadline_is_exact_after_each_event():
    host = Host(deferred_s=10, silent_s=4, start_s=3, total_s=50)
    registry = host.registry
    assert registry.next_deadline() is None
    for event, expected in [
        (register("p", TWO, at=0.0), 3.0),
        (start("a", at=1.0), 3.0),
        (start("b", at=2.0), 5.0),
        (beat("a", at=4.0), 6.0),
        (beat("b", at=4.5), 8.0),
        (done("a"), 8.5),
        (output("p", at=5.0), 8.5),
        (kv("b", at=6.0), 10.0),
        (beat("b", at=9.0), 13.0),
        (beat("b", at=14.0), 15.0),
        (done("b"), 50.0),
        (tick(20.0), 50.0),
        (finish("p"), None),
    ]:
        host.send(event)
        assert registry.next_deadline() == expected, event


def test_time_never_goes_back(host):
    host.send(register("p", {}, at=10.0), start("p", at=4.0))
    assert host.registry.now == 10.0
    assert host.view("p").age_s == 0.0
    host.send(tick(12.0), tick(3.0))
    assert host.registry.now == 12.0
    assert host.view("p").age_s == 2.0


def test_an_event_without_a_time_happens_at_the_registrys_time():
    host = Host(total_s=5)
    host.send(tick(100.0), register("p", {}))
    assert host.registry.next_deadline() == 105.0


def test_an_event_of_the_past_begins_its_deadline_now():
    host = Host(total_s=5)
    host.send(tick(100.0), register("p", {}, at=1.0))
    assert host.registry.next_deadline() == 105.0


def test_a_refused_event_makes_time_go_on_all_the_same():
    host = Host(total_s=5)
    host.send(beat("nobody", at=50.0))
    assert host.registry.now == 50.0


def test_the_order_of_events_and_not_their_times_decides(host):
    host.send(register("p", {"neg": "a"}, at=10.0), done("a", "first", at=9.0), done("a", "second", at=2.0))
    assert bundle(host.send(output("p", at=1.0)))[1] == ["first"]


def test_a_tick_is_always_accepted(host):
    assert host.verdict(tick(0)) == host.verdict(tick(5)) == host.verdict(tick(1)) == ("accepted", None)


def test_a_tick_with_nothing_due_looks_at_no_group(host, monkeypatch):
    def look(group):
        raise AssertionError("it was looked at")

    host.send(*(register(f"p{number}", {}, limits=Limits(total_s=100)) for number in range(5)))
    monkeypatch.setattr(Group, "first_due", look)
    assert host.tells(tick(99.9)) == []
