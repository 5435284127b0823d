"""The rules, asked of an audit log."""

import pytest
from budget import part_of
from helpers import Host, abort, done, error, finish, join, output, register, seal, start, tick
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import mishaps

from cfg_fsm import Limits, Registry
from cfg_fsm.audit.conform import check
from cfg_fsm.audit.reading import read_audit
from cfg_fsm.cli import app
from cfg_fsm.rules import RULES
from cfg_fsm.rules.checker import LOG_CHECKS


def a_run():
    """The records of a run with a finish, a failure, an abort, a deadline and late events."""
    host = Host(total_s=50)
    host.send(
        register("p", {"neg": "a", "img": "b"}), start("a", 0), output("p"), done("b"), done("a"), finish("p")
    )
    host.send(register("q", None), join("q", "neg", "c"), seal("q"), error("c"), start("c"), done("c"))
    host.send(register("r", {"neg": "d"}), abort("r"), register("s", {}), join("r", "img", "e"), tick(60.0))
    return host.records


def test_a_right_run_is_right():
    assert list(check(a_run())) == []


def test_the_audit_of_the_sample_trace_is_right(tmp_path):
    from typer.testing import CliRunner

    path = tmp_path / "audit.jsonl"
    done = CliRunner().invoke(app, ["run", "--sample", "--audit", str(path), "--limits", "deferred_s=2"])
    assert done.exit_code == 0
    assert list(check(read_audit(str(path)))) == []


@settings(max_examples=part_of(60))
@given(mishaps(), st.sampled_from([Limits(), Limits(deferred_s=2, start_s=3, total_s=9)]))
def test_the_audit_of_what_goes_wrong_is_right(events, limits):
    records = []
    Registry(limits, [records.append]).dispatch_many(events)
    assert list(check(records)) == []


def find(records, **values):
    return next(
        number for number, record in enumerate(records) if all(getattr(record, k) == v for k, v in values.items())
    )


def without(records, **values):
    number = find(records, **values)
    return [*records[:number], *records[number + 1 :]]


def twice(records, **values):
    number = find(records, **values)
    return [*records[: number + 1], *records[number:]]


def changed(records, change, **values):
    number = find(records, **values)
    return [*records[:number], records[number]._replace(**change), *records[number + 1 :]]


def told(records, kind, **body):
    number = find(records, kind="action", trigger=kind)
    return changed(records, {"event": {**records[number].event, **body}}, kind="action", trigger=kind)


def find_late_join(records):
    """The step in which a companion joins a group that has ended."""
    return records[find(records, kind="rejected")].event_seq


WRONG = {
    "rows: p: there is no row": lambda r: changed(r, {"dest": "done"}, trigger="defer", request_id="p"),
    "rows: a leaves running": lambda r: without(r, trigger="start", request_id="a"),
    "rows: a begins in": lambda r: changed(r, {"dest": "running"}, kind="created", request_id="a"),
    "R8: c moves and is not live": lambda r: twice(r, trigger="clean", request_id="c"),
    "R9: a is registered while": lambda r: twice(r, kind="created", request_id="a"),
    "R5: b is not of life": lambda r: changed(r, {"life": 7}, trigger="complete", request_id="b"),
    "R1: p ends again": lambda r: twice(r, trigger="finish", request_id="p"),
    "R1: the failure of q is told again": lambda r: twice(r, kind="action", trigger="fail_parent"),
    "R2: the bundle of p": lambda r: told(r, "forward_parent", companion_outputs=[]),
    "R4: fail_parent names c": lambda r: told(r, "fail_parent", parent_id="c"),
    "R3: abort_requests names x": lambda r: told(r, "abort_requests", request_ids=["q", "x"]),
    "R3: release_requests names an id twice": lambda r: told(r, "release_requests", request_ids=["p", "a", "a"]),
    "R3: released of p is []": lambda r: without(r, kind="action", trigger="release_requests"),
    "R5: abort_requests of a refused event names s": lambda r: changed(
        r, {"event": {"request_ids": ["s"]}}, kind="action", event_seq=find_late_join(r), trigger="abort_requests"
    ),
    "R7: a is left": lambda r: without(r, trigger="clean", request_id="a"),
}


@pytest.mark.parametrize("problem", WRONG)
def test_a_wrong_log_is_found_out(problem):
    found = [str(one) for one in check(WRONG[problem](a_run()))]
    assert any(problem in one for one in found), found


def test_a_problem_names_the_rule_that_is_stated():
    for wrong in WRONG.values():
        assert all(problem.rule is RULES[problem.rule.name] for problem in check(wrong(a_run())))


def test_every_check_of_a_log_is_broken_by_a_wrong_one():
    broken = {one.check for wrong in WRONG.values() for one in check(wrong(a_run()))}
    assert broken == {one for moment in LOG_CHECKS.values() for one in moment}


def test_nothing_is_told_of_a_life_that_has_ended():
    records = a_run()
    late = records[find(records, trigger="forward_parent")]._replace(event_seq=records[-1].event_seq)
    found = [str(one) for one in check([*records, late])]
    assert len(found) == 1
    assert "R1: forward_parent for a life that has ended" in found[0]


def test_of_one_who_tells_no_actions_none_are_missed():
    records = [record for record in a_run() if record.kind != "action"]
    assert any("R3" in str(one) for one in check(records))
    assert list(check(records, actions=False)) == []
