"""A copy of a registry is in the same state and goes its own way."""

from helpers import abort, done, finish, output, register, start, tick
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
    before, copy = shown(registry), registry.copy()
    copy.dispatch_many([done("a"), finish("p")])
    assert copy.counters()["finished"] == 1
    assert shown(registry) == before
    registry.dispatch(tick(4.0))
    assert registry.counters()["failed"] == {"deferred_deadline": 1}
    assert copy.counters()["failed"] == {}


@settings(max_examples=60)
@given(mishaps(), mishaps())
def test_a_copy_answers_as_the_original_does(first, rest):
    registry = Registry(LIMITS)
    registry.dispatch_many(first)
    copy = registry.copy()
    for event in rest:
        assert registry.dispatch(event).to_dict() == copy.dispatch(event).to_dict()
        assert shown(registry) == shown(copy)
    assert take_picture(registry).tombstones == take_picture(copy).tombstones
