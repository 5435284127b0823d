"""A log that goes on with another run of the engine: what the first run held has ended with it."""

import pytest
from helpers import TWO, abort, done, error, finish, output, register, start
from real_tracker import Clock

from cfg_fsm import CfgCompanionTracker, Registry
from cfg_fsm.audit.explain import explain
from cfg_fsm.audit.reading import AuditFile, verify
from cfg_fsm.audit.sinks import JsonlAudit, MemoryAudit


def log_of(*runs):
    """The records of several runs of the engine, one after the other."""
    records = []
    for events in runs:
        audit = MemoryAudit()
        Registry(observers=[audit]).dispatch_many(events)
        records += audit.records
    return records


def results(records, request_id):
    """What became of each life, each on one line."""
    text = " ".join("\n".join(explain(records, request_id)).split())
    return [part.split(" parent p, life ")[0].strip() for part in text.split("Result: ")[1:]]


FIRST = [
    register("p", TWO, at=100.0), start("a", 1, at=101.0), done("b", at=102.0), output("p", at=103.0),
    register("q", {}, at=104.0),
]  # fmt: skip


def test_a_request_that_never_ended_ended_with_its_run():
    (result,) = results(log_of(FIRST, [register("z", {}, at=5.0)]), "p")
    assert result.startswith("cut off at +4.000 s, where its run of the engine ended and another began: the")
    assert "deferred since +3.000 s" in result
    assert "no output yet of neg (a: running on replica 1 of stage 0" in result


@pytest.mark.parametrize("asked", ["p", "a", "b"])
def test_so_it_did_for_whomever_is_asked(asked):
    (result,) = results(log_of(FIRST, [register("z", {})]), asked)
    assert result.startswith("cut off at +4.000 s")


def test_in_the_last_run_it_is_open_and_in_the_one_before_cut_off():
    again = [register("p", {"neg": "a"}, at=1.0), output("p", at=2.5)]
    first, second, third = results(log_of(FIRST, again, again), "p")
    assert first.startswith("cut off at +4.000 s")
    assert second.startswith("cut off at +1.500 s")
    assert third.startswith("open when the log ends (+1.500 s): the parent is deferred")


def test_one_that_had_ended_keeps_its_end():
    ended = [*FIRST, error("a", "boom", at=106.0)]
    (result,) = results(log_of(ended, FIRST[-1:]), "p")
    assert result.startswith("ended at +6.000 s: failed, companion_failed")


def test_the_second_run_says_nothing_of_the_first_ones_requests():
    late = [register("z", {}, at=1.0), done("a", at=2.0), abort("p", at=3.0), finish("z", at=4.0)]
    result = results(log_of(FIRST, late), "p")
    assert result[0].startswith("cut off at +4.000 s")
    assert all("open" not in one for one in result)


def test_so_it_does_where_the_log_lacks_the_beginning_of_the_second_run():
    records = log_of(FIRST, [register("z", {}, at=1.0), register("y", {}, at=2.0)])
    first = len(log_of(FIRST))
    (result,) = results(records[:first] + records[first + 2 :], "p")
    assert result.startswith("cut off at +4.000 s")


def test_a_file_to_which_a_second_process_appended(tmp_path):
    path = tmp_path / "audit.jsonl"
    for events in (FIRST, [register("z", {}, at=1.0)]):
        with JsonlAudit(path) as audit:
            Registry(observers=[audit]).dispatch_many(events)
    verify(path)
    assert results(AuditFile(path), "p")[0].startswith("cut off at +4.000 s, where its run of the engine ended")
    assert results(AuditFile(path), "z")[0].startswith("open when the log ends")


def test_the_drop_in_tracker_is_told_of_alike():
    records, clock = [], Clock(10.0)
    for parent in ("p", "z"):
        tracker = CfgCompanionTracker(clock=clock, observers=[records.append])
        tracker.register_companion(parent, "neg", f"{parent}-neg")
        clock.now += 2.0
        tracker.defer_parent(parent, "P", 0)
    assert results(records, "p")[0].startswith("cut off at +2.000 s, where its run of the engine ended")
    assert results(records, "z")[0].startswith("open when the log ends (+2.000 s)")
