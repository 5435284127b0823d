"""Registration is all or nothing (R9), within the limits."""

import pytest
from helpers import (
    THREE,
    TWO,
    Host,
    beat,
    done,
    finish,
    join,
    output,
    register,
    seal,
    start,
)

from cfg_fsm import Limits


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


def test_a_registration_is_the_same_if_its_limits_come_to_the_same():
    host = Host(total_s=5)
    host.send(register("p", {}))
    assert host.verdict(register("p", {}, limits=Limits(total_s=5))) == ("ignored", "duplicate")
    assert host.verdict(register("p", {}, limits=Limits(total_s=6))) == ("rejected", "different_registration")
