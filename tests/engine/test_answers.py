"""What an answer says: who failed, who is aborted and released, under whose name and at which stage."""

import pytest
from helpers import (
    THREE,
    TWO,
    Host,
    abort,
    done,
    error,
    finish,
    forwarded,
    join,
    lose,
    output,
    register,
    reject,
    seal,
    start,
    tick,
)

# ---------------------------------------------------------------------------
# R3, R4: who is aborted and released, under whose name
# ---------------------------------------------------------------------------


def test_an_abort_names_the_parent_first_and_then_all_that_may_still_run_in_role_order(host):
    host.send(register("p", THREE), start("c"), done("b"))
    assert host.tells(abort("p"))[1:] == ["abort p a c", "release p a b c"]


def test_a_parent_that_failed_by_itself_is_not_aborted(host):
    host.send(register("p", THREE), done("b"))
    assert host.tells(error("p")) == ["fail p: error", "abort a c", "release p a b c"]


def test_a_parent_whose_companion_failed_is_aborted_but_not_that_companion(host):
    host.send(register("p", THREE), done("b"))
    assert host.tells(error("c")) == ["fail p: companion_failed", "abort p a", "release p a b c"]


@pytest.mark.parametrize(
    ("finish_reason", "reason"), [("error", "companion_failed"), ("abort", "companion_aborted")]
)
def test_a_companion_that_finished_in_failure_does_not_run_any_more_and_is_not_aborted(
    host, finish_reason, reason
):
    host.send(register("p", THREE))
    assert host.tells(done("b", finish=finish_reason)) == [f"fail p: {reason}", "abort p a c", "release p a b c"]


def test_a_companion_that_was_aborted_still_runs_and_is_aborted(host):
    host.send(register("p", THREE), start("b"))
    assert host.tells(abort("b"))[1:] == ["fail p: companion_aborted", "abort p a b c", "release p a b c"]


def test_a_parent_whose_forward_was_rejected_is_aborted(host):
    forwarded(host)
    assert host.tells(reject("p")) == ["fail p: forward_rejected", "abort p", "release p a b"]


def test_when_nothing_may_still_run_nothing_is_aborted(host):
    host.send(register("p", {"neg": "a"}), done("a"))
    assert host.tells(error("p")) == ["fail p: error", "release p a"]
    forwarded(host, {"neg": "b"})
    assert host.tells(finish("p")) == ["release p b"]


def test_a_parent_that_finished_is_not_aborted(host):
    host.send(register("p", None), join("p", "neg", "a"), start("a"))
    assert host.tells(finish("p")) == ["abort a", "release p a"]


def test_a_group_that_was_never_sealed_ends_with_those_who_joined(host):
    host.send(register("p", None), join("p", "neg", "a"), join("p", "img", "b"), done("a"))
    assert host.tells(error("b")) == ["fail p: companion_failed", "abort p", "release p a b"]


def test_a_failure_is_told_under_the_name_of_the_parent(host):
    host.send(register("p", TWO))
    (fail, *_) = host.send(error("b", "out of memory", error_type="OOM", status_code=507)).actions
    assert fail.to_dict() == {
        "type": "fail_parent",
        "parent_id": "p",
        "life": 1,
        "stage_id": None,
        "reason": "companion_failed",
        "error": "companion b (role img) failed: out of memory",
        "companion_id": "b",
        "error_type": "OOM",
        "status_code": 507,
    }


@pytest.mark.parametrize(
    ("before", "event", "sentence"),
    [
        ([], error("p", "oom"), "oom"),
        ([], error("a", "oom"), "companion a (role neg) failed: oom"),
        ([], done("a", finish="error"), "companion a (role neg) ended with finish reason error"),
        ([], done("b", finish="abort"), "companion b (role img) ended with finish reason abort"),
        ([], abort("b"), "companion b (role img) was aborted before its output came"),
        ([start("p", 1, stage=2)], lose(1, stage=2), "replica 1 of stage 2 was lost"),
        (
            [start("b", 1)],
            lose(1, error="no power"),
            "companion b (role img) ran on replica 1 of stage 0, which was lost: no power",
        ),
        (
            [done("a"), done("b"), output("p")],
            reject("p", "queue full"),
            "the bundle could not be handed to the next stage: queue full",
        ),
        (
            [done("a")],
            tick(9.5),
            "the request did not end within total_s = 9.5 s of its registration; no output yet of img (b)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_failure_is_told_in_a_sentence_that_names_its_cause(before, event, sentence):
    host = Host(total_s=9.5)
    host.send(register("p", TWO), *before)
    assert next(action.error for action in host.send(event).actions if action.type == "fail_parent") == sentence


def test_a_failure_of_the_parent_names_no_companion(host):
    host.send(register("p", TWO))
    (fail, *_) = host.send(error("p", "out of memory", error_type="OOM", status_code=507)).actions
    assert (fail.companion_id, fail.error, fail.error_type, fail.status_code) == (
        None,
        "out of memory",
        "OOM",
        507,
    )


@pytest.mark.parametrize("event", [output("a"), finish("a"), seal("a"), reject("a")], ids=lambda e: e.type)
@pytest.mark.parametrize("before", [[], [start("a")], [done("a")]], ids=["registered", "running", "done"])
def test_a_companion_never_stands_where_a_parent_belongs(host, before, event):
    host.send(register("p", TWO), *before)
    state = host.state("a")
    assert host.verdict(event) == ("ignored", "not_a_parent")
    assert host.tells(event) == []
    assert host.state("a") == state


def test_a_parent_never_stands_where_a_companion_belongs(host):
    host.send(register("p", {"neg": "a"}))
    assert host.verdict(done("p")) == ("ignored", "not_a_companion")
    assert host.verdict(done("p", finish="error")) == ("ignored", "not_a_companion")
    assert host.state("p") == "registered"


def test_a_failure_without_a_word_is_told_in_a_sentence(host):
    host.send(register("p", {}))
    (fail, _) = host.send(error("p", "")).actions
    assert fail.error == "no reason was given"


# ---------------------------------------------------------------------------
# The stage of a failure
# ---------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["p", "a"])
def test_the_stage_of_a_failure_is_that_of_the_failing_event(host, who):
    host.send(register("p", TWO), output("p", stage=1))
    assert host.send(error(who, stage_id=7)).actions[0].stage_id == 7


def test_stage_zero_of_a_failing_event_is_a_stage(host):
    host.send(register("p", TWO), output("p", stage=1))
    assert host.send(error("p", stage_id=0)).actions[0].stage_id == 0


@pytest.mark.parametrize(
    "event", [error("p"), error("a"), done("a", finish="error"), abort("a"), tick(10)], ids=str
)
def test_else_it_is_the_stage_of_the_deferred_output(event):
    host = Host(total_s=10)
    host.send(register("p", TWO), output("p", stage=3), output("p", stage=1))
    assert next(a for a in host.send(event).actions if a.type == "fail_parent").stage_id == 1


@pytest.mark.parametrize(
    "event", [error("p"), error("a"), done("a", finish="error"), abort("a"), tick(10)], ids=str
)
def test_else_it_is_null(event):
    host = Host(total_s=10)
    host.send(register("p", TWO), start("p", 0, stage=4), start("a", 0, stage=4))
    assert next(a for a in host.send(event).actions if a.type == "fail_parent").stage_id is None


def test_the_stage_of_a_lost_replica_is_the_stage_of_the_failure(host):
    host.send(register("p", TWO), output("p", stage=1), start("a", 5, stage=2))
    assert host.send(lose(5, stage=2)).actions[0].stage_id == 2
