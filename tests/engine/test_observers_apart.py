"""Observers do not share bodies, nor does the host share any with them: what one does to its own stays there."""

import json

import pytest
from helpers import TWO, Payload, abort, done, error, finish, join, lose, output, register, seal, start, tick

from cfg_fsm import CfgCompanionTracker, Limits, Registry
from cfg_fsm.audit.sinks import JsonlAudit, MemoryAudit

EVENTS = (
    register("p", TWO, limits=Limits(total_s=50), at=1.0), register("q", at=1.0), join("q", "neg", "c", at=1.0),
    seal("q", at=1.0), start("a", 1, at=1.0), done("a", Payload("A"), at=2.0), done("b", Payload("B"), at=2.0),
    output("p", Payload("P"), at=3.0), error("c", at=4.0), register("r", {"neg": "d"}, at=4.0),
    start("d", 3, at=4.0), abort("p", "c", "nobody", at=5.0), lose(3, at=6.0), register("s", {}, at=7.0),
    tick(900.0), finish("s", at=901.0),
)  # fmt: skip


def ruin(body):
    """Empty a body, from the inside out."""
    if isinstance(body, dict | list):
        for inner in list(body.values()) if isinstance(body, dict) else body:
            ruin(inner)
        body.clear()


def vandal(record):
    ruin(record.event)


def run(*observers):
    """What the host is told."""
    registry = Registry(Limits(total_s=100), observers=observers)
    answers = [registry.dispatch(event) for event in EVENTS]
    assert registry.counters()["observer_errors"] == 0
    return [answer.to_dict() for answer in answers]


def seen_alone():
    seen = []
    run(lambda record: seen.append(json.dumps(record)))
    return seen


def test_the_events_bring_bodies_in_bodies():
    bodies = [json.loads(record)[12] for record in seen_alone()]
    assert {"dict", "list"} <= {type(one).__name__ for b in bodies if isinstance(b, dict) for one in b.values()}
    assert {b["type"] for b in bodies if isinstance(b, dict)} >= {
        "forward_parent", "fail_parent", "abort_requests", "release_requests", "acknowledge_abort",
    }  # fmt: skip


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_that_clears_bodies_changes_nothing_for_the_others(place):
    seen, memory = [], MemoryAudit()
    observers = [lambda record: seen.append(json.dumps(record)), memory]
    observers.insert(place, vandal)
    run(*observers)
    assert seen == seen_alone()
    assert [json.dumps(record) for record in memory.records] == seen


@pytest.mark.parametrize("first", [True, False])
def test_a_file_has_them_whole_as_well(first, tmp_path):
    texts = []
    for name, others in (("whole", []), ("beside a vandal", [vandal])):
        with JsonlAudit(tmp_path / name, clock=None) as audit:
            run(*([*others, audit] if first else [audit, *others]))
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]


def test_one_that_is_alone_ruins_neither_the_answers_nor_the_events():
    before = [event.model_dump() for event in EVENTS if event.type != "companion_output_ready"]
    assert repr(run(vandal)) == repr(run())
    assert [event.model_dump() for event in EVENTS if event.type != "companion_output_ready"] == before


def test_one_that_keeps_its_records_keeps_them_whole_when_another_ruins_its_own_later():
    kept, mine = [], []
    run(mine.append, kept.append)
    for record in mine:
        ruin(record.event)
    assert [json.dumps(record) for record in kept] == seen_alone()


def test_the_records_that_memory_hands_out_are_not_those_that_it_keeps():
    memory = MemoryAudit()
    run(memory)
    for record in memory.records:
        ruin(record.event)
    assert [json.dumps(record) for record in memory] == seen_alone()


def test_observers_of_a_tracker_are_apart_too():
    seen, memory = [], MemoryAudit()
    tracker = CfgCompanionTracker(observers=[vandal, seen.append, memory], clock=lambda: 1.0)
    tracker.register_companion("p", "neg", "a")
    assert tracker.abort_parents(["p"]) == ["p", "a"]
    assert memory.records == seen
    assert tracker.counters()["observer_errors"] == 0
