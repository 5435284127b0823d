"""A copy of a registry is in the same state and goes its own way."""

import copy
import pickle

import pytest
from budget import part_of
from helpers import TWO, Payload, abort, done, error, finish, lose, output, register, start, tick, told
from hypothesis import given, settings
from model import take_picture
from strategies import mishaps

from cfg_fsm import Limits, Registry

LIMITS = Limits(deferred_s=3, silent_s=2, start_s=4, total_s=10, tombstones=6, tombstone_s=20)


def shown(registry):
    return (registry.requests(), registry.counters(), registry.next_deadline(), registry.now)


def test_a_copy_shows_the_same():
    registry = Registry(LIMITS)
    registry.dispatch_many(
        [register("p", {"neg": "a", "img": "b"}), start("a", 1), output("p"), register("q", {})]
    )
    registry.dispatch_many([abort("q"), done("a")])
    assert shown(registry.copy()) == shown(registry)


def test_a_copy_goes_its_own_way():
    registry = Registry(LIMITS)
    registry.dispatch_many([register("p", {"neg": "a"}), output("p", at=1.0)])
    before, other = shown(registry), registry.copy()
    other.dispatch_many([done("a"), finish("p")])
    assert other.counters()["finished"] == 1
    assert shown(registry) == before
    registry.dispatch(tick(4.0))
    assert registry.counters()["failed"] == {"deferred_deadline": 1}
    assert other.counters()["failed"] == {}


def test_a_copy_of_a_registry_goes_its_own_way():
    registry = Registry(Limits(total_s=10, start_s=5))
    registry.dispatch_many([register("p", TWO), register("q", {}), abort("q"), start("p", 0), done("a", "A")])
    other = registry.copy()
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


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (copy.copy, "copied by its method copy"),
        (copy.deepcopy, "copied by its method copy"),
        (pickle.dumps, "cannot be pickled"),
    ],
    ids=["copy", "deepcopy", "pickle"],
)
def test_other_ways_to_copy_are_refused_and_say_which_is_the_right_one(make, why):
    registry = Registry()
    registry.dispatch(register("p", {}))
    with pytest.raises(TypeError, match=why):
        make(registry)
    assert told(registry.dispatch(finish("p"))) == ["release p"]


def test_a_copy_remembers_who_was_told_to_abort_and_forgets_it_on_its_own():
    registry = Registry(Limits(confirm_s=5))
    registry.dispatch_many([register("p", TWO), start("a", 1), done("b"), abort("p", at=1.0)])
    other = registry.copy()
    assert other.snapshot() == registry.snapshot()
    assert other.unconfirmed() == registry.unconfirmed()
    assert told(other.dispatch(done("a"))) == ["release a"]
    assert told(other.dispatch(start("p", 4))) == ["abort p"]
    assert [one.request_id for one in registry.unconfirmed()] == ["p", "a"]
    assert [one.replica for one in registry.unconfirmed()] == [None, (0, 1)]
    assert told(registry.dispatch(tick(6.0))) == ["release p a"]
    assert told(other.dispatch(lose(4))) == ["release p"]


@settings(max_examples=part_of(60))
@given(mishaps(), mishaps())
def test_a_copy_answers_as_the_original_does(first, rest):
    registry = Registry(LIMITS)
    registry.dispatch_many(first)
    other = registry.copy()
    for event in rest:
        assert registry.dispatch(event).to_dict() == other.dispatch(event).to_dict()
        assert shown(registry) == shown(other)
    assert take_picture(registry).tombstones == take_picture(other).tombstones
