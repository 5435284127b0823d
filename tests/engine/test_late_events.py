"""Events that come late, twice or about nobody touch nobody; what runs without an owner is aborted."""

import pytest
from helpers import (
    TWO,
    Host,
    abort,
    beat,
    done,
    error,
    finish,
    join,
    kv,
    lose,
    output,
    register,
    reject,
    seal,
    start,
    told,
)

# ---------------------------------------------------------------------------
# R5: unknown, late, repeated, stale
# ---------------------------------------------------------------------------


ABOUT_ONE = [start, beat, kv, output, done, error, reject, finish, seal]


@pytest.mark.parametrize("make", ABOUT_ONE, ids=lambda make: make.__name__)
def test_an_event_about_an_unknown_id_is_ignored_and_touches_nobody(host, make):
    host.send(register("p", TWO))
    before = host.registry.requests()
    answer = host.send(make("x"))
    assert (answer.disposition, answer.reason, answer.actions, answer.life) == ("ignored", "unknown", (), None)
    assert host.registry.requests() == before


@pytest.mark.parametrize("make", ABOUT_ONE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("who", ["p", "a"])
def test_an_event_about_an_ended_id_is_ignored_and_says_so(host, make, who):
    host.send(register("p", {"neg": "a"}), error("p"))
    answer = host.send(make(who))
    assert (answer.disposition, answer.reason, answer.life) == ("ignored", "ended", 1)
    assert host.live() == []


@pytest.mark.parametrize("make", ABOUT_ONE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("who", ["p", "a"])
@pytest.mark.parametrize("life", [0, 1, 3, 99])
def test_an_event_of_another_life_is_ignored(make, who, life):
    host = Host()
    host.send(register("p", {"neg": "a"}), error("p"), done("a"), register("p", {"neg": "a"}))
    host.send(start("p"), start("a"), *([output("p")] if make is reject else []))
    before = host.registry.requests()
    answer = host.send(make(who, life=life))
    assert (answer.disposition, answer.reason, answer.actions, answer.life) == ("ignored", "other_life", (), 2)
    assert host.registry.requests() == before


@pytest.mark.parametrize("make", [start, beat, kv, output, error, finish], ids=lambda make: make.__name__)
def test_an_event_of_the_current_life_is_taken_in(host, make):
    host.send(register("p", {"neg": "a"}, life=5))
    assert host.send(make("p", life=5)).disposition == "accepted"


def test_aborts_and_lost_replicas_of_another_life_end_nothing(host):
    host.send(register("p", {"neg": "a"}, life=5), start("p", 0))
    assert host.tells(abort("p", life=4)) == ["acknowledge p=already_ended"]
    assert host.verdict(abort("a", life=4)) == ("ignored", "nothing_ended")
    assert host.tells(abort("p", life=6)) == ["acknowledge p=unknown"]
    assert host.verdict(lose(0, life=4)) == ("ignored", "nothing_bound")
    assert host.state("p") == "running"
    assert host.tells(lose(0, life=5))[0] == "fail p: replica_lost"
    assert host.tells(abort("p", "a", life=5)) == ["acknowledge p=already_ended a=already_ended"]
    assert host.tells(abort("p", life=6)) == ["acknowledge p=unknown"]


def test_a_companion_is_joined_and_confirmed_in_the_current_life_only(host):
    host.send(register("p", None, life=5))
    assert host.verdict(join("p", "neg", "a", life=4)) == ("ignored", "other_life")
    assert host.live() == ["p"]
    assert host.verdict(join("p", "neg", "a", life=5)) == ("accepted", None)
    assert host.verdict(seal("p", life=4)) == ("ignored", "other_life")


def test_a_start_after_the_output_is_ignored(host):
    host.send(register("p", TWO), output("p"), done("a"))
    assert host.verdict(start("p")) == ("ignored", "already_past")
    assert host.verdict(start("a")) == ("ignored", "already_past")
    host.send(done("b"))
    assert host.verdict(start("p")) == ("ignored", "already_past")


def test_a_failure_of_a_companion_that_is_done_is_ignored(host):
    host.send(register("p", TWO), done("a"))
    assert host.verdict(error("a")) == ("ignored", "already_done")
    assert host.verdict(done("a", finish="error")) == ("ignored", "already_done")
    assert host.state("p") == "registered"


def test_a_rejection_of_a_forward_that_did_not_happen_is_ignored(host):
    host.send(register("p", TWO))
    for event in (start("p"), output("p")):
        assert host.verdict(reject("p")) == ("ignored", "not_forwarded")
        host.send(event)
    assert host.verdict(reject("p")) == ("ignored", "not_forwarded")


# ---------------------------------------------------------------------------
# R8: late starts, strays
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["p", "a", "b"])
@pytest.mark.parametrize("end", [error("p"), abort("p"), finish("p")], ids=lambda e: e.type)
def test_what_starts_after_its_group_ended_is_aborted_each_time(host, who, end):
    host.send(register("p", TWO), done("b"), end)
    for _ in range(2):
        answer = host.send(start(who, 0))
        assert (answer.disposition, answer.reason, told(answer)) == ("ignored", "ended", [f"abort {who}"])
    assert host.live() == []


def test_a_start_of_another_life_of_an_ended_id_is_aborted_too(host):
    host.send(register("p", {"neg": "a"}, life=3), abort("p"))
    assert host.tells(start("a", life=2)) == ["abort a"]


def test_a_late_start_of_one_life_does_not_abort_the_next(host):
    host.send(register("p", {"neg": "a"}, life=1), abort("p"), register("p", {"neg": "a"}, life=2))
    answer = host.send(start("a", life=1))
    assert (answer.disposition, answer.reason, answer.actions) == ("ignored", "other_life", ())
    assert host.state("a") == "registered"


def test_a_companion_of_a_parent_that_ended_is_rejected_aborted_and_released(host):
    host.send(register("p", {}), error("p"))
    answer = host.send(join("p", "neg", "a"))
    assert (answer.disposition, answer.reason) == ("rejected", "parent_ended")
    assert told(answer) == ["abort a", "release a"]


def test_a_companion_that_was_not_announced_to_a_sealed_group_is_rejected_aborted_and_released(host):
    host.send(register("p", {"neg": "a"}), register("q", None), seal("q"))
    for parent, role in (("p", "img"), ("p", "neg"), ("q", "neg")):
        answer = host.send(join(parent, role, "stray"))
        assert (answer.disposition, answer.reason) == ("rejected", "sealed")
        assert told(answer) == ["abort stray", "release stray"]
    assert host.live() == ["p", "a", "q"]


def test_a_stray_that_lives_elsewhere_is_left_alone(host):
    host.send(register("p", {"neg": "a"}), register("q", {}), register("r", {}), error("r"))
    for parent, stray in (("q", "a"), ("q", "p"), ("q", "q"), ("p", "p"), ("r", "a")):
        answer = host.send(join(parent, "img", stray))
        assert (answer.disposition, answer.actions) == ("rejected", ())
    assert host.tells(join("p", "img", "a")) == []  # announced, but in another role
    assert host.live() == ["p", "a", "q"]


def test_a_companion_of_a_parent_that_was_never_known_is_rejected_without_actions(host):
    answer = host.send(join("p", "neg", "a"))
    assert (answer.disposition, answer.reason, answer.actions) == ("rejected", "unknown_parent", ())


def test_a_companion_cannot_have_companions(host):
    host.send(register("p", {"neg": "a"}))
    assert host.verdict(join("a", "neg", "b")) == ("rejected", "not_a_parent")
    host.send(error("p"))
    assert host.verdict(join("a", "neg", "b")) == ("rejected", "not_a_parent")


def test_a_stray_that_was_turned_away_leaves_no_trace(host):
    host.send(register("p", {}), join("p", "neg", "a"))
    assert host.verdict(beat("a")) == ("ignored", "unknown")
    assert host.verdict(register("q", {"neg": "a"})) == ("accepted", None)


def test_of_a_life_to_come_nothing_is_known_yet(host):
    host.send(register("p", {"neg": "a"}), abort("p"))
    assert host.tells(start("a", life=2)) == []
    assert host.verdict(start("a", life=2)) == ("ignored", "unknown")
    assert host.tells(start("a", life=1)) == ["abort a"]
