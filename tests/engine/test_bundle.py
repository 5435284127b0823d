"""The bundle: complete and in role order, or not sent; what it waits for, and what counts as done."""

import pytest
from helpers import (
    TWO,
    Payload,
    beat,
    bundle,
    done,
    finish,
    forwarded,
    join,
    kv,
    output,
    register,
    seal,
    start,
)

# ---------------------------------------------------------------------------
# R2: the bundle is complete and in role order, or it is not sent
# ---------------------------------------------------------------------------


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
