"""The life of a group, from its registration to its one end."""

import pytest
from helpers import (
    TWO,
    Host,
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
    seal,
    start,
    tick,
)

# ---------------------------------------------------------------------------
# The life of a group
# ---------------------------------------------------------------------------


def test_a_guided_request_runs_is_forwarded_with_its_bundle_and_is_released_when_it_is_finished(host):
    assert host.tells(register("p", TWO)) == []
    assert host.tells(start("p", 0), start("a", 0), start("b", 1)) == []
    assert host.tells(output("p", "P", stage=0, context="X")) == []
    assert host.tells(done("b", "B")) == []
    answer = host.send(done("a", "A"))
    assert [action.to_dict() for action in answer.actions] == [
        {
            "type": "forward_parent",
            "parent_id": "p",
            "life": 1,
            "stage_id": 0,
            "engine_outputs": "P",
            "companion_request_ids": {"neg": "a", "img": "b"},
            "companion_outputs": ["A", "B"],
            "context": "X",
        }
    ]
    assert host.tells(finish("p")) == ["release p a b"]
    assert host.live() == []
    assert host.moves("p") == [
        ("start", "registered", "running"),
        ("defer", "running", "deferred"),
        ("forward", "deferred", "forwarded"),
        ("finish", "forwarded", "done"),
        ("clean", "done", "cleaned"),
    ]
    assert host.moves("a") == [
        ("start", "registered", "running"),
        ("complete", "running", "done"),
        ("clean", "done", "cleaned"),
    ]


def test_a_request_without_companions_passes_through_deferred_and_is_forwarded_at_once(host):
    assert host.tells(register("p", {}), output("p")) == ["forward p"]
    assert host.moves("p") == [("defer", "registered", "deferred"), ("forward", "deferred", "forwarded")]


def test_a_parent_may_finish_without_ever_having_been_forwarded(host):
    host.send(register("p", TWO), start("p"), start("a"), done("b"))
    assert host.tells(finish("p")) == ["abort a", "release p a b"]
    assert host.moves("a")[-2:] == [("fail", "running", "failed"), ("clean", "failed", "cleaned")]
    assert [record.reason for record in host.records if record.trigger == "fail"] == ["parent_ended"]


def test_a_parent_that_is_deferred_cannot_be_finished_for_it_is_owed_its_companions(host):
    host.send(register("p", TWO), output("p"))
    assert host.verdict(finish("p")) == ("ignored", "still_deferred")
    assert host.state("p") == "deferred"


def test_an_answer_says_which_life_it_is_about(host):
    assert host.send(register("p", {"neg": "a"})).life == 1
    assert host.send(start("a")).life == 1
    assert host.send(done("a")).life == 1
    assert host.send(done("a")).life == 1
    assert host.send(start("nobody")).life is None
    assert host.send(abort("nobody")).life is None
    assert host.send(tick(0)).life is None
    assert host.send(error("p")).life == 1
    assert host.send(kv("a")).life == 1


# ---------------------------------------------------------------------------
# R1: a parent ends once
# ---------------------------------------------------------------------------


ENDINGS = {
    "a failure of its own": ([], error("p"), "fail p: error"),
    "a failure of a companion": ([], error("a"), "fail p: companion_failed"),
    "an error finish of a companion": ([], done("a", finish="error"), "fail p: companion_failed"),
    "an abort finish of a companion": ([], done("a", finish="abort"), "fail p: companion_aborted"),
    "an abort of a companion": ([], abort("a"), "fail p: companion_aborted"),
    "an abort of the client": ([], abort("p"), None),
    "its lost replica": ([start("p", 0)], lose(0), "fail p: replica_lost"),
    "a lost replica of a companion": ([start("a", 0)], lose(0), "fail p: replica_lost"),
    "a rejected forward": ([done("a"), done("b"), output("p")], reject("p"), "fail p: forward_rejected"),
    "a total deadline": ([], tick(100), "fail p: total_deadline"),
    "a finish": ([], finish("p"), None),
}


AFTERWARDS = [
    output("p"),
    done("a"),
    done("b"),
    error("p"),
    error("b"),
    reject("p"),
    finish("p"),
    lose(0),
    seal("p"),
    beat("p"),
    kv("a"),
    tick(1000),
]


@pytest.mark.parametrize("ending", ENDINGS)
def test_after_its_end_nothing_more_is_said_about_a_parent(ending):
    before, end, expected = ENDINGS[ending]
    host = Host(total_s=100, tombstone_s=None)
    host.send(register("p", TWO), *before)
    said = host.tells(end)
    assert said[-1] == "release p a b"
    assert [line for line in said if line.startswith("fail")] == ([] if expected is None else [expected])
    for event in AFTERWARDS:
        assert host.tells(event) == []
    assert host.tells(abort("p", "a")) == ["acknowledge p=already_ended a=already_ended"]
    assert host.live() == []


def test_a_client_that_aborted_is_told_of_no_failure(host):
    host.send(register("p", TWO), start("a"))
    assert host.tells(abort("p")) == ["acknowledge p=ended", "abort p a b", "release p a b"]
    assert ("fail", "registered", "failed") in host.moves("p")
    assert next(record.reason for record in host.records if record.trigger == "fail") == "aborted"


def test_of_two_failures_the_first_is_told(host):
    host.send(register("p", TWO), error("a", "first"))
    answer = host.send(error("b", "second"))
    assert (answer.disposition, answer.reason, answer.actions) == ("ignored", "ended", ())


def test_no_forward_follows_a_failure_even_when_the_bundle_is_complete(host):
    host.send(register("p", {"neg": "a"}), done("a"), error("p"))
    assert host.tells(output("p")) == []
