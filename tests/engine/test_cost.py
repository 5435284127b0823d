"""What a step costs, counted in lines of the package that run, not in time: four times as many companions make
about four times as much work, whatever the order in which they come."""

import pytest
from helpers import abort, beat, done, error, finish, join, output, register, start, tick, told
from interrupt import Interruption

from cfg_fsm import Limits, Registry

FEW, MANY = 200, 800
TIMES = Limits(max_companions_per_parent=None, start_s=50.0, silent_s=60.0)
PLAIN = Limits(max_companions_per_parent=None)


def names(count):
    return [f"c{number}" for number in range(count)]


def group(count):
    return {f"r{number}": name for number, name in enumerate(names(count))}


def lines_of(work):
    with Interruption() as counted:
        work()
    return counted.lines


def starts(count, turned=False):
    """Companions start, and after each the host asks when to wake up."""
    registry = Registry(TIMES)
    registry.dispatch(register("p", group(count), at=0.0))
    events = [
        start(name, 0, at=number / count) for number, name in enumerate(names(count)[:: -1 if turned else 1])
    ]

    def work():
        for event in events:
            registry.dispatch(event)
            assert registry.next_deadline() is not None

    return work


def heartbeats(count):
    """Signs of life, in an order of their own, and after each the host asks when to wake up."""
    registry = Registry(TIMES)
    registry.dispatch(register("p", group(count), at=0.0))
    registry.dispatch_many([start(name, 0, at=0.0) for name in names(count)])
    events = [beat(names(count)[number * 7 % count], at=1.0 + number / count) for number in range(count)]

    def work():
        for event in events:
            registry.dispatch(event)
            assert registry.next_deadline() is not None

    return work


def late_outputs(count, confirm_s=None):
    """Outputs of companions whose group was aborted."""
    registry = Registry(PLAIN.model_copy(update={"confirm_s": confirm_s}))
    registry.dispatch(register("p", group(count), at=0.0))
    registry.dispatch_many([start(name, 0) for name in names(count)])
    registry.dispatch(abort("p"))
    assert len(registry.unconfirmed()) == count + 1
    events = [done(name) for name in names(count)]

    def work():
        for event in events:
            registry.dispatch(event)
        assert len(registry.unconfirmed()) == 1

    return work


def confirmed_one_by_one(count):
    """The same where each release waits for its report."""
    return late_outputs(count, confirm_s=5.0)


def outputs_in_role_order(count, turned=False):
    """Outputs of companions while the parent is deferred."""
    registry = Registry(PLAIN)
    registry.dispatch_many([register("p", group(count)), output("p")])
    events = [done(name) for name in names(count)[:: -1 if turned else 1]]

    def work():
        answers = [registry.dispatch(event) for event in events]
        assert told(answers[-1]) == ["forward p"]
        assert not any(answer.actions for answer in answers[:-1])

    return work


def joins(count):
    """Companions that join one by one."""
    registry = Registry(TIMES)
    registry.dispatch(register("p", at=0.0))
    events = [join("p", role, name) for role, name in group(count).items()]

    def work():
        for event in events:
            assert registry.dispatch(event).disposition == "accepted"

    return work


def ends(count):
    """One failure ends the group."""
    registry = Registry(TIMES)
    registry.dispatch_many([register("p", group(count), at=0.0), output("p", at=0.0)])
    return lambda: registry.dispatch(error("c3"))


def confirmations_of_joins(count):
    """Announced companions are registered, too."""
    registry = Registry(PLAIN)
    registry.dispatch(register("p", group(count)))
    events = [join("p", role, name) for role, name in group(count).items()]
    return lambda: [registry.dispatch(event) for event in events]


def starts_backwards(count):
    """The last companion starts first."""
    return starts(count, turned=True)


def outputs_backwards(count):
    """The last companion is done first."""
    return outputs_in_role_order(count, turned=True)


KINDS = [
    starts, starts_backwards, heartbeats, late_outputs, confirmed_one_by_one, outputs_in_role_order,
    outputs_backwards, joins, confirmations_of_joins, ends,
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_four_times_the_companions_are_less_than_five_times_the_lines(kind):
    few, many = lines_of(kind(FEW)), lines_of(kind(MANY))
    assert few > FEW
    assert many < 5 * few


@pytest.mark.parametrize("limits", [TIMES, PLAIN], ids=["with times", "without"])
def test_a_tick_with_nothing_due_costs_the_same_after_any_number_of_heartbeats(limits):
    costs = set()
    for count in (0, 1, 100, 2_000):
        registry = Registry(limits)
        registry.dispatch_many([register("p", {"neg": "a", "img": "b"}, at=0.0), start("a", 0, at=0.0)])
        registry.dispatch(done("b", at=0.0))
        registry.dispatch_many([beat("a", at=number / 1_000) for number in range(1, count + 1)])
        for _ in range(3):
            costs.add(lines_of(lambda registry=registry: registry.dispatch(tick(5.0))))
    assert max(costs) < 60
    assert max(costs) - min(costs) < 10


def test_the_first_tick_after_the_bound_has_come_corrects_it_once():
    costs = []
    for count in (FEW, MANY):
        registry = Registry(TIMES)
        registry.dispatch(register("p", group(count), at=0.0))
        registry.dispatch_many([start(name, 0, at=0.0) for name in names(count)])
        registry.dispatch_many([beat(name, at=30.0) for name in names(count)])
        costs.append(lines_of(lambda registry=registry: registry.dispatch(tick(70.0))))
        assert registry.next_deadline() == 90.0
    assert costs[0] == costs[1] < 100


def test_a_small_group_costs_what_it_did_beside_a_large_one():
    alone, beside = Registry(TIMES), Registry(TIMES)
    beside.dispatch(register("large", group(MANY), at=0.0))
    costs = []
    for registry in (alone, beside):
        events = [
            register("p", {"neg": "a"}, at=1.0), start("a", 0, at=1.0), output("p", at=1.0), done("a", at=1.0),
            finish("p", at=1.0),
        ]  # fmt: skip
        costs.append(lines_of(lambda registry=registry, events=events: registry.dispatch_many(events)))
    assert abs(costs[0] - costs[1]) < 40
