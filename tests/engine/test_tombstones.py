"""Tombstones: a bounded memory of ended ids."""

import math

import pytest
from budget import part_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cfg_fsm.engine.tombstones import Tombstone, Tombstones


def bury(stones, *ids, at=0.0, life=1, tell=()):
    """Remember the end of a group, whose ids were live until now; its first id is the parent's. ``tell``: those
    that are told to abort."""
    for request_id in ids:
        stones.forget(request_id)
    return end(stones, *ids, at=at, life=life, tell=tell)


def end(stones, *ids, at=0.0, life=1, tell=()):
    """Remember the end of a group of ids none of which is remembered."""
    stone = Tombstone(ids[0], life, at)
    stones.add(ids, stone)
    for request_id in tell:
        stones.tell(request_id, at, None)
    return stone


def said(stones, request_id):
    """What is remembered of somebody who was told to abort."""
    told = stones.told[request_id]
    return told.request_id, told.parent_id, told.life, told.since, told.replica


def remembered(stones, *ids):
    return [request_id for request_id in ids if stones.get(request_id) is not None]


def test_all_ids_of_a_group_share_what_is_remembered_of_its_end():
    stones = Tombstones(10, 60.0)
    stone = bury(stones, "p", "a", "b", at=5.0, life=3)
    assert stones.get("p") is stones.get("a") is stones.get("b") is stone
    assert (stone.parent_id, stone.life, stone.ended_at) == ("p", 3, 5.0)
    assert len(stones) == 3
    assert stones.get("x") is None


def test_a_tombstone_takes_no_attributes_beside_its_own():
    assert not hasattr(Tombstone("p", 1, 0.0), "__dict__")


def test_an_id_is_gone_when_its_time_is_over_and_not_before():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", at=5.0)
    stones.expire(64.999)
    assert remembered(stones, "p") == ["p"]
    stones.expire(65.0)
    assert remembered(stones, "p") == []
    assert len(stones) == 0


def test_the_time_to_look_again_is_never_later_than_the_oldest_has_to_go():
    stones = Tombstones(10, 60.0)
    assert stones.expire_at == math.inf
    bury(stones, "p", at=5.0)
    assert stones.expire_at == 65.0
    bury(stones, "q", at=9.0)
    assert stones.expire_at == 65.0
    stones.expire(65.0)
    assert stones.expire_at == 69.0
    stones.expire(100.0)
    assert stones.expire_at == math.inf


def test_those_that_ended_at_the_same_time_go_at_the_same_time():
    stones = Tombstones(10, 60.0)
    for parent, companion in (("p", "a"), ("q", "b")):
        bury(stones, parent, companion, at=5.0)
    bury(stones, "r", at=5.5)
    stones.expire(65.0)
    assert remembered(stones, *"paqbr") == ["r"]


def test_without_a_bound_in_time_nothing_expires():
    stones = Tombstones(10, None)
    bury(stones, "p")
    assert stones.expire_at == math.inf
    stones.expire(1e12)
    assert remembered(stones, "p") == ["p"]


def test_the_oldest_are_pushed_out_when_there_are_too_many():
    stones = Tombstones(3, None)
    for request_id in "pqrst":
        bury(stones, request_id)
    assert remembered(stones, *"pqrst") == ["r", "s", "t"]
    assert len(stones) == 3


def test_a_group_may_be_pushed_out_in_part():
    stones = Tombstones(3, None)
    bury(stones, "p", "a")
    bury(stones, "q", "b")
    assert remembered(stones, *"paqb") == ["a", "q", "b"]
    bury(stones, "r", "c")
    assert remembered(stones, *"paqbrc") == ["b", "r", "c"]


def test_of_a_group_that_is_larger_than_the_memory_a_part_is_remembered():
    stones = Tombstones(2, None)
    bury(stones, "p", "a", "b", "c")
    assert len(stones) == 2


def test_a_memory_for_nothing_remembers_nothing():
    stones = Tombstones(0, 60.0)
    bury(stones, "p", "a", tell=["p"])
    assert len(stones) == 0
    assert not stones.may_report("p")
    assert not stones.told
    stones.expire(1e9)


def test_an_id_that_is_in_use_again_is_forgotten_and_its_group_is_not():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", "a")
    stones.forget("p")
    stones.forget("x")
    assert remembered(stones, *"pa") == ["a"]


def test_an_id_that_ended_again_is_remembered_from_then_on():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", "a", at=0.0)
    stones.forget("p")
    again = bury(stones, "p", at=50.0, life=2)
    stones.expire(60.0)
    assert remembered(stones, *"pa") == ["p"]
    assert stones.get("p") is again
    stones.expire(109.9)
    assert remembered(stones, "p") == ["p"]
    stones.expire(110.0)
    assert remembered(stones, "p") == []


def test_an_id_that_ended_again_is_among_the_newest():
    stones = Tombstones(2, None)
    bury(stones, "p")
    bury(stones, "q")
    stones.forget("p")
    bury(stones, "p", life=2)
    bury(stones, "r")
    assert remembered(stones, *"pqr") == ["p", "r"]


def test_an_id_that_is_used_again_and_again_pushes_no_other_out():
    stones = Tombstones(3, None)
    bury(stones, "old")
    for life in range(1, 20):
        bury(stones, "busy", life=life)
        stones.forget("busy")
    bury(stones, "busy", life=20)
    assert remembered(stones, "old", "busy") == ["old", "busy"]


def test_what_is_kept_of_ids_that_are_used_again_and_again_is_bounded():
    stones = Tombstones(10, None)
    for life in range(1, 1000):
        bury(stones, "p", "a", life=life)
        stones.forget("p")
        stones.forget("a")
        assert len(stones.by_id) + len(stones.told) + len(stones._parent_lives) <= 4


def test_who_is_told_to_abort_may_report():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", "a", "b", at=5.0, life=3)
    assert not any(stones.may_report(request_id) for request_id in "pab")
    stones.tell("p", 5.0, (0, 1))
    stones.tell("b", 7.0, None)
    assert [stones.may_report(request_id) for request_id in "pabx"] == [True, False, True, False]
    assert said(stones, "p") == ("p", "p", 3, 5.0, (0, 1))
    assert said(stones, "b") == ("b", "p", 3, 7.0, None)


def test_who_is_told_again_was_told_last_then_and_is_where_it_was_last_heard_of():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", "a", tell=["p", "a"])
    stones.tell("p", 1.0, (0, 1))
    stones.tell("p", 2.0, None)
    assert said(stones, "p") == ("p", "p", 1, 2.0, (0, 1))
    stones.tell("p", 3.0, (2, 4))
    assert said(stones, "p") == ("p", "p", 1, 3.0, (2, 4))
    assert list(stones.told) == ["a", "p"]


def test_who_is_not_remembered_cannot_be_told():
    stones = Tombstones(10, 60.0)
    stones.tell("x", 1.0, (0, 1))
    assert not stones.told


@pytest.mark.parametrize("as_companion", [True, False])
def test_an_id_that_is_in_use_again_is_not_waited_for(as_companion):
    stones = Tombstones(10, 60.0)
    bury(stones, "p", "a", tell=["p", "a"])
    stones.forget("p", as_companion=as_companion)
    assert [stones.may_report(request_id) for request_id in "pa"] == [False, True]


def test_an_id_that_is_forgotten_cannot_report():
    stones = Tombstones(3, 60.0)
    bury(stones, "p", "a", tell=["p", "a"])
    bury(stones, "q", "b", at=1.0, tell=["q"])
    assert list(stones.told) == ["a", "q"]
    stones.expire(60.0)
    assert list(stones.told) == ["q"]
    stones.expire(61.0)
    assert not stones.told


def test_a_copy_remembers_the_same_and_forgets_on_its_own():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", "a", at=5.0, life=3, tell=["a"])
    stones.forget("p", as_companion=True)
    end(stones, "q", "p", at=6.0, life=1)
    twin = stones.copy()
    assert list(twin.by_id) == list(stones.by_id)
    assert [twin.last_life(request_id) for request_id in "paqx"] == [3, 3, 1, 0]
    assert twin.expire_at == stones.expire_at == 65.0
    assert said(twin, "a") == said(stones, "a")
    assert twin.told["a"] is not stones.told["a"]
    del twin.told["a"]
    assert (twin.may_report("a"), stones.may_report("a")) == (False, True)
    twin.expire(65.0)
    assert remembered(twin, *"paq") == ["p", "q"]
    assert remembered(stones, *"paq") == ["p", "a", "q"]


def test_a_copy_has_the_same_bounds():
    twin = Tombstones(2, 60.0).copy()
    for request_id in "pqr":
        bury(twin, request_id)
    assert remembered(twin, *"pqr") == ["q", "r"]
    twin.expire(60.0)
    assert len(twin) == 0


def test_a_parent_that_becomes_a_companion_keeps_the_number_of_its_lives_as_long_as_it_is_remembered():
    stones = Tombstones(10, 60.0)
    bury(stones, "p", at=0.0, life=7)
    stones.forget("p", as_companion=True)
    end(stones, "q", "p", at=50.0, life=1)
    assert stones.last_life("p") == 7
    stones.forget("p", as_companion=True)
    end(stones, "r", "p", at=60.0, life=9)
    assert stones.last_life("p") == 9
    stones.expire(120.0)
    assert stones.last_life("p") == 0
    assert stones._parent_lives == {}


def test_what_is_kept_of_former_parents_goes_with_what_is_pushed_out():
    stones = Tombstones(2, None)
    bury(stones, "p", life=7)
    stones.forget("p", as_companion=True)
    end(stones, "q", "p")
    assert stones._parent_lives == {"p": 7}
    bury(stones, "r", "s")
    assert stones._parent_lives == {}
    bury(stones, "p", life=8)
    stones.forget("p")
    assert stones._parent_lives == {}


class Naive:
    """The same memory as a plain list of ``(id, ended_at)``, the oldest first."""

    def __init__(self, limit, seconds):
        self.limit, self.seconds, self.ids = limit, math.inf if seconds is None else seconds, []
        self.told = set()

    def add(self, ids, at):
        self.ids = [(i, t) for i, t in self.ids if i not in ids] + [(i, at) for i in ids]
        self.ids = self.ids[max(0, len(self.ids) - self.limit) :]

    def forget(self, request_id):
        self.ids = [(i, t) for i, t in self.ids if i != request_id]
        self.told.discard(request_id)

    def expire(self, now):
        self.ids = [(i, t) for i, t in self.ids if now - t < self.seconds]

    def tell(self, request_id):
        self.told.add(request_id)

    def who_was_told(self):
        self.told &= set(dict(self.ids))
        return self.told


#: Whether a group ends, an id is used again, or some are told to abort; which ids, and how much later.
DEEDS = st.tuples(
    st.sampled_from(["end", "end", "use", "tell", "tell"]),
    st.lists(st.sampled_from("pqabc"), min_size=1, max_size=3, unique=True),
    st.sampled_from([0.0, 0.0, 1.0, 4.0]),
)


@settings(max_examples=part_of(300))
@given(st.sampled_from([0, 1, 2, 4, 100]), st.sampled_from([None, 5.0]), st.lists(DEEDS, max_size=40))
def test_the_memory_is_that_of_a_plain_list(limit, seconds, deeds):
    stones, naive, now = Tombstones(limit, seconds), Naive(limit, seconds), 0.0
    for deed, ids, gap in deeds:
        now += gap
        if stones.expire_at <= now:
            stones.expire(now)
        naive.expire(now)
        for request_id in ids:
            if deed == "tell":
                stones.tell(request_id, now, None)
                naive.tell(request_id)
            else:  # it comes to life, and is no longer remembered
                stones.forget(request_id)
                naive.forget(request_id)
        if deed == "end":
            bury(stones, *ids, at=now)
            naive.add(ids, now)
        assert remembered(stones, *"pqabc") == [i for i in "pqabc" if i in dict(naive.ids)]
        assert len(stones) == len(naive.ids)
        assert set(stones.told) == naive.who_was_told()
        assert all(stones.get(i).ended_at == at for i, at in naive.ids)
