"""Aborts of the client: every one is answered, and a parent's name makes it the client's."""

import pytest
from helpers import (
    THREE,
    TWO,
    abort,
    done,
    finish,
    output,
    register,
    start,
    told,
)


def test_every_abort_is_answered_for_each_id_in_the_order_of_first_mention(host):
    host.send(register("p", TWO), register("q", {}), finish("q"), done("a"))
    assert host.tells(abort("x", "q", "a")) == ["acknowledge x=unknown q=already_ended a=already_ended"]
    assert host.verdict(abort("x", "q", "a")) == ("ignored", "nothing_ended")
    answer = host.send(abort("a", "p", "x", "p"))
    assert told(answer) == ["acknowledge a=already_ended p=ended x=unknown", "abort p b", "release p a b"]
    assert answer.disposition == "accepted"


def test_an_abort_of_nothing_is_answered_with_nothing(host):
    assert host.tells(abort()) == ["acknowledge"]
    assert host.verdict(abort()) == ("ignored", "nothing_ended")


@pytest.mark.parametrize(
    "names", [["p", "a"], ["a", "p"], ["a", "p", "a"], ["b", "a", "p"], ["p", "p", "b"]], ids=str
)
def test_ids_in_one_abort_end_at_one_instant_and_the_parents_name_makes_it_the_clients(host, names):
    host.send(register("p", TWO))
    acknowledged = " ".join(f"{who}=ended" for who in dict.fromkeys(names))
    assert host.tells(abort(*names)) == [f"acknowledge {acknowledged}", "abort p a b", "release p a b"]


def test_of_several_companions_of_one_parent_the_first_named_is_the_cause(host):
    host.send(register("p", THREE), start("a"), start("c"))
    answer = host.send(abort("c", "a"))
    assert told(answer) == [
        "acknowledge c=ended a=ended",
        "fail p: companion_aborted",
        "abort p a b c",
        "release p a b c",
    ]
    assert answer.actions[1].companion_id == "c"


def test_a_companion_that_is_done_is_not_touched_by_an_abort(host):
    host.send(register("p", TWO), done("a"), output("p"))
    assert host.tells(abort("a")) == ["acknowledge a=already_ended"]
    assert host.tells(done("b")) == ["forward p"]


def test_groups_come_in_the_order_of_their_first_mention_after_one_acknowledgement(host):
    host.send(register("p", {"neg": "a"}), register("q", {"neg": "b"}), register("r", {"neg": "c"}))
    assert host.tells(abort("r", "b", "p", "c")) == [
        "acknowledge r=ended b=ended p=ended c=ended",
        "abort r c",
        "release r c",
        "fail q: companion_aborted",
        "abort q b",
        "release q b",
        "abort p a",
        "release p a",
    ]


def test_a_name_that_ends_nothing_is_a_mention_of_its_group_all_the_same(host):
    host.send(register("p", TWO), register("q", {}), done("a"))
    # `a` is done and does not end, but it is of the group of `p`, which is so mentioned before `q`.
    assert host.tells(abort("a", "q", "p")) == [
        "acknowledge a=already_ended q=ended p=ended",
        "abort p b",
        "release p a b",
        "abort q",
        "release q",
    ]


@pytest.mark.parametrize("state", ["registered", "running", "deferred", "forwarded"])
def test_a_client_may_abort_a_parent_in_every_state(host, state):
    host.send(register("p", {"neg": "a"}))
    for event in {
        "registered": [],
        "running": [start("p")],
        "deferred": [output("p")],
        "forwarded": [output("p"), done("a")],
    }[state]:
        host.send(event)
    assert host.state("p") == state
    aborted = "abort p" if state == "forwarded" else "abort p a"
    assert host.tells(abort("p")) == ["acknowledge p=ended", aborted, "release p a"]
