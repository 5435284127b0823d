"""With ``confirm_s`` what an aborted request holds is freed when its end is confirmed, and in time in any case."""

import weakref

import pytest
from helpers import (
    THREE,
    TWO,
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

from cfg_fsm import Limits, Registry


def aborted(companions=None, *, at=1.0, **limits):
    """A host with a group on replica 0 that the client has aborted: p and its companions wait."""
    companions = {"neg": "a"} if companions is None else companions
    host = Host(confirm_s=10, **limits)
    host.send(register("p", companions), *(start(request, 0) for request in ("p", *companions.values())))
    host.send(abort("p", at=at))
    return host


def waiting(host):
    """Who waits, in the order in which they would be released without a report."""
    return [one.request_id for one in host.registry.unconfirmed() if one.waits_until is not None]


# -- who waits ------------------------------------------------------------------------------------------------


def test_who_is_told_to_abort_is_not_released_with_the_group():
    host = Host(confirm_s=10)
    host.send(register("p", THREE), done("b"), start("p", 0))
    assert host.tells(abort("p")) == ["acknowledge p=ended", "abort p a c", "release b"]
    assert host.registry.counters()["waiting"] == 3


def test_nothing_is_released_if_all_wait():
    host = Host(confirm_s=10)
    host.send(register("p", {"neg": "a"}))
    assert host.tells(abort("p")) == ["acknowledge p=ended", "abort p a"]


def test_without_it_nobody_waits(host):
    host.send(register("p", TWO))
    assert host.tells(abort("p")) == ["acknowledge p=ended", "abort p a b", "release p a b"]
    assert host.registry.counters()["waiting"] == 0
    assert host.registry.next_deadline() is None


@pytest.mark.parametrize(
    ("end", "answer"),
    [
        (error("p"), ["fail p: error", "abort a", "release p b"]),
        (error("a"), ["fail p: companion_failed", "abort p", "release a b"]),
        (done("a", finish="abort"), ["fail p: companion_aborted", "abort p", "release a b"]),
        (lose(1), ["fail p: replica_lost", "abort p", "release a b"]),
        (lose(0), ["fail p: replica_lost", "abort a", "release p b"]),
        (tick(20.0), ["fail p: total_deadline", "abort p a", "release b"]),
        (finish("p"), ["abort a", "release p b"]),
        (abort("a"), ["acknowledge a=ended", "fail p: companion_aborted", "abort p a", "release b"]),
    ],
    ids=[
        "failure",
        "failed companion",
        "bad finish",
        "lost companion",
        "lost parent",
        "deadline",
        "finish",
        "abort",
    ],
)
def test_whoever_need_not_be_told_is_released_at_once(end, answer):
    host = Host(confirm_s=10, total_s=20)
    host.send(register("p", TWO), start("p", 0), start("a", 1), done("b"))
    assert host.tells(end) == answer


def test_a_group_of_which_nobody_is_told_to_abort_is_released_whole():
    host = Host(confirm_s=10)
    host.send(register("p", {"neg": "a"}), done("a"), output("p"))
    assert host.tells(finish("p")) == ["release p a"]
    assert host.registry.next_deadline() is None


def test_a_parent_may_bring_its_own_time_and_that_alone():
    host = Host(confirm_s=10)
    host.send(register("p", {}, limits=Limits(confirm_s=2)), register("q", {}, limits=Limits(total_s=50)))
    host.send(abort("q", "p"))
    assert host.registry.next_deadline() == 2.0
    assert host.tells(tick(2.0)) == ["release p"]
    assert host.registry.next_deadline() == 10.0


def test_a_parent_may_bring_a_time_where_the_registry_has_none(host):
    host.send(register("p", {}, limits=Limits(confirm_s=2)), register("q", {}))
    assert host.tells(abort("p", "q")) == ["acknowledge p=ended q=ended", "abort p", "abort q", "release q"]


# -- released by its report -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "report",
    [output("p"), error("p"), finish("p"), reject("p"), output("p", life=1), finish("p", life=1)],
    ids=lambda event: f"{event.type} {event.life}",
)
def test_a_parent_is_released_in_the_step_of_its_report(report):
    host = aborted()
    assert host.tells(report) == ["release p"]
    assert host.verdict(report) == ("ignored", "ended")
    assert waiting(host) == ["a"]


@pytest.mark.parametrize(
    "report",
    [done("a"), done("a", finish="length"), done("a", finish="abort"), done("a", finish="error"), error("a")],
    ids=lambda event: f"{event.type} {getattr(event, 'finish_reason', '')}",
)
def test_a_companion_is_released_in_the_step_of_its_report(report):
    host = aborted()
    answer = host.send(report)
    assert told(answer) == ["release a"]
    assert (answer.disposition, answer.reason, answer.life) == ("ignored", "ended", 1)
    assert waiting(host) == ["p"]


@pytest.mark.parametrize(
    "event",
    [
        output("p", segment=True), output("p", life=0), error("p", life=7), beat("p"), kv("a"), seal("p"),
        abort("p", "a"), finish("a"), reject("a"), output("a", segment=True), lose(5), tick(10.9),
    ],
    ids=repr,
)  # fmt: skip
def test_what_is_no_report_releases_nobody(event):
    host = aborted()
    assert "release" not in " ".join(host.tells(event))
    assert waiting(host) == ["p", "a"]


def test_each_is_released_once():
    host = aborted()
    assert host.tells(done("a")) == ["release a"]
    for event in (done("a"), error("a"), done("a", finish="abort"), abort("a"), lose(0)):
        assert "release a" not in host.tells(event)
    assert host.tells(tick(100.0)) == []


def test_who_was_released_in_time_is_not_released_again_by_its_report():
    host = aborted()
    assert host.tells(tick(11.0)) == ["release p a"]
    assert host.tells(done("a"), error("p")) == []


def test_a_client_that_aborts_it_again_hears_that_it_has_ended():
    host = aborted()
    assert host.tells(abort("p", "a")) == ["acknowledge p=already_ended a=already_ended"]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("observed", [True, False], ids=["observed", "unobserved"])
def test_the_output_that_comes_too_late_is_not_kept(observed):
    host = aborted()
    if not observed:
        host.registry = host.registry.copy()
    payload = Payload()
    reference = weakref.ref(payload)
    host.send(done("a", payload))
    host.records.clear()
    del payload
    assert reference() is None


# -- released with its replica --------------------------------------------------------------------------------


def test_who_was_last_heard_of_on_a_lost_replica_is_released():
    host = Host(confirm_s=10)
    host.send(register("p", TWO), start("p", 0), start("a", 1), start("b", 0), abort("p"))
    answer = host.send(lose(1))
    assert (answer.disposition, told(answer)) == ("accepted", ["release a"])
    assert host.tells(lose(0)) == ["release p b"]
    assert host.verdict(lose(0)) == ("ignored", "nothing_bound")


def test_who_never_started_is_on_no_replica():
    host = Host(confirm_s=10)
    host.send(register("p", {}), abort("p"))
    assert host.verdict(lose(0)) == ("ignored", "nothing_bound")
    assert waiting(host) == ["p"]


def test_a_late_start_is_told_to_abort_and_says_where_it_runs():
    host = aborted()
    assert host.tells(start("a", 3, stage=2)) == ["abort a"]
    assert host.tells(lose(0)) == ["release p"]
    assert host.tells(lose(3, stage=2)) == ["release a"]


def test_a_late_start_that_does_not_say_where_leaves_it_where_it_was():
    host = aborted()
    assert host.tells(start("a")) == ["abort a"]
    assert host.tells(lose(0)) == ["release p a"]


def test_who_is_told_again_does_not_wait_longer():
    host = aborted()
    assert host.tells(start("a", 1, at=9.0)) == ["abort a"]
    assert host.tells(tick(11.0)) == ["release p a"]


def test_who_waits_on_a_replica_is_released_after_the_groups_that_its_loss_ends():
    host = aborted()
    host.send(register("q", {"neg": "c"}), start("c", 0))
    assert host.tells(lose(0)) == ["fail q: replica_lost", "abort q", "release c", "release p a"]


def test_whoever_is_told_to_abort_by_the_loss_of_its_own_replica_is_released_by_it():
    host = Host(confirm_s=10)
    host.send(register("p", {"neg": "a"}), start("p", 0), start("a", 0), output("p"))
    assert host.tells(lose(0)) == ["fail p: replica_lost", "abort p", "release a", "release p"]


# -- released in time -----------------------------------------------------------------------------------------


def test_whoever_does_not_report_is_released_in_time_from_the_end_of_its_group():
    host = aborted(at=1.0)
    assert host.registry.next_deadline() == 11.0
    assert host.tells(tick(10.999)) == []
    answer = host.send(tick(11.0))
    assert (answer.disposition, told(answer)) == ("accepted", ["release p a"])
    assert host.registry.next_deadline() is None
    assert host.registry.counters()["released_unconfirmed"] == 2


def test_time_alone_releases_nobody_without_a_tick():
    host = aborted()
    assert host.tells(beat("nobody", at=500.0)) == []
    assert host.registry.next_deadline() == 11.0
    assert host.tells(done("a")) == ["release a"]
    assert host.tells(tick(0.0)) == ["release p"]


def test_the_next_deadline_is_the_earliest_of_all():
    host = aborted(total_s=6)
    host.send(register("q", {}, at=2.0))
    assert host.registry.next_deadline() == 8.0
    host.send(tick(8.0))  # q is told to abort
    assert host.registry.next_deadline() == 11.0
    host.send(tick(11.0))
    assert host.registry.next_deadline() == 18.0
    host.send(error("q"))
    assert host.registry.next_deadline() is None


def test_groups_are_released_in_the_order_of_their_deadline_then_of_registration():
    host = Host(confirm_s=10)
    host.send(*(register(parent, {}) for parent in "pqrs"), register("t", {}, limits=Limits(confirm_s=2)))
    host.send(abort("s", at=1.0), abort("r", "q", at=2.0), abort("t", at=3.0), abort("p", at=3.0))
    assert host.tells(tick(50.0)) == ["release t", "release s", "release q", "release r", "release p"]


def test_one_action_a_group_names_the_parent_first_then_the_others_in_role_order():
    host = Host(confirm_s=10)
    host.send(register("p", None), join("p", "txt", "c"), join("p", "neg", "a"), join("p", "img", "b"), abort("p"))
    host.send(done("a"))
    assert host.tells(tick(10.0)) == ["release p c b"]


def test_what_waits_is_released_after_all_that_a_tick_ends():
    host = aborted(total_s=20)
    host.send(register("q", {}, at=2.0))
    assert host.tells(tick(30.0)) == ["fail q: total_deadline", "abort q", "release p a"]
    assert host.registry.next_deadline() == 40.0
    assert host.tells(tick(40.0)) == ["release q"]


# -- while it waits -------------------------------------------------------------------------------------------


def test_no_registration_may_name_who_waits_not_even_with_a_life():
    host = aborted()
    host.send(register("q", None))
    for event in (
        register("p", {}), register("p", {}, life=9), register("a", {}, life=9), register("r", {"neg": "a"}),
        register("r", {"neg": "a"}, life=9), join("q", "neg", "a"),
    ):  # fmt: skip
        assert host.verdict(event) == ("rejected", "may_still_report"), event
    assert host.live() == ["q"]
    host.send(error("p"), done("a"))
    assert host.verdict(register("p", {"neg": "a"})) == ("accepted", None)


def test_who_was_released_without_a_report_may_still_report():
    host = aborted()
    host.send(tick(11.0))
    assert host.verdict(register("p", {})) == ("rejected", "may_still_report")
    assert host.verdict(register("p", {}, life=2)) == ("accepted", None)


def test_a_stranger_that_waits_is_told_to_abort_and_not_released_again():
    host = aborted()
    host.send(register("q", {}))
    assert host.tells(join("q", "neg", "a")) == ["abort a"]
    assert host.tells(join("p", "neg", "a")) == ["abort a"]
    assert host.tells(join("p", "neg", "x")) == ["abort x", "release x"]
    assert host.tells(done("a")) == ["release a"]
    assert host.tells(join("q", "neg", "a")) == ["abort a", "release a"]


def test_who_waits_is_not_live_and_takes_no_room():
    host = aborted(max_requests=2)
    assert host.live() == []
    counters = host.registry.counters()
    assert (counters["live"], counters["waiting"], counters["unconfirmed"]) == (0, 2, 2)
    assert host.verdict(register("q", {"neg": "c"})) == ("accepted", None)


def test_who_waits_is_bounded_by_time_and_not_by_the_tombstones():
    host = aborted(tombstones=0)
    assert host.registry.counters()["tombstones"] == 0
    assert waiting(host) == ["p", "a"]
    assert host.verdict(register("p", {}, life=9)) == ("rejected", "may_still_report")
    assert host.tells(start("a", 2)) == ["abort a"]
    assert host.tells(join("p", "neg", "a")) == ["abort a"]
    assert host.tells(abort("p", "q")) == ["acknowledge p=already_ended q=unknown"]
    assert host.tells(lose(2)) == ["release a"]
    assert host.tells(finish("p")) == ["release p"]
    assert host.verdict(register("p", {"neg": "a"})) == ("accepted", None)


def test_who_waits_longer_than_its_tombstone_is_released_all_the_same():
    host = aborted(tombstone_s=5)
    host.send(tick(6.0))
    assert host.registry.counters()["tombstones"] == 0
    assert host.verdict(beat("a")) == ("ignored", "ended")
    assert host.tells(done("a")) == ["release a"]
    assert host.tells(tick(11.0)) == ["release p"]
    assert host.verdict(beat("p")) == ("ignored", "unknown")


def test_many_that_wait_and_report_leave_nothing_behind():
    host = Host(confirm_s=10, tombstones=0)
    for number in range(300):
        host.send(register(f"p{number}", {}), abort(f"p{number}"), error(f"p{number}"))
    confirmations = host.registry._ledger.waiting
    assert len(confirmations) == len(confirmations._groups) == 0
    assert len(confirmations._heap) <= 66
    assert host.registry.next_deadline() is None


# -- what the audit says --------------------------------------------------------------------------------------


def releases(host):
    return [
        (record.parent_id, record.life, record.reason, record.event["request_ids"])
        for record in host.records
        if record.kind == "action" and record.trigger == "release_requests"
    ]


def test_the_audit_names_the_group_and_says_who_was_released_unconfirmed():
    host = aborted(TWO)
    host.send(done("b"), start("a", 1), lose(1), tick(11.0))
    assert releases(host) == [
        ("p", 1, None, ["b"]),
        ("p", 1, None, ["a"]),
        ("p", 1, "unconfirmed", ["p"]),
    ]
    assert host.registry.counters()["released_unconfirmed"] == 1


def test_with_and_without_observers_it_says_the_same():
    events = [
        register("p", TWO), start("a", 1), abort("p", at=1.0), done("b"), start("b", 2), lose(1),
        register("q", {"neg": "b"}), tick(11.0),
    ]  # fmt: skip
    host, quiet = Host(confirm_s=10), Registry(Limits(confirm_s=10))
    for event in events:
        assert host.send(event) == quiet.dispatch(event)
