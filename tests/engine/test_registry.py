"""The registry's rules, one story each."""

import copy
import json
import logging

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
    lose,
    output,
    register,
    reject,
    seal,
    start,
    tick,
    told,
)

from cfg_fsm import Limits, Registry, parse_event
from cfg_fsm.engine.group import Group
from cfg_fsm.errors import BadLine, CfgFsmError, MissingExtra, NotAnEvent, ReentrantDispatch

TWO = {"neg": "a", "img": "b"}
THREE = {"neg": "a", "img": "b", "txt": "c"}


@pytest.fixture
def host():
    return Host()


def forwarded(host, companions=None, **fields):
    """``p`` is forwarded, with all of its companions done."""
    companions = TWO if companions is None else companions
    host.send(register("p", companions, **fields), *(done(companion) for companion in companions.values()))
    assert host.tells(output("p")) == ["forward p"]


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


def test_events_may_come_as_mappings_through_parse_event():
    registry = Registry()
    answers = registry.dispatch_many(
        [
            parse_event({"type": "parent_registered", "parent_id": "p", "companions": {}}),
            parse_event('{"type": "parent_output_ready", "parent_id": "p", "engine_outputs": [1]}'),
        ]
    )
    assert [told(answer) for answer in answers] == [[], ["forward p"]]


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


# ---------------------------------------------------------------------------
# R2: the bundle is complete and in role order, or it is not sent
# ---------------------------------------------------------------------------


def bundle(answer):
    (forward,) = answer.actions
    return forward.companion_request_ids, forward.companion_outputs


@pytest.mark.parametrize("arrival", ["abcp", "cbap", "pabc", "pcba", "bpca", "apcb"])
def test_the_bundle_stands_in_the_order_of_registration_whatever_the_order_of_arrival(host, arrival):
    host.send(register("p", {"z": "a", "y": "b", "x": "c"}))
    events = {who: output("p") if who == "p" else done(who, who.upper()) for who in arrival}
    for who in arrival[:-1]:
        assert host.tells(events[who]) == []
    ids, outputs = bundle(host.send(events[arrival[-1]]))
    assert list(ids.items()) == [("z", "a"), ("y", "b"), ("x", "c")]
    assert outputs == ["A", "B", "C"]


def test_roles_of_an_unsealed_group_stand_in_the_order_in_which_they_joined(host):
    host.send(register("p"), output("p"), join("p", "z", "a"), join("p", "a", "b"), done("b", "B"), done("a", "A"))
    ids, outputs = bundle(host.send(seal("p")))
    assert list(ids.items()) == [("z", "a"), ("a", "b")]
    assert outputs == ["A", "B"]


def test_an_output_of_none_is_an_output(host):
    host.send(register("p", TWO), output("p", None), done("b", None))
    assert bundle(host.send(done("a", None))) == (TWO, [None, None])


def test_unknown_companions_are_not_zero_companions(host):
    host.send(register("p", None))
    assert host.tells(output("p")) == []
    assert host.state("p") == "deferred"
    assert host.tells(join("p", "neg", "a"), done("a")) == []
    assert host.tells(seal("p")) == ["forward p"]


def test_sealing_an_unsealed_group_without_companions_forwards_its_deferred_parent(host):
    assert host.tells(register("p", None), output("p"), seal("p")) == ["forward p"]


def test_sealing_does_not_forward_a_parent_whose_output_is_not_here(host):
    assert host.tells(register("p", None), start("p"), seal("p")) == []
    assert host.tells(output("p")) == ["forward p"]


def test_a_group_is_sealed_once(host):
    host.send(register("p", None))
    assert host.verdict(seal("p")) == ("accepted", None)
    assert host.verdict(seal("p")) == ("ignored", "already_sealed")
    host.send(register("q", {}))
    assert host.verdict(seal("q")) == ("ignored", "already_sealed")


def test_a_change_of_what_a_host_was_handed_does_not_reach_the_registry(host):
    host.send(register("p", TWO, streaming=True), done("a", "A"), done("b", "B"))
    (first,) = host.send(output("p", segment=True)).actions
    first.companion_request_ids.clear()
    first.companion_outputs.clear()
    assert bundle(host.send(output("p"))) == (TWO, ["A", "B"])
    (released,) = host.send(finish("p")).actions
    released.request_ids.clear()
    assert host.live() == []
    assert host.verdict(kv("a")) == ("ignored", "ended")


def test_a_host_that_empties_the_list_of_an_abort_does_not_thereby_report_their_end(host):
    host.send(register("p", {"neg": "a"}))
    _, aborted, _ = host.send(abort("p")).actions
    aborted.request_ids.clear()
    assert host.verdict(register("p", {})) == ("rejected", "may_still_report")
    assert host.verdict(register("q", {"neg": "a"})) == ("rejected", "may_still_report")


# ---------------------------------------------------------------------------
# Waiting: deferred, replaced, forwarded again
# ---------------------------------------------------------------------------


def test_while_deferred_a_newer_output_replaces_the_older_with_its_stage_and_context(host):
    host.send(register("p", {"neg": "a"}), output("p", "old", stage=0, context="then"))
    assert host.verdict(output("p", "new", stage=2, context="now")) == ("accepted", None)
    (forward,) = host.send(done("a")).actions
    assert (forward.engine_outputs, forward.stage_id, forward.context) == ("new", 2, "now")


def test_the_context_of_a_replaced_output_is_not_kept(host):
    host.send(register("p", {"neg": "a"}), output("p", "old", context="then"), output("p", "new"))
    (forward,) = host.send(done("a")).actions
    assert forward.context is None


def test_a_second_output_of_a_turn_based_parent_after_its_forward_is_ignored(host):
    forwarded(host)
    assert host.verdict(output("p", "again")) == ("ignored", "already_forwarded")
    assert host.state("p") == "forwarded"


def test_a_streaming_parent_is_forwarded_again_in_full(host):
    host.send(register("p", TWO, streaming=True), done("a", "A"), done("b", "B"))
    for number in range(3):
        (forward,) = host.send(output("p", number, stage=number, context=-number, segment=True)).actions
        assert (forward.engine_outputs, forward.stage_id, forward.context) == (number, number, -number)
        assert forward.companion_outputs == ["A", "B"]
    assert host.moves("p")[:4] == [
        ("defer", "registered", "deferred"),
        ("forward", "deferred", "forwarded"),
        ("defer", "forwarded", "deferred"),
        ("forward", "deferred", "forwarded"),
    ]
    assert host.tells(finish("p")) == ["release p a b"]


def test_a_streaming_parent_waits_for_its_first_bundle_like_any_other(host):
    host.send(register("p", {"neg": "a"}, streaming=True))
    assert host.tells(output("p", 1, segment=True)) == []
    assert host.tells(output("p", 2, segment=True)) == []
    (forward,) = host.send(done("a")).actions
    assert forward.engine_outputs == 2


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


# ---------------------------------------------------------------------------
# Aborts of the client
# ---------------------------------------------------------------------------


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
# R6: done means that its output is here
# ---------------------------------------------------------------------------


def test_kv_ready_is_progress_and_never_completion(host):
    host.send(register("p", {"neg": "a"}), output("p"), start("a"))
    assert host.verdict(kv("a")) == ("accepted", None)
    assert host.state("a") == "running"
    assert host.view("p").missing == {"neg": "a"}
    assert host.tells(done("a")) == ["forward p"]


def test_kv_ready_of_a_companion_that_was_not_started_is_ignored(host):
    host.send(register("p", {"neg": "a"}))
    assert host.verdict(kv("a")) == ("ignored", "not_running")
    assert host.verdict(beat("a")) == ("ignored", "not_running")
    assert host.state("a") == "registered"


def test_heartbeats_of_a_parent_are_taken_in_until_its_output_is_here(host):
    host.send(register("p", {"neg": "a"}))
    assert host.verdict(beat("p")) == host.verdict(kv("p")) == ("accepted", None)
    host.send(start("p"))
    assert host.verdict(beat("p")) == host.verdict(kv("p")) == ("accepted", None)
    host.send(output("p"))
    assert host.verdict(beat("p")) == host.verdict(kv("p")) == ("ignored", "not_running")
    host.send(done("a"))
    assert host.verdict(beat("p")) == host.verdict(kv("p")) == ("ignored", "not_running")


def test_the_first_output_wins(host):
    first, second = Payload("first"), Payload("second")
    host.send(register("p", {"neg": "a"}), done("a", first))
    assert host.verdict(done("a", second)) == ("ignored", "already_done")
    (forward,) = host.send(output("p")).actions
    assert forward.companion_outputs[0] is first


def test_payloads_reach_the_host_by_reference(host):
    own, context, first, second = (Payload(name) for name in "PXAB")
    host.send(register("p", TWO), done("a", first), done("b", second))
    (forward,) = host.send(output("p", own, context=context)).actions
    assert forward.engine_outputs is own
    assert forward.context is context
    assert forward.companion_outputs[0] is first
    assert forward.companion_outputs[1] is second


@pytest.mark.parametrize("how", ["stop", "length"])
def test_a_companion_that_stopped_or_ran_to_its_length_has_a_result(host, how):
    host.send(register("p", {"neg": "a"}), output("p"))
    assert host.tells(done("a", finish=how)) == ["forward p"]


def test_a_companion_may_be_done_without_having_been_started(host):
    host.send(register("p", {"neg": "a"}), done("a"))
    assert host.state("a") == "done"


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


# ---------------------------------------------------------------------------
# R9: registration is all or nothing
# ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (register("q", {"neg": "x", "img": "x"}), "duplicate_id"),
        (register("q", {"neg": "q"}), "duplicate_id"),
        (register("q", {"neg": "x", "img": "a"}), "id_in_use"),
        (register("q", {"neg": "x", "img": "p"}), "id_in_use"),
        (register("a", {}), "id_in_use"),
        (register("a", {}, life=9), "id_in_use"),
        (register("p", {"neg": "a"}, streaming=True), "different_registration"),
        (register("p", {"neg": "a"}, limits=Limits(total_s=1)), "different_registration"),
        (register("p", {"neg": "a"}, life=2), "different_registration"),
        (register("p", {"neg": "x"}), "different_registration"),
        (register("p", {"img": "a"}), "different_registration"),
        (register("p", {"neg": "a", "img": "x"}), "different_registration"),
        (register("p", {}), "different_registration"),
        (register("p", None), "different_registration"),
        (join("u", "neg", "x"), "role_in_use"),
        (join("u", "img", "c"), "id_in_use"),
        (join("u", "img", "a"), "id_in_use"),
        (join("u", "img", "p"), "id_in_use"),
        (join("u", "img", "u"), "id_in_use"),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value)[:90],
)
def test_a_bad_registration_is_rejected_whole_and_changes_nothing(host, event, reason):
    host.send(register("p", {"neg": "a"}), register("u", None), join("u", "neg", "c"))
    before = host.registry.requests()
    answer = host.send(event)
    assert (answer.disposition, answer.reason, answer.actions) == ("rejected", reason, ())
    assert host.registry.requests() == before
    assert host.verdict(beat("x")) == ("ignored", "unknown")


def test_a_registration_delivered_again_is_ignored(host):
    limits = Limits(total_s=5)
    event = register("p", TWO, streaming=True, limits=limits, life=3)
    host.send(event, start("a"), done("b"))
    before = host.registry.requests()
    assert host.verdict(event) == ("ignored", "duplicate")
    assert host.verdict(event.model_copy(update={"life": None, "at": 0.0})) == ("ignored", "duplicate")
    assert host.verdict(event.model_copy(update={"limits": Limits(total_s=5.0)})) == ("ignored", "duplicate")
    assert host.registry.requests() == before


def test_the_order_of_roles_is_part_of_a_registration(host):
    host.send(register("p", {"neg": "a", "img": "b"}))
    assert host.verdict(register("p", {"img": "b", "neg": "a"})) == ("rejected", "different_registration")


def test_an_unsealed_registration_is_the_same_after_companions_joined_and_it_was_sealed(host):
    host.send(register("p", None), join("p", "neg", "a"))
    assert host.verdict(register("p", None)) == ("ignored", "duplicate")
    assert host.verdict(register("p", {"neg": "a"})) == ("rejected", "different_registration")
    host.send(seal("p"))
    assert host.verdict(register("p", None)) == ("ignored", "duplicate")


def test_a_companion_confirms_that_it_was_announced(host):
    host.send(register("p", TWO))
    assert host.verdict(join("p", "neg", "a")) == ("ignored", "duplicate")
    host.send(done("a"))
    assert host.verdict(join("p", "neg", "a")) == ("ignored", "duplicate")
    assert host.state("a") == "done"


def test_a_companion_joins_an_unsealed_group_once(host):
    host.send(register("p", None), start("p"), output("p"))
    assert host.verdict(join("p", "neg", "a")) == ("accepted", None)
    assert host.verdict(join("p", "neg", "a")) == ("ignored", "duplicate")
    assert host.state("a") == "registered"


def test_max_requests_counts_parents_and_companions():
    host = Host(max_requests=4)
    assert host.verdict(register("p", TWO)) == ("accepted", None)
    assert host.verdict(register("q", {"neg": "c"})) == ("rejected", "registry_full")
    assert host.live() == ["p", "a", "b"]
    assert host.verdict(register("q", None)) == ("accepted", None)
    assert host.verdict(join("q", "neg", "c")) == ("rejected", "registry_full")
    assert host.verdict(register("r", {})) == ("rejected", "registry_full")
    host.send(finish("p"))
    assert host.verdict(join("q", "neg", "c")) == ("accepted", None)


def test_a_duplicate_is_ignored_even_when_the_registry_is_full():
    host = Host(max_requests=1)
    host.send(register("p", {}))
    assert host.verdict(register("p", {})) == ("ignored", "duplicate")


def test_max_companions_per_parent_holds_for_announced_and_for_joining_companions():
    host = Host(max_companions_per_parent=2)
    assert host.verdict(register("p", THREE)) == ("rejected", "too_many_companions")
    assert host.verdict(register("p", TWO)) == ("accepted", None)
    host.send(register("q", None), join("q", "x", "c"), join("q", "y", "d"))
    assert host.verdict(join("q", "z", "e")) == ("rejected", "too_many_companions")
    assert host.live() == ["p", "a", "b", "q", "c", "d"]


def test_a_parent_may_bring_its_own_number_of_companions():
    host = Host(max_companions_per_parent=1)
    assert host.verdict(register("p", TWO, limits=Limits(max_companions_per_parent=2))) == ("accepted", None)
    host.send(register("q", None, limits=Limits(max_companions_per_parent=2)))
    assert host.verdict(join("q", "x", "c")) == host.verdict(join("q", "y", "d")) == ("accepted", None)
    assert host.verdict(join("q", "z", "e")) == ("rejected", "too_many_companions")
    assert host.verdict(register("r", {"x": "f"}, limits=Limits(total_s=1))) == ("accepted", None)
    assert host.verdict(register("s", {"x": "g", "y": "h"}, limits=Limits(total_s=1))) == (
        "rejected",
        "too_many_companions",
    )


def test_a_parent_cannot_bring_its_own_size_of_the_registry():
    host = Host(max_requests=1)
    assert host.verdict(register("p", {"neg": "a"}, limits=Limits(max_requests=9))) == (
        "rejected",
        "registry_full",
    )


# ---------------------------------------------------------------------------
# Ids that are used again
# ---------------------------------------------------------------------------


def test_ids_that_ended_cleanly_may_be_used_again_at_once_as_a_new_life(host):
    for life in (1, 2, 3):
        assert host.send(register("p", TWO)).life == life
        host.send(done("a"), done("b"), output("p"))
        (released,) = host.send(finish("p")).actions
        assert released.request_ids == ["p", "a", "b"]


def test_the_first_life_is_one(host):
    assert host.send(register("p", {})).life == 1


def test_the_host_may_number_the_lives_itself(host):
    assert host.send(register("p", {}, life=0)).life == 0
    host.send(finish("p"))
    assert host.send(register("p", {}, life=7)).life == 7
    host.send(finish("p"))
    assert host.send(register("p", {})).life == 8


@pytest.mark.parametrize("life", [0, 1, 63, 64, 65, 10**30])
def test_a_life_may_be_any_number_from_zero_on(host, life):
    assert host.send(register("p", {"neg": "a"}, life=life)).life == life
    assert host.send(start("a")).life == life
    assert host.send(done("a")).life == life
    assert host.view("a").life == life
    (forward,) = host.send(output("p")).actions
    assert forward.life == life


@pytest.mark.parametrize("life", [0, 4, 5])
def test_a_life_must_be_greater_than_the_last_one(host, life):
    host.send(register("p", {}, life=5), finish("p"))
    assert host.verdict(register("p", {}, life=life)) == ("rejected", "life_not_greater")
    assert host.live() == []
    assert host.verdict(register("p", {}, life=6)) == ("accepted", None)


def test_an_id_that_was_told_to_abort_may_not_be_used_again_until_it_reported(host):
    host.send(register("p", TWO), done("b"), abort("p"))
    for event in (register("p", {}), register("q", {"neg": "a"}), register("a", {})):
        assert host.verdict(event) == ("rejected", "may_still_report")
    assert host.verdict(register("q", {"neg": "b"})) == ("accepted", None)
    host.send(output("p"))
    assert host.verdict(register("p", {"neg": "a"})) == ("rejected", "may_still_report")
    host.send(done("a"))
    assert host.verdict(register("p", {"neg": "a"})) == ("accepted", None)


def test_an_id_that_may_still_report_may_not_join_a_group(host):
    host.send(register("p", {"neg": "a"}), abort("p"), register("q", None, life=4))
    assert host.verdict(join("q", "neg", "a")) == ("rejected", "may_still_report")
    assert host.verdict(join("q", "neg", "a", life=4)) == ("accepted", None)


@pytest.mark.parametrize(
    ("event", "settles"),
    [
        (output("p"), True),
        (output("p", segment=True), False),
        (error("p"), True),
        (output("p", life=1), True),
        (output("p", life=2), False),
        (error("p", life=0), False),
        (start("p"), False),
        (beat("p"), False),
        (kv("p"), False),
        (finish("p"), False),
        (abort("p"), False),
        (reject("p"), False),
        (seal("p"), False),
    ],
    ids=lambda value: repr(value)[:70],
)
def test_only_an_output_or_a_failure_of_that_life_says_that_it_has_ended(host, event, settles):
    host.send(register("p", {}), abort("p"), event)
    expected = ("accepted", None) if settles else ("rejected", "may_still_report")
    assert host.verdict(register("p", {})) == expected


@pytest.mark.parametrize("how", ["stop", "length", "abort", "error"])
def test_a_late_output_of_a_companion_says_that_it_has_ended_however_it_finished(host, how):
    host.send(register("p", {"neg": "a"}), error("p"))
    assert host.verdict(register("q", {"neg": "a"})) == ("rejected", "may_still_report")
    host.send(done("a", finish=how))
    assert host.verdict(register("q", {"neg": "a"})) == ("accepted", None)


@pytest.mark.parametrize("finish_reason", ["abort", "error"])
def test_a_companion_that_failed_by_its_own_report_may_be_used_again_at_once(host, finish_reason):
    host.send(register("p", {"neg": "a"}), done("a", finish=finish_reason))
    assert host.verdict(register("q", {"neg": "a"})) == ("accepted", None)
    host.send(error("a"))
    assert host.verdict(register("r", {"neg": "a"})) == ("accepted", None)


def test_an_id_that_may_still_report_may_be_used_again_at_once_with_a_life(host):
    host.send(register("p", TWO), abort("p"))
    assert host.send(register("p", TWO, life=2)).disposition == "accepted"
    assert host.verdict(done("a", life=1)) == ("ignored", "other_life")
    assert host.state("a") == "registered"
    assert host.verdict(done("a", life=2)) == ("accepted", None)


def test_an_id_that_may_still_report_may_be_used_again_when_its_tombstone_has_gone():
    host = Host(tombstone_s=10)
    host.send(register("p", {}, at=5.0), abort("p"))
    assert host.verdict(register("p", {}, at=14.9)) == ("rejected", "may_still_report")
    answer = host.send(register("p", {}, at=15.0))
    assert (answer.disposition, answer.life) == ("accepted", 1)


def test_a_registration_without_a_life_after_a_reuse_continues_the_count(host):
    host.send(register("p", {}), abort("p"), register("p", {}, life=10), output("p"), finish("p"))
    assert host.send(register("p", {})).life == 11


def test_an_id_may_be_a_parent_in_one_life_and_a_companion_in_another(host):
    host.send(register("p", {"neg": "a"}), done("a"), output("p"), finish("p"))
    assert host.verdict(register("a", {"neg": "p"})) == ("accepted", None)
    assert host.verdict(output("p")) == ("ignored", "not_a_parent")
    host.send(done("p"), output("a"))
    assert host.tells(finish("a")) == ["release a p"]


# ---------------------------------------------------------------------------
# Tombstones: bounded memory of ended ids
# ---------------------------------------------------------------------------


def test_an_ended_id_is_remembered_for_a_time():
    host = Host(tombstone_s=10)
    host.send(register("p", {}), finish("p", at=5.0))
    assert host.verdict(beat("p", at=14.999)) == ("ignored", "ended")
    assert host.verdict(beat("p", at=15.0)) == ("ignored", "unknown")
    assert host.registry.counters()["tombstones"] == 0


def test_an_ended_id_is_remembered_for_ten_minutes_by_default():
    host = Host()
    host.send(register("p", {}), finish("p"))
    assert host.verdict(beat("p", at=599.9)) == ("ignored", "ended")
    assert host.verdict(beat("p", at=600.0)) == ("ignored", "unknown")


def test_without_a_time_an_ended_id_is_remembered_until_others_push_it_out():
    host = Host(tombstone_s=None, tombstones=2)
    host.send(register("p", {}), finish("p"), register("q", {}), finish("q"))
    assert host.verdict(beat("p", at=1e12)) == ("ignored", "ended")
    host.send(register("r", {}), finish("r"))
    assert host.verdict(beat("p")) == ("ignored", "unknown")
    assert host.verdict(beat("q")) == ("ignored", "ended")


def test_no_more_ids_are_remembered_than_the_limit_says():
    host = Host(tombstones=3)
    for number in range(10):
        host.send(register(f"p{number}", {"neg": f"c{number}"}), finish(f"p{number}"))
    assert host.registry.counters()["tombstones"] == 3
    assert host.verdict(beat("p9")) == host.verdict(beat("c9")) == host.verdict(beat("c8")) == ("ignored", "ended")
    assert host.verdict(beat("p8")) == ("ignored", "unknown")


def test_no_id_need_be_remembered_at_all():
    host = Host(tombstones=0)
    host.send(register("p", {"neg": "a"}), abort("p"))
    assert host.registry.counters()["tombstones"] == 0
    assert host.tells(start("a")) == []
    assert host.send(register("p", {"neg": "a"})).life == 1


def test_a_tombstone_goes_when_its_id_is_used_again_and_leaves_the_others(host):
    host.send(register("p", {"neg": "a"}), finish("p"))
    assert host.registry.counters()["tombstones"] == 2
    host.send(register("p", {}))
    assert host.registry.counters()["tombstones"] == 1
    assert host.verdict(output("a")) == ("ignored", "ended")


def test_a_rejected_registration_leaves_the_tombstones(host):
    host.send(register("p", {"neg": "a"}), abort("p"))
    host.send(register("p", {}), register("q", {"neg": "a"}))
    assert host.registry.counters()["tombstones"] == 2
    assert host.tells(start("a")) == ["abort a"]


# ---------------------------------------------------------------------------
# Replicas
# ---------------------------------------------------------------------------


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


# ---------------------------------------------------------------------------
# R10, R11: deadlines
# ---------------------------------------------------------------------------


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
    monkeypatch.setattr(Group, "earliest", look)
    monkeypatch.setattr(Group, "first_due", look)
    assert host.tells(tick(99.9)) == []


# ---------------------------------------------------------------------------
# Views and counters
# ---------------------------------------------------------------------------


def test_the_requests_are_shown_group_by_group_in_the_order_of_registration():
    host = Host(start_s=5, total_s=60)
    host.send(register("q", None, at=1.0), register("p", {"neg": "a"}, life=4), join("q", "img", "b", at=2.0))
    host.send(start("a", 3, stage=1, at=4.0), done("b"), tick(6.5))
    assert [view.to_dict() for view in host.registry.requests()] == [
        {
            "request_id": "q",
            "machine": "parent",
            "parent_id": "q",
            "role": None,
            "life": 1,
            "state": "registered",
            "age_s": 5.5,
            "missing": {},
            "sealed": False,
            "replica": None,
            "deadline": 61.0,
        },
        {
            "request_id": "b",
            "machine": "companion",
            "parent_id": "q",
            "role": "img",
            "life": 1,
            "state": "done",
            "age_s": 2.5,
            "missing": {},
            "sealed": False,
            "replica": None,
            "deadline": None,
        },
        {
            "request_id": "p",
            "machine": "parent",
            "parent_id": "p",
            "role": None,
            "life": 4,
            "state": "registered",
            "age_s": 5.5,
            "missing": {"neg": "a"},
            "sealed": True,
            "replica": None,
            "deadline": 61.0,
        },
        {
            "request_id": "a",
            "machine": "companion",
            "parent_id": "p",
            "role": "neg",
            "life": 4,
            "state": "running",
            "age_s": 2.5,
            "missing": {},
            "sealed": True,
            "replica": (1, 3),
            "deadline": None,
        },
    ]


def test_the_age_counts_from_the_entry_into_the_state_and_not_from_the_last_event(host):
    host.send(register("p", {"neg": "a"}), output("p", at=2.0), output("p", at=5.0), start("a", at=6.0))
    host.send(start("a", at=7.0), beat("a", at=8.0))
    assert host.view("p").age_s == 6.0
    assert host.view("a").age_s == 2.0


def test_no_view_shows_a_payload(host):
    host.send(register("p", TWO), output("p", Payload("P"), context=Payload("X")), done("a", Payload("A")))
    shown = repr(host.registry.requests()) + repr([view.to_dict() for view in host.registry.requests()])
    assert "SECRET" not in shown + repr(host.registry.counters())


def test_a_view_is_frozen(host):
    host.send(register("p", TWO))
    view = host.view("p")
    with pytest.raises(AttributeError):
        view.state = "done"
    view.missing.clear()
    assert host.view("p").missing == TWO


def test_the_counters_say_what_is_there_and_what_happened():
    host = Host(total_s=100)
    assert host.registry.counters() == {
        "live": 0,
        "live_parents": 0,
        "live_companions": 0,
        "deadlines": 0,
        "tombstones": 0,
        "events": 0,
        "accepted": 0,
        "ignored": {},
        "rejected": {},
        "parents_registered": 0,
        "forwards": 0,
        "finished": 0,
        "failed": {},
        "observer_errors": 0,
    }
    host.send(
        register("p", TWO), register("q", {}, streaming=True), register("r", {}), register("s", {"neg": "c"})
    )
    host.send(register("p", TWO), register("p", {}), output("q"), output("q"), output("x"), kv("x"), abort("x"))
    host.send(finish("q"), error("a"), abort("r"), lose(9), start("p"))
    assert host.registry.counters() == {
        "live": 2,
        "live_parents": 1,
        "live_companions": 1,
        "deadlines": 1,
        "tombstones": 5,
        "events": 16,
        "accepted": 9,
        "ignored": {"duplicate": 1, "ended": 1, "nothing_bound": 1, "nothing_ended": 1, "unknown": 2},
        "rejected": {"different_registration": 1},
        "parents_registered": 4,
        "forwards": 2,
        "finished": 1,
        "failed": {"aborted": 1, "companion_failed": 1},
        "observer_errors": 0,
    }


# ---------------------------------------------------------------------------
# Observers
# ---------------------------------------------------------------------------


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


def test_events_may_be_any_iterable_and_each_has_its_answer():
    answers = Registry().dispatch_many(event for event in (register("p", {}), kv("x"), output("p")))
    assert [answer.disposition for answer in answers] == ["accepted", "ignored", "accepted"]


@pytest.mark.parametrize("make", [Registry.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_of_a_registry_goes_its_own_way(make):
    registry = Registry(Limits(total_s=10, start_s=5))
    registry.dispatch_many([register("p", TWO), register("q", {}), abort("q"), start("p", 0), done("a", "A")])
    other = make(registry)
    assert other.requests() == registry.requests()
    assert other.counters() == registry.counters()
    assert told(other.dispatch(error("p"))) == ["fail p: error", "abort b", "release p a b"]
    assert other.next_deadline() is None
    assert registry.next_deadline() == 5.0
    assert told(other.dispatch(start("q"))) == told(registry.dispatch(start("q"))) == ["abort q"]
    assert told(registry.dispatch_many([output("p"), done("b", "B")])[-1]) == ["forward p"]


def test_a_copy_shares_the_payloads_and_nothing_else():
    registry, own, first = Registry(), Payload("P"), Payload("A")
    registry.dispatch_many([register("p", TWO), output("p", own, context=own), done("a", first)])
    (forward,) = registry.copy().dispatch(done("b")).actions
    assert forward.engine_outputs is forward.context is own
    assert forward.companion_outputs[0] is first
    assert registry.requests()[0].missing == {"img": "b"}


def test_a_copy_has_no_observers(host):
    host.send(register("p", {}))
    seen = len(host.records)
    host.registry.copy().dispatch(output("p"))
    assert len(host.records) == seen


def test_a_registry_is_printed_as_what_is_live_in_it(host):
    host.send(register("p", TWO), register("q", {}))
    assert repr(host.registry) == "<Registry: 2 live parents, 2 companions>"


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


def test_the_errors_of_the_package_say_where_and_what_as_attributes():
    line = BadLine("trace.jsonl", 7, "no such event")
    assert (line.path, line.line, line.why, str(line)) == (
        "trace.jsonl",
        7,
        "no such event",
        "trace.jsonl:7: no such event",
    )
    extra = MissingExtra("drawing", "render")
    assert extra.extra == "render"
    assert "pip install 'cfg_fsm[render]'" in str(extra)
    assert isinstance(line, CfgFsmError)
    assert isinstance(extra, CfgFsmError)


def test_what_is_no_event_stops_a_batch_before_it_begins():
    registry = Registry()
    with pytest.raises(NotAnEvent):
        registry.dispatch_many([register("p", {}), "parent_finished"])
    assert registry.counters()["events"] == 0


def test_what_cannot_be_called_is_no_observer():
    with pytest.raises(TypeError, match="called with each record"):
        Registry(observers=["audit.jsonl"])


def test_the_lives_of_a_parent_count_on_though_it_was_a_companion_in_between(host):
    for life in (1, 2):
        assert host.send(register("p", {}), finish("p")).life == life
    host.send(register("q", {"neg": "p"}), done("p"), finish("q"))
    assert host.send(register("p", {})).life == 3
    assert host.verdict(error("p", life=2)) == ("ignored", "other_life")


def test_the_hosts_number_of_a_life_is_greater_than_the_last_though_the_id_was_a_companion_in_between(host):
    host.send(register("p", {}, life=7), finish("p"))
    host.send(register("q", {"neg": "p"}), done("p"), finish("q"))
    assert host.verdict(register("p", {}, life=7)) == ("rejected", "life_not_greater")
    assert host.send(register("p", {}, life=8)).life == 8


def test_of_a_life_to_come_nothing_is_known_yet(host):
    host.send(register("p", {"neg": "a"}), abort("p"))
    assert host.tells(start("a", life=2)) == []
    assert host.verdict(start("a", life=2)) == ("ignored", "unknown")
    assert host.tells(start("a", life=1)) == ["abort a"]


def test_a_registration_is_the_same_if_its_limits_come_to_the_same():
    host = Host(total_s=5)
    host.send(register("p", {}))
    assert host.verdict(register("p", {}, limits=Limits(total_s=5))) == ("ignored", "duplicate")
    assert host.verdict(register("p", {}, limits=Limits(total_s=6))) == ("rejected", "different_registration")


def test_a_failure_without_a_word_is_told_in_a_sentence(host):
    host.send(register("p", {}))
    (fail, _) = host.send(error("p", "")).actions
    assert fail.error == "no reason was given"


class Restless:
    """A payload whose finalizer dispatches."""

    def __init__(self, act):
        self.act = act

    def __del__(self):
        self.act()


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


def test_what_a_class_says_of_its_own_name_stops_nothing():
    class Meta(type):
        @property
        def __name__(cls):
            raise RuntimeError("no name")

    class Nameless(metaclass=Meta):
        pass

    host = Host()
    assert host.verdict(register("p", {}), output("p", Nameless())) == ("accepted", None)
