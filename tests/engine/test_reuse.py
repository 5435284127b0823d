"""Ids that are used again, and the bounded memory of those that ended."""

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
    output,
    register,
    reject,
    seal,
    start,
)

# ---------------------------------------------------------------------------
# Ids that are used again
# ---------------------------------------------------------------------------


def test_a_host_that_empties_the_list_of_an_abort_does_not_thereby_report_their_end(host):
    host.send(register("p", {"neg": "a"}))
    _, aborted, _ = host.send(abort("p")).actions
    aborted.request_ids.clear()
    assert host.verdict(register("p", {})) == ("rejected", "may_still_report")
    assert host.verdict(register("q", {"neg": "a"})) == ("rejected", "may_still_report")


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


@pytest.mark.parametrize("life", [0, 1, 63, 64, 65, 2**63 - 1])
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
        (finish("p"), True),
        (finish("p", life=2), False),
        (abort("p"), False),
        (reject("p"), True),
        (reject("p", life=0), False),
        (seal("p"), False),
    ],
    ids=lambda value: repr(value)[:70],
)
def test_only_a_report_of_its_end_in_that_life_says_that_it_has_ended(host, event, settles):
    host.send(register("p", {}), abort("p"), event)
    expected = ("accepted", None) if settles else ("rejected", "may_still_report")
    assert host.verdict(register("p", {})) == expected


@pytest.mark.parametrize("event", [finish("a"), reject("a")], ids=["finished", "rejected"])
def test_what_the_host_says_of_parents_is_no_report_of_a_companion(host, event):
    host.send(register("p", {"neg": "a"}), abort("p"), event)
    assert host.verdict(register("q", {"neg": "a"})) == ("rejected", "may_still_report")


@pytest.mark.parametrize(
    "event", [output("p"), error("p"), finish("p"), reject("p")], ids=lambda event: event.type
)
def test_a_parent_that_starts_after_its_clean_end_may_report(host, event):
    host.send(register("p", {}), finish("p"))
    assert host.tells(start("p", 3)) == ["abort p"]
    assert host.verdict(register("p", {})) == ("rejected", "may_still_report")
    host.send(event)
    assert host.verdict(register("p", {})) == ("accepted", None)


def test_who_reported_and_starts_again_may_report_again(host):
    host.send(register("p", {"neg": "a"}), abort("p"), done("a"))
    assert host.tells(start("a")) == ["abort a"]
    assert host.verdict(register("q", {"neg": "a"})) == ("rejected", "may_still_report")
    assert host.send(register("q", {"neg": "a"}, life=2)).disposition == "accepted"


def test_a_refused_stranger_that_has_ended_may_report(host):
    host.send(register("p", {"neg": "a"}), done("a"), output("p"), finish("p"), register("q", {}))
    assert host.tells(join("q", "img", "a")) == ["abort a", "release a"]
    assert host.verdict(register("r", {"neg": "a"})) == ("rejected", "may_still_report")
    host.send(done("a"))
    assert host.verdict(register("r", {"neg": "a"})) == ("accepted", None)


def test_a_refused_stranger_that_was_never_heard_of_is_not_remembered(host):
    host.send(register("q", {}))
    assert host.tells(join("q", "img", "x")) == ["abort x", "release x"]
    assert host.verdict(register("r", {"neg": "x"})) == ("accepted", None)


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
