"""A lost replica ends the groups of those that run on it, and no others."""

import pytest
from helpers import (
    THREE,
    TWO,
    bundle,
    done,
    finish,
    join,
    lose,
    output,
    register,
    start,
    told,
)


def test_a_parent_fails_with_the_replica_that_it_runs_on(host):
    host.send(register("p", TWO), start("p", 1, stage=2), start("a", 1, stage=2))
    answer = host.send(lose(1, stage=2, error="out of power"))
    assert told(answer) == ["fail p: replica_lost", "abort b", "release p a b"]
    fail = answer.actions[0]
    assert (fail.companion_id, fail.stage_id) == (None, 2)
    assert fail.error == "replica 1 of stage 2 was lost: out of power"


def test_a_parent_fails_with_the_replica_that_a_companion_runs_on(host):
    host.send(register("p", TWO), start("p", 0), start("a", 0), start("b", 1))
    answer = host.send(lose(1))
    assert told(answer) == ["fail p: replica_lost", "abort p a", "release p a b"]
    fail = answer.actions[0]
    assert (fail.companion_id, fail.stage_id) == ("b", 0)
    assert "companion b (role img)" in fail.error
    assert "replica 1 of stage 0" in fail.error


def test_siblings_on_the_lost_replica_are_not_aborted_and_others_are(host):
    host.send(register("p", {**THREE, "x": "d"}), start("a", 1), start("b", 2), start("c", 1))
    answer = host.send(lose(1))
    assert told(answer) == ["fail p: replica_lost", "abort p b d", "release p a b c d"]
    assert answer.actions[0].companion_id == "a"


@pytest.mark.parametrize("lost", [lose(1, stage=0), lose(0, stage=1), lose(0, stage=2)], ids=str)
def test_the_loss_of_another_replica_or_of_one_of_another_stage_ends_nobody(host, lost):
    host.send(register("p", TWO), start("p", 0, stage=0), start("a", 1, stage=1), start("b"))
    assert host.verdict(lost) == ("ignored", "nothing_bound")
    assert host.live() == ["p", "a", "b"]


def test_what_is_not_bound_to_a_replica_is_lost_with_none(host):
    host.send(register("p", TWO), start("p"), start("a", None))
    assert host.verdict(lose(0)) == ("ignored", "nothing_bound")


def test_the_output_of_a_companion_that_is_done_survives_its_replica(host):
    host.send(register("p", TWO), start("a", 1), done("a", "A"))
    assert host.verdict(lose(1)) == ("ignored", "nothing_bound")
    host.send(done("b", "B"))
    assert bundle(host.send(output("p")))[1] == ["A", "B"]


def test_the_output_of_a_deferred_parent_survives_its_replica(host):
    host.send(register("p", {"neg": "a"}), start("p", 1), output("p", "P"))
    assert host.verdict(lose(1)) == ("ignored", "nothing_bound")
    assert host.send(done("a")).actions[0].engine_outputs == "P"


def test_a_forwarded_parent_survives_its_replica(host):
    host.send(register("p", {}), start("p", 1), output("p"))
    assert host.verdict(lose(1)) == ("ignored", "nothing_bound")
    assert host.tells(finish("p")) == ["release p"]


def test_a_deferred_parent_fails_with_the_replica_of_a_companion_that_it_waits_for(host):
    host.send(register("p", TWO), start("p", 1), start("a", 1), output("p"))
    assert host.tells(lose(1)) == ["fail p: replica_lost", "abort p b", "release p a b"]


def test_a_request_that_was_started_on_another_replica_is_bound_to_that_one(host):
    host.send(register("p", {"neg": "a"}), start("a", 0), start("a", 1))
    assert host.view("a").replica == (0, 1)
    assert host.verdict(lose(0)) == ("ignored", "nothing_bound")
    assert host.tells(lose(1))[0] == "fail p: replica_lost"
    assert host.moves("a")[1] == ("start", "running", "running")


def test_groups_that_are_lost_with_a_replica_end_in_the_order_of_registration(host):
    host.send(register("r", {"neg": "c"}), register("q", {}), register("p", {}))
    host.send(start("p", 0), start("q", 1), start("c", 0))
    assert host.tells(lose(0)) == [
        "fail r: replica_lost",
        "abort r",
        "release r c",
        "fail p: replica_lost",
        "release p",
    ]
    assert host.live() == ["q"]


def test_registration_orders_lost_groups_even_where_a_companion_joined_later(host):
    host.send(register("p", None), register("q", {}), start("q", 0), join("p", "neg", "a"), start("a", 0))
    assert [line for line in host.tells(lose(0)) if line.startswith("fail")] == [
        "fail p: replica_lost",
        "fail q: replica_lost",
    ]
