"""A group with many companions is like any other, and costs in proportion to them."""

import sys
from pathlib import Path

import pytest
from helpers import Host, abort, bundle, done, error, finish, join, output, register, seal, start, told

from cfg_fsm import Registry
from cfg_fsm.engine import group

NUMBERS = [group.MANY - 1, group.MANY, group.MANY + 1, 3 * group.MANY]


def roles(number):
    return {f"r{n}": f"c{n}" for n in range(number)}


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("backwards", [False, True])
def test_its_bundle_is_whole_and_in_role_order(host, number, backwards):
    companions = roles(number)
    host.send(register("p", companions), output("p"))
    *first, last = reversed(companions.values()) if backwards else companions.values()
    for companion in first:
        assert host.tells(done(companion, companion)) == []
    assert bundle(host.send(done(last, last))) == (companions, list(companions.values()))
    assert host.tells(finish("p")) == [" ".join(["release p", *companions.values()])]


@pytest.mark.parametrize("number", NUMBERS)
def test_it_may_grow_one_by_one(host, number):
    companions = roles(number)
    host.send(register("p", None), output("p"))
    for role, companion in companions.items():
        assert host.verdict(join("p", role, companion), done(companion, companion)) == ("accepted", None)
    for role in ("r0", f"r{number - 1}"):
        assert host.verdict(join("p", role, companions[role])) == ("ignored", "duplicate")
        assert host.verdict(join("p", role, "x")) == ("rejected", "role_in_use")
    assert bundle(host.send(seal("p"))) == (companions, list(companions.values()))


def test_one_that_joins_an_open_group_whose_others_are_done_is_waited_for(host):
    companions = roles(3 * group.MANY)
    host.send(register("p", None), *(join("p", role, companion) for role, companion in companions.items()))
    host.send(*(done(companion) for companion in companions.values()), output("p"), join("p", "last", "z"))
    assert host.tells(seal("p")) == []
    assert host.tells(done("z")) == ["forward p"]


def test_a_copy_of_it_goes_its_own_way():
    registry, companions = Registry(), roles(3 * group.MANY)
    registry.dispatch_many([register("p", companions), output("p"), done("c0")])
    other = registry.copy()
    assert other.snapshot() == registry.snapshot()
    answers = other.dispatch_many([done(companion) for companion in companions.values()])
    assert told(answers[-1]) == ["forward p"]
    assert len(registry.requests()[0].missing) == len(companions) - 1
    assert told(registry.dispatch(error("c5")))[:1] == ["fail p: companion_failed"]


# -- what it costs, in lines of the engine that run: a count, and no time ---------------------------------------

ENGINE = str(Path(group.__file__).parent)


def lines(call):
    """How many lines of the engine a call runs."""
    count = 0

    def line(frame, event, arg):
        nonlocal count
        count += event == "line"
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, arg: line if frame.f_code.co_filename.startswith(ENGINE) else None)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def joins(host, companions):
    host.send(register("p", None))
    return [join("p", role, companion) for role, companion in companions.items()]


def outputs_while_deferred(host, companions):
    host.send(register("p", companions), output("p"))
    return [done(companion) for companion in companions.values()]


def late_outputs(host, companions):
    host.send(register("p", companions), abort("p"))
    return [done(companion) for companion in companions.values()]


def starts(host, companions):
    host.send(register("p", companions))
    return [start(companion, 0, at=float(n)) for n, companion in enumerate(companions.values())]


def one_end(host, companions):
    host.send(register("p", companions), *(done(companion) for companion in list(companions.values())[::2]))
    return [abort("p")]


@pytest.mark.parametrize(
    "limits",
    [{}, {"start_s": 1e6, "silent_s": 1e6, "total_s": 1e9, "confirm_s": 1e6}],
    ids=["without limits", "with limits"],
)
@pytest.mark.parametrize("make", [joins, outputs_while_deferred, late_outputs, starts, one_end])
def test_twice_as_many_companions_cost_twice_as_much(make, limits):
    def cost(number):
        host = Host(max_companions_per_parent=None, **limits)
        events = make(host, roles(number))

        def call():
            for event in events:
                host.registry.dispatch(event)
                host.registry.next_deadline()

        return lines(call)

    assert cost(200) <= 2.2 * cost(100)
