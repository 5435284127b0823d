"""Who was told to abort and has not reported: what may still run, for whoever operates it."""

from helpers import TWO, Host, abort, beat, done, error, finish, join, lose, output, register, start, tick

from cfg_fsm import Limits
from cfg_fsm.engine.views import Unconfirmed


def names(host):
    return [one.request_id for one in host.registry.unconfirmed()]


def test_at_first_there_is_nobody(host):
    assert host.registry.unconfirmed() == []
    host.send(register("p", TWO), start("a", 1), done("a"))
    assert host.registry.unconfirmed() == []
    assert host.registry.counters()["unconfirmed"] == 0


def test_it_names_who_was_told_to_abort_of_which_group_since_when_and_where(host):
    host.send(register("p", TWO, life=4), start("a", 1, stage=2), abort("p", at=3.0))
    assert host.registry.unconfirmed() == [
        Unconfirmed("p", parent_id="p", life=4, since=3.0, replica=None, waits_until=None),
        Unconfirmed("a", parent_id="p", life=4, since=3.0, replica=(2, 1), waits_until=None),
        Unconfirmed("b", parent_id="p", life=4, since=3.0, replica=None, waits_until=None),
    ]
    assert host.registry.counters()["unconfirmed"] == 3


def test_who_ended_by_itself_is_not_among_them(host):
    host.send(register("p", TWO), done("b"), error("a"))
    assert names(host) == ["p"]


def test_who_reports_is_not_among_them_any_more(host):
    host.send(register("p", TWO), abort("p"))
    host.send(done("a"))
    assert names(host) == ["p", "b"]
    host.send(output("p", segment=True), beat("b"), error("b", life=7))
    assert names(host) == ["p", "b"]
    host.send(finish("p"), error("b"))
    assert names(host) == []


def test_the_oldest_come_first(host):
    host.send(register("p", {}), register("q", {}), register("r", {}))
    host.send(abort("q", at=1.0), abort("p", "r", at=2.0))
    assert names(host) == ["q", "p", "r"]


def test_who_starts_late_was_told_last_then_and_is_there(host):
    host.send(register("p", {"neg": "a"}), start("a", 0), abort("p", at=1.0), start("a", 2, at=5.0))
    assert [(one.request_id, one.since, one.replica) for one in host.registry.unconfirmed()] == [
        ("p", 1.0, None),
        ("a", 5.0, (0, 2)),
    ]


def test_who_starts_after_a_clean_end_is_among_them(host):
    host.send(register("p", {"neg": "a"}), done("a"), output("p"), finish("p"), start("a", at=2.0))
    assert names(host) == ["a"]


def test_a_refused_stranger_is_among_them_if_it_is_remembered(host):
    host.send(register("p", {"neg": "a"}), done("a"), output("p"), finish("p"), register("q", {}))
    host.send(join("q", "neg", "a", at=3.0), join("q", "neg", "x"))
    assert [(one.request_id, one.parent_id, one.since) for one in host.registry.unconfirmed()] == [("a", "p", 3.0)]


def test_a_lost_replica_is_no_report(host):
    host.send(register("p", {}), start("p", 0), abort("p"), lose(0))
    assert names(host) == ["p"]


def test_who_is_used_again_is_not_among_them(host):
    host.send(register("p", {"neg": "a"}), abort("p"), register("p", {"img": "b"}, life=2))
    assert names(host) == ["a"]


def test_who_is_forgotten_is_not_among_them():
    host = Host(tombstone_s=10)
    host.send(register("p", {}), abort("p"))
    host.send(tick(9.9))
    assert names(host) == ["p"]
    host.send(tick(10.0))
    assert names(host) == []
    assert host.registry.counters()["unconfirmed"] == 0


def test_who_is_pushed_out_is_not_among_them():
    host = Host(tombstones=2)
    for parent in "pqr":
        host.send(register(parent, {}), abort(parent))
    assert names(host) == ["q", "r"]


def test_whose_release_waits_is_among_them_until_it_is_released_and_longer():
    host = Host(confirm_s=5)
    host.send(register("p", {}, at=1.0), register("q", {}, limits=Limits(confirm_s=2)), abort("p", "q", at=1.0))
    assert [(one.request_id, one.waits_until) for one in host.registry.unconfirmed()] == [("p", 6.0), ("q", 3.0)]
    host.send(tick(3.0))
    assert [(one.request_id, one.waits_until) for one in host.registry.unconfirmed()] == [("p", 6.0), ("q", None)]
    host.send(tick(6.0))
    assert [(one.request_id, one.waits_until) for one in host.registry.unconfirmed()] == [("p", None), ("q", None)]
    counters = host.registry.counters()
    assert (counters["waiting"], counters["unconfirmed"], counters["released_unconfirmed"]) == (0, 2, 2)
    host.send(error("p"), error("q"))
    assert names(host) == []


def test_who_waits_is_among_them_though_nothing_else_is_remembered():
    host = Host(confirm_s=5, tombstones=0)
    host.send(register("p", {"neg": "a"}), start("a", 1), abort("p", at=1.0), start("a", 3, at=2.0))
    assert [one[:2] + one[3:] for one in host.registry.unconfirmed()] == [
        ("p", "p", 1.0, None, 6.0),
        ("a", "p", 2.0, (0, 3), 6.0),
    ]
    host.send(tick(6.0))
    assert names(host) == []


def test_what_is_handed_out_is_the_callers(host):
    host.send(register("p", {}), abort("p"))
    host.registry.unconfirmed().clear()
    assert names(host) == ["p"]
    assert host.registry.snapshot().told["p"].since == host.registry.unconfirmed()[0].since
