"""Whose release waits: by group, in the order of deadline, then of registration."""

from budget import part_of
from hypothesis import given, settings
from hypothesis import strategies as st

from cfg_fsm.engine.confirmations import SLACK, Confirmations, Told, Waiting


def group(seq, deadline, *ids, replica=None):
    told = {request_id: Told(request_id, ids[0], 1, 0.0, replica) for request_id in ids}
    return Waiting(seq, ids[0], 1, deadline, told)


def waiting(*groups):
    confirmations = Confirmations()
    for one in groups:
        confirmations.add(one)
    return confirmations


def release(confirmations, now):
    """Who is due, in order; each group is released before the next is asked for."""
    found = []
    for one in confirmations.due(now):
        found.append(list(one.told))
        for request_id in list(one.told):
            confirmations.remove(request_id)
    return found


def test_at_first_nobody_waits():
    confirmations = Confirmations()
    assert (len(confirmations), confirmations.first(), release(confirmations, 1e9)) == (0, None, [])
    confirmations.remove("p")
    assert confirmations.on((0, 0)) == []


def test_those_that_are_due_come_in_the_order_of_deadline_then_of_registration():
    confirmations = waiting(group(3, 5.0, "r"), group(2, 9.0, "q"), group(1, 5.0, "p", "a"))
    assert confirmations.first().parent_id == "p"
    assert release(confirmations, 4.9) == []
    assert release(confirmations, 5.0) == [["p", "a"], ["r"]]
    assert list(confirmations.by_id) == ["q"]


def test_who_is_gone_is_passed_over():
    confirmations = waiting(group(1, 5.0, "p", "a"), group(2, 7.0, "q"))
    confirmations.remove("p")
    confirmations.remove("p")
    assert confirmations.first().told.keys() == {"a"}
    confirmations.remove("a")
    assert confirmations.first().parent_id == "q"


def test_those_on_a_replica_are_found_by_group():
    confirmations = waiting(
        group(2, 9.0, "q", "b", replica=(0, 1)), group(1, 9.0, "p", replica=(0, 1)), group(3, 1.0, "r")
    )
    assert [(one.parent_id, ids) for one, ids in confirmations.on((0, 1))] == [("p", ["p"]), ("q", ["q", "b"])]


def test_a_copy_goes_its_own_way():
    confirmations = waiting(group(1, 5.0, "p", "a"))
    twin = confirmations.copy()
    twin.by_id["a"].told["a"].replica = (0, 7)
    twin.remove("p")
    assert list(confirmations.by_id) == ["p", "a"]
    assert confirmations.on((0, 7)) == []
    assert release(twin, 5.0) == [["a"]]


@settings(max_examples=part_of(200))
@given(st.lists(st.tuples(st.sampled_from("anrt"), st.integers(0, 9)), max_size=60))
def test_they_answer_as_a_plain_list_does(deeds):
    confirmations, plain = Confirmations(), {}
    for seq, (deed, number) in enumerate(deeds):
        if deed in "an":
            ids = [f"p{seq}", f"c{seq}"]
            confirmations.add(group(seq, float(number), *ids))
            plain[seq] = (float(number), ids)
        elif deed == "r" and plain:
            victim = list(plain)[number % len(plain)]
            gone = plain[victim][1].pop()
            confirmations.remove(gone)
            if not plain[victim][1]:
                del plain[victim]
        else:
            due = [(when, s) for s, (when, _) in plain.items() if when <= number]
            assert release(confirmations, float(number)) == [plain[s][1] for _, s in sorted(due)]
            for _, s in due:
                del plain[s]
        first = min(((when, s) for s, (when, _) in plain.items()), default=None)
        found = confirmations.first()
        assert first == (None if found is None else (found.deadline, found.seq))
        assert sorted(confirmations.by_id) == sorted(i for _, ids in plain.values() for i in ids)
        assert len(confirmations._heap) <= 2 * len(confirmations._groups) + SLACK
