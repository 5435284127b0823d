"""The heap of deadlines: always the earliest, in the order of registration where they are equal, never too big."""

import math

from budget import part_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cfg_fsm.engine.deadlines import SLACK, Deadlines


class Group:
    """As much of a group as the heap needs: a number, a bound for the heap to keep, and the true deadline."""

    def __init__(self, seq, deadline=math.inf):
        self.seq, self.deadline, self.alarm = seq, deadline, math.inf
        self.asked = 0

    def earliest(self):
        self.asked += 1
        return self.deadline


def armed(deadlines, *times):
    """A group for each deadline, armed."""
    groups = [Group(seq, when) for seq, when in enumerate(times, 1)]
    for group in groups:
        deadlines.arm(group, group.deadline)
    return groups


def end_all_due(deadlines, now):
    """The groups that are due, in the order in which they come; each ends before the next is asked for."""
    ended = []
    for group in deadlines.due(now):
        ended.append(group.seq)
        deadlines.disarm(group)
    return ended


def test_without_groups_there_is_no_deadline():
    deadlines = Deadlines()
    assert deadlines.next() is None
    assert deadlines.first() is None
    assert end_all_due(deadlines, 1e9) == []
    assert len(deadlines) == 0


def test_the_next_deadline_is_the_earliest():
    deadlines = Deadlines()
    groups = armed(deadlines, 5.0, 3.0, 4.0)
    assert deadlines.next() == 3.0
    assert deadlines.first() is groups[1]
    deadlines.disarm(groups[1])
    assert deadlines.next() == 4.0
    assert len(deadlines) == 2


def test_to_ask_for_the_next_deadline_changes_nothing():
    deadlines = Deadlines()
    armed(deadlines, 5.0, 3.0)
    assert [deadlines.next() for _ in range(3)] == [3.0, 3.0, 3.0]
    assert end_all_due(deadlines, 9.0) == [2, 1]


def test_those_that_are_due_come_in_the_order_of_deadline_then_registration():
    deadlines = Deadlines()
    armed(deadlines, 5.0, 3.0, 5.0, 1.0, 3.0, 9.0)
    assert end_all_due(deadlines, 5.0) == [4, 2, 5, 1, 3]
    assert deadlines.next() == 9.0


def test_a_deadline_has_come_when_its_time_is_there_and_not_before():
    deadlines = Deadlines()
    armed(deadlines, 5.0)
    assert end_all_due(deadlines, math.nextafter(5.0, 0.0)) == []
    assert end_all_due(deadlines, 5.0) == [1]


def test_a_deadline_that_moved_later_is_noticed_when_its_turn_comes():
    deadlines = Deadlines()
    early, late = armed(deadlines, 1.0, 2.0)
    early.deadline = 3.0
    assert deadlines.next() == 2.0
    assert end_all_due(deadlines, 3.0) == [late.seq, early.seq]


def test_among_equal_deadlines_one_that_moved_keeps_its_place_by_registration():
    deadlines = Deadlines()
    first, second = armed(deadlines, 1.0, 4.0)
    first.deadline = 4.0
    assert end_all_due(deadlines, 4.0) == [first.seq, second.seq]


def test_a_deadline_that_went_away_is_noticed_when_its_turn_comes():
    deadlines = Deadlines()
    gone, left = armed(deadlines, 1.0, 2.0)
    gone.deadline = math.inf
    assert deadlines.next() == 2.0
    assert end_all_due(deadlines, 9.0) == [left.seq]
    assert len(deadlines) == 0


def test_a_group_whose_deadline_went_away_can_be_armed_again():
    deadlines = Deadlines()
    (group,) = armed(deadlines, 1.0)
    group.deadline = math.inf
    assert deadlines.next() is None
    group.deadline = 7.0
    deadlines.arm(group, 7.0)
    assert deadlines.next() == 7.0


def test_an_earlier_deadline_takes_the_place_of_a_later_one():
    deadlines = Deadlines()
    (group,) = armed(deadlines, 9.0)
    group.deadline = 2.0
    deadlines.arm(group, 2.0)
    assert deadlines.next() == 2.0
    assert end_all_due(deadlines, 2.0) == [1]
    assert deadlines.next() is None


def test_a_later_deadline_beside_an_earlier_one_costs_nothing():
    deadlines = Deadlines()
    (group,) = armed(deadlines, 2.0)
    size = deadlines.heap_size
    deadlines.arm(group, 9.0)
    deadlines.arm(group, 2.0)
    deadlines.arm(group, math.inf)
    assert deadlines.heap_size == size
    assert deadlines.next() == 2.0


def test_a_group_without_a_deadline_is_not_armed():
    deadlines = Deadlines()
    deadlines.arm(Group(1), math.inf)
    assert len(deadlines) == deadlines.heap_size == 0


def test_a_deadline_that_moves_to_and_fro_counts_once():
    deadlines = Deadlines()
    group, other = armed(deadlines, 3.0, 8.0)
    group.deadline = 5.0
    assert deadlines.next() == 5.0
    group.deadline = 4.0
    deadlines.arm(group, 4.0)
    group.deadline = 5.0
    assert deadlines.next() == 5.0
    group.deadline = 6.0
    assert deadlines.next() == 6.0
    assert end_all_due(deadlines, 9.0) == [group.seq, other.seq]


def test_to_disarm_a_group_that_is_not_armed_does_nothing():
    deadlines = Deadlines()
    (group,) = armed(deadlines, 1.0)
    deadlines.disarm(Group(2))
    assert deadlines.next() == 1.0
    deadlines.disarm(group)
    deadlines.disarm(group)
    assert deadlines.next() is None


def test_a_disarmed_group_is_forgotten_at_once_and_not_asked_again():
    deadlines = Deadlines()
    group, _ = armed(deadlines, 1.0, 2.0)
    deadlines.disarm(group)
    assert group not in deadlines._armed.values()
    assert group.alarm == math.inf
    assert end_all_due(deadlines, 9.0) == [2]
    assert group.asked == 0


def test_with_nothing_due_no_group_is_asked():
    deadlines = Deadlines()
    groups = armed(deadlines, *(100.0 + number for number in range(50)))
    assert end_all_due(deadlines, 99.0) == []
    assert sum(group.asked for group in groups) == 0


def test_a_heartbeat_is_free_and_is_made_up_for_once():
    deadlines = Deadlines()
    (group,) = armed(deadlines, 10.0)
    for beat in range(1000):
        group.deadline = 10.0 + beat
        deadlines.arm(group, group.deadline)
    assert deadlines.heap_size == 1
    assert group.asked == 0
    assert deadlines.next() == 1009.0
    assert group.asked == 2  # once to see that it has moved, once to see that it stands


def test_the_heap_stays_bounded_over_many_groups_that_come_and_go():
    deadlines, stay = Deadlines(), []
    for seq in range(20_000):
        group = Group(seq, 1000.0 + seq)
        deadlines.arm(group, group.deadline)
        if seq % 1000 == 0:
            stay.append(group)
        else:
            deadlines.disarm(group)
        assert deadlines.heap_size <= 2 * len(deadlines) + SLACK
    assert len(deadlines) == 20
    assert end_all_due(deadlines, 1e9) == [group.seq for group in stay]
    assert deadlines.heap_size == 0


def test_the_heap_stays_bounded_when_deadlines_come_nearer_and_nearer():
    deadlines = Deadlines()
    (group,) = armed(deadlines, 1e6)
    for step in range(10_000):
        group.deadline = 1e6 - step
        deadlines.arm(group, group.deadline)
        assert deadlines.heap_size <= 2 + SLACK
    assert deadlines.next() == 1e6 - 9_999


def test_when_the_last_group_goes_the_heap_is_empty():
    deadlines = Deadlines()
    for group in armed(deadlines, *(float(number) for number in range(40))):
        deadlines.disarm(group)
    assert deadlines.heap_size == 0


TIMES = st.integers(0, 12).map(float) | st.just(math.inf)
MOVES = st.tuples(
    st.sampled_from(["arm", "arm", "move later", "go away", "disarm", "next", "due"]), st.integers(0, 7), TIMES
)


@settings(max_examples=part_of(300))
@given(st.lists(MOVES, max_size=60))
def test_the_heap_answers_as_a_plain_minimum_over_all_groups_does(moves):
    deadlines: Deadlines[Group] = Deadlines()
    groups = {seq: Group(seq) for seq in range(8)}
    for move, seq, when in moves:
        group = groups[seq]
        if move == "arm":  # the group has got a deadline, earlier or later than the ones that it has
            group.deadline = when
            deadlines.arm(group, when)
        elif move == "move later":
            group.deadline = max(group.deadline, when)
        elif move == "go away":
            group.deadline = math.inf
        elif move == "disarm":
            deadlines.disarm(group)
            groups[seq].deadline = math.inf
        elif move == "due":
            expected = sorted((g.deadline, g.seq) for g in groups.values() if g.deadline <= when < math.inf)
            if when < math.inf:
                assert end_all_due(deadlines, when) == [seq for _, seq in expected]
                for _, ended in expected:
                    groups[ended].deadline = math.inf
        live = [g.deadline for g in groups.values() if g.deadline < math.inf]
        if move == "next":
            assert deadlines.next() == min(live, default=None)
            assert deadlines.next() == min(live, default=None)
        assert deadlines.heap_size <= 2 * len(deadlines) + SLACK
    assert deadlines.next() == min((g.deadline for g in groups.values() if g.deadline < math.inf), default=None)
