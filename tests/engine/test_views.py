"""What a registry shows of itself: its requests and its counters."""

import pytest
from helpers import (
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
    start,
    tick,
)


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
        "waiting": 0,
        "unconfirmed": 0,
        "released_unconfirmed": 0,
        "observer_errors": 0,
        "interrupted_steps": 0,
        "clock": {"undated": 0, "behind": 0, "furthest_behind_s": 0.0, "largest_jump_s": 0.0},
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
        "waiting": 0,
        "unconfirmed": 3,
        "released_unconfirmed": 0,
        "observer_errors": 0,
        "interrupted_steps": 0,
        "clock": {"undated": 16, "behind": 0, "furthest_behind_s": 0.0, "largest_jump_s": 0.0},
    }


def test_a_registry_is_printed_as_what_is_live_in_it(host):
    host.send(register("p", TWO), register("q", {}))
    assert repr(host.registry) == "<Registry: 2 live parents, 2 companions>"
