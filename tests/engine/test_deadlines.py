"""The deadlines of the live requests: always the earliest, in order, and cheap however many there are."""

import math
from collections import Counter

import pytest
from budget import part_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cfg_fsm import Limits
from cfg_fsm.engine.deadlines import SLACK, Deadlines
from cfg_fsm.engine.group import Companion, Group

LIMITS = Limits(deferred_s=3, silent_s=2, start_s=4, total_s=10)


class Counted(float):
    """A number that counts how often any of its kind is compared to another."""

    compared = 0

    def __add__(self, other):
        return Counted(float(self) + other)

    def __lt__(self, other):
        Counted.compared += 1
        return float(self) < float(other)

    def __le__(self, other):
        Counted.compared += 1
        return float(self) <= float(other)

    def __gt__(self, other):
        Counted.compared += 1
        return float(self) > float(other)


def comparisons(call):
    """How many comparisons of deadlines a call takes."""
    before = Counted.compared
    call()
    return Counted.compared - before


class World:
    """Deadlines, and groups that have some."""

    def __init__(self, limits=LIMITS):
        self.deadlines, self.limits, self.groups = Deadlines(), limits, 0

    def parent(self, at=0.0, limits=None):
        """A parent is registered."""
        self.groups += 1
        group = Group(f"p{self.groups}", 1, self.groups, at, True, False, None, limits or self.limits)
        self.deadlines.update(group)
        return group

    def companion(self, at=0.0, limits=None, group=None):
        """A companion is registered: of a group of which nothing else is known, if not of this one."""
        group = group or self.parent(at, limits)
        companion = Companion(f"c{self.groups}", "neg", group, at)
        self.deadlines.update(companion)
        return companion

    def enter(self, record, state, at):
        """It moves."""
        record.state, record.since = state, at
        self.deadlines.update(record)

    def hear(self, companion, at):
        """A sign of life of a companion that runs."""
        companion.state, companion.seen = "running", at
        self.deadlines.update(companion)

    def due(self, now):
        """The numbers of the groups that are due, in the order in which they come."""
        return [group.seq for group in self.deadlines.due(now)]

    @property
    def heap_size(self):
        return len(self.deadlines._heap)


def set_for(*times, limit=1.0):
    """A group for each time, registered then, with one limit for all."""
    world = World(Limits(total_s=limit))
    return world, [world.parent(at) for at in times]


# -- which is the next ----------------------------------------------------------------------------------------


def test_without_requests_there_is_no_deadline():
    world = World()
    assert world.deadlines.next() is None
    assert world.due(1e9) == []
    assert len(world.deadlines) == 0
    assert world.deadlines.each() == []


def test_a_request_has_the_deadlines_of_its_state():
    world = World()
    companion = world.companion(at=1.0)
    group = companion.group

    def shown():
        return sorted((record.request_id, limit, when) for record, limit, when in world.deadlines.each())

    assert shown() == [("c1", "start_s", 5.0), ("p1", "total_s", 11.0)]
    world.hear(companion, 2.0)
    world.enter(group, "deferred", 3.0)
    assert shown() == [("c1", "silent_s", 4.0), ("p1", "deferred_s", 6.0), ("p1", "total_s", 11.0)]
    assert len(world.deadlines) == 3
    world.enter(companion, "done", 4.0)
    world.enter(group, "forwarded", 4.0)
    assert shown() == [("p1", "total_s", 11.0)]


def test_a_limit_that_is_not_set_brings_no_deadline():
    world = World(Limits(silent_s=2))
    companion = world.companion()
    assert world.deadlines.next() is None
    world.hear(companion, 5.0)
    assert world.deadlines.next() == 7.0


def test_the_next_deadline_is_the_earliest_of_all_limits_and_values():
    world = World()
    world.companion(at=0.0)
    assert world.deadlines.next() == 4.0
    world.companion(at=1.0, limits=Limits(start_s=1.5))
    assert world.deadlines.next() == 2.5
    world.parent(at=2.0, limits=Limits(total_s=0.25))
    assert world.deadlines.next() == 2.25


def test_to_ask_changes_nothing():
    world, _ = set_for(4.0, 4.0, 5.0)
    for _ in range(3):
        assert world.deadlines.next() == 5.0
        assert world.due(9.0) == [1, 2, 3]


def test_a_deadline_that_moved_later_is_not_there_any_more():
    world = World(Limits(silent_s=2))
    first, second = world.companion(), world.companion()
    world.hear(first, 1.0)
    world.hear(second, 2.0)
    world.hear(first, 3.0)
    assert world.deadlines.next() == 4.0
    assert world.due(4.0) == [2]
    assert world.due(5.0) == [2, 1]


def test_an_earlier_deadline_of_another_limit_comes_first():
    world = World(Limits(total_s=100, deferred_s=5))
    group = world.parent()
    world.enter(group, "deferred", 1.0)
    assert world.deadlines.next() == 6.0
    world.enter(group, "forwarded", 2.0)
    assert world.deadlines.next() == 100.0


def test_who_has_ended_has_no_deadline():
    world = World()
    group = world.parent()
    companion = world.companion(group=group)
    world.enter(group, "deferred", 0.0)
    for record in group, companion:
        world.deadlines.drop(record)
    assert (world.deadlines.next(), len(world.deadlines), world.due(1e9)) == (None, 0, [])


def test_to_drop_who_has_no_deadline_does_nothing():
    world, (group,) = set_for(4.0)
    stranger = Group("x", 1, 9, 0.0, True, False, None, LIMITS)
    world.deadlines.drop(stranger)
    assert world.deadlines.next() == 5.0
    world.deadlines.drop(group)
    world.deadlines.drop(group)
    assert world.deadlines.next() is None


def test_who_comes_back_has_a_deadline_again():
    world, (group,) = set_for(4.0)
    world.deadlines.drop(group)
    assert world.deadlines.next() is None
    world.deadlines.update(group)
    assert world.deadlines.next() == 5.0
    assert world.due(5.0) == [1]


def test_a_deadline_that_is_set_again_as_it_was_keeps_its_place():
    world, (first, _) = set_for(4.0, 4.0)
    world.deadlines.update(first)
    assert [record.seq for record, _, _ in world.deadlines.each()] == [1, 2]


# -- who is due -----------------------------------------------------------------------------------------------


def test_those_that_are_due_come_in_the_order_of_deadline_then_registration():
    world = World(Limits(silent_s=1))
    companions = [world.companion() for _ in range(6)]
    for companion, at in sorted(zip(companions, (4, 2, 4, 0, 2, 8), strict=True), key=lambda pair: pair[1]):
        world.hear(companion, float(at))
    assert world.due(5.0) == [4, 2, 5, 1, 3]
    assert world.due(9.0) == [4, 2, 5, 1, 3, 6]


def test_among_equal_deadlines_one_that_moved_keeps_its_place_by_registration():
    world = World(Limits(silent_s=1, start_s=8))
    first, second = world.companion(), world.companion()
    world.hear(first, 1.0)
    world.hear(second, 4.0)
    world.hear(first, 4.0)
    assert world.due(5.0) == [1, 2]


def test_equal_deadlines_of_different_limits_come_by_registration():
    world = World()
    for limits in (Limits(total_s=6), Limits(total_s=2), Limits(total_s=4)):
        world.parent(at=6.0 - limits.total_s, limits=limits)
    assert world.due(6.0) == [1, 2, 3]


def test_a_deadline_has_come_when_its_time_is_there_and_not_before():
    world, _ = set_for(4.0)
    assert world.due(math.nextafter(5.0, 0.0)) == []
    assert world.due(5.0) == [1]


def test_a_group_is_due_once_by_its_earliest_deadline():
    world = World()
    late = world.companion(at=0.0)
    world.hear(late, 3.0)
    early = world.companion(at=0.0)
    world.enter(early.group, "deferred", 1.0)
    assert world.due(4.0) == [early.group.seq]
    assert world.due(100.0) == [early.group.seq, late.group.seq]


# -- a clock that goes back -----------------------------------------------------------------------------------


def test_a_clock_that_goes_back_brings_an_earlier_deadline():
    world, _ = set_for(4.0, 2.0)
    assert world.deadlines.next() == 3.0
    assert world.due(9.0) == [2, 1]


def test_it_may_go_back_again_and_again():
    world, groups = set_for(8.0, 2.0)
    assert world.deadlines.next() == 3.0  # they are put in order
    groups.append(world.parent(at=5.0))
    assert world.due(9.0) == [2, 3, 1]
    world.deadlines.drop(groups[1])
    assert world.deadlines.next() == 6.0
    groups.append(world.parent(at=0.0))
    assert world.due(9.0) == [4, 3, 1]


def test_a_sign_of_life_before_the_last_one_brings_the_deadline_nearer():
    world = World(Limits(silent_s=2, start_s=100))
    companion, other = world.companion(), world.companion()
    world.hear(companion, 9.0)
    world.hear(other, 9.0)
    world.hear(companion, 1.0)
    assert world.deadlines.next() == 3.0
    assert world.due(3.0) == [1]


# -- what it costs: counted ------------------------------------------------------------------------------------


def many(number, beats):
    """So many companions that have given so many signs of life, in turn."""
    world = World(Limits(silent_s=1e6, total_s=1e7))
    companions = [world.companion() for _ in range(number)]
    for beat in range(1, beats + 1):
        for companion in companions:
            world.hear(companion, Counted(beat))
    return world, companions


def test_a_tick_with_nothing_due_looks_at_one_number():
    world, _ = many(200, beats=50)
    assert comparisons(lambda: world.due(1e6)) == 1
    assert comparisons(lambda: world.due(1e6)) == 1


@pytest.mark.parametrize("number", [2, 20, 2_000])
def test_what_signs_of_life_left_undone_is_made_up_for_once_and_not_for_each_of_them(number):
    world, _ = many(number, beats=20)
    now = 1e6 + 10  # after the first of each companion's deadlines, before all of those that stand
    assert comparisons(lambda: world.due(now)) <= 8
    assert comparisons(lambda: world.due(now)) == 1
    assert world.deadlines.next() == 1e6 + 20


def test_to_set_to_move_and_to_drop_costs_the_same_among_many_as_among_few():
    def cost(number):
        world, companions = many(number, beats=1)
        middle = companions[number // 2]
        return [
            comparisons(lambda: world.hear(middle, Counted(5))),
            comparisons(lambda: world.hear(world.companion(at=Counted(6)), Counted(6))),
            comparisons(lambda: world.deadlines.drop(middle)),
            comparisons(world.deadlines.next),
        ]

    assert cost(3_000) == cost(3)


def test_only_those_that_are_due_are_looked_at():
    def cost(number):
        world, _ = set_for(*(Counted(at) for at in range(number)))
        assert world.due(3.0) == [1, 2, 3]
        return comparisons(lambda: world.due(3.0))

    assert cost(2_000) == cost(20)


# -- the heap stays small ------------------------------------------------------------------------------------


def test_signs_of_life_leave_nothing_behind():
    world, _ = many(3, beats=1_000)
    assert world.heap_size == 2  # limits


def test_the_heap_stays_bounded_over_many_requests_that_come_and_go():
    world, stay = World(Limits(total_s=1000)), []
    for number in range(10_000):
        group = world.parent(at=float(number))
        if number % 1000 == 0:
            stay.append(group.seq)
        else:
            world.deadlines.drop(group)
        assert world.heap_size <= 2 + SLACK
    assert world.due(1e9) == stay


def test_the_heap_stays_bounded_when_each_parent_brings_limits_of_its_own():
    world = World()
    for number in range(5_000):
        world.deadlines.drop(world.parent(at=float(number), limits=Limits(total_s=1.0 + number)))
        assert world.heap_size <= 2 + SLACK
    assert len(world.deadlines) == 0


def test_the_heap_stays_bounded_when_deadlines_come_nearer_and_nearer():
    world = World(Limits(silent_s=1))
    companion, earlier = world.companion(), world.companion()
    world.hear(companion, 1e5)
    for step in range(2_000):
        world.hear(earlier, 1e5 - step)
        assert world.heap_size <= 2 + SLACK
    assert world.deadlines.next() == 1e5 - 1_998


def test_when_the_last_request_goes_the_heap_is_empty_once_it_is_asked():
    world, groups = set_for(*(float(number) for number in range(40)))
    for group in groups:
        world.deadlines.drop(group)
    assert world.deadlines.next() is None
    assert world.heap_size == 0


# -- a copy --------------------------------------------------------------------------------------------------


def test_a_copy_has_the_same_deadlines_for_other_records_and_goes_its_own_way():
    world = World()
    records = [world.parent(), *(world.companion() for _ in range(2))]
    world.hear(records[1], 9.0)
    world.hear(records[2], 1.0)  # the clock went back
    twins = {record: record.copy() for record in records if isinstance(record, Group)}
    twins.update((c, c.group.copy()) for c in records[1:])
    twins.update((c.group, twins[c]) for c in records[1:])
    copy = world.deadlines.copy(twins.__getitem__)
    assert Counter((twins[r], limit, when) for r, limit, when in world.deadlines.each()) == Counter(copy.each())
    assert copy.next() == world.deadlines.next() == 3.0
    copy.drop(twins[records[2]])
    assert world.deadlines.next() == 3.0


# -- it answers as a plain minimum does ------------------------------------------------------------------------

STATES = {"parent": ["registered", "deferred", "forwarded"], "companion": ["registered", "running", "done"]}
#: Of each of four groups.
OWN = [
    [LIMITS, LIMITS, LIMITS, Limits(deferred_s=3, silent_s=2, total_s=1)],
    [Limits(silent_s=2)] * 4,
    [Limits(total_s=3)] * 4,
]
#: What happens, to which of eight requests, the state it enters, and how much later or when.
DEEDS = st.tuples(
    st.sampled_from(["enter", "enter", "hear", "hear", "drop", "next", "due", "copy"]),
    st.integers(0, 7),
    st.integers(0, 2),
    st.integers(0, 9).map(float),
)


def rows(record):
    """Every deadline of a record, as the design has it."""
    limits, found = record.group.limits, {}
    if record is record.group:
        found["total_s"] = record.registered_at
        if record.state == "deferred":
            found["deferred_s"] = record.since
    elif record.state == "registered":
        found["start_s"] = record.since
    elif record.state == "running":
        found["silent_s"] = record.seen
    return {name: at + getattr(limits, name) for name, at in found.items() if getattr(limits, name) is not None}


@settings(max_examples=part_of(400))
@given(st.sampled_from(OWN), st.booleans(), st.lists(DEEDS, max_size=60))
def test_they_answer_as_a_plain_minimum_over_all_records_does(own, to_and_fro, deeds):
    """Four groups with a companion each, and a clock that goes on, or to and fro."""
    now, deadlines, plain = 0.0, Deadlines(), {}
    groups = [Group(f"p{n}", 1, n, now, True, False, None, own[n]) for n in range(4)]
    records = [*groups, *(Companion(f"c{group.seq}", "neg", group, now) for group in groups)]
    for deed, who, state, time in deeds:
        now = time if to_and_fro else now + time
        record = records[who]
        every = [(r, limit, when) for r, of_record in plain.items() for limit, when in of_record.items()]
        if deed in ("enter", "hear"):
            parent = record is record.group
            new = "running" if deed == "hear" and not parent else STATES[record.machine][state]
            if parent and record not in plain:
                record.registered_at = now
            if new != record.state or record not in plain:
                record.state, record.since = new, now
            if not parent:
                record.seen = now
            deadlines.update(record)
            plain[record] = rows(record)
        elif deed == "drop":
            deadlines.drop(record)
            plain.pop(record, None)
        elif deed == "copy":
            deadlines = deadlines.copy(lambda record: record)
        elif deed == "next":
            assert deadlines.next() == min((when for _, _, when in every), default=None)
        else:
            found = {}
            for r, _, when in every:
                if when <= now:
                    found[r.group] = min(when, found.get(r.group, math.inf))
            assert deadlines.due(now) == sorted(found, key=lambda group: (found[group], group.seq))
        every = [(r, limit, when) for r, of_record in plain.items() for limit, when in of_record.items()]
        assert Counter(deadlines.each()) == Counter(every)
        assert len(deadlines) == len(every)
        assert len(deadlines._heap) <= 2 * len(deadlines._queues) + SLACK
    assert deadlines.next() == min((when for of_one in plain.values() for when in of_one.values()), default=None)
