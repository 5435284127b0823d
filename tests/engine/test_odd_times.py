"""Times that cannot be right: the clock never goes back (R11), and nobody is left to find out by himself."""

import logging

import pytest
from helpers import TWO, abort, beat, done, finish, output, register, sentence, start, tick, told
from typer.testing import CliRunner

from cfg_fsm import Limits, Registry
from cfg_fsm.cli import app
from cfg_fsm.trace.run import Run
from cfg_fsm.trace.summary import render

DAY = 86_400.0
EPOCH_MS = 1.7e12
QUIET = {"undated": 0, "behind": 0, "furthest_behind_s": 0.0, "largest_jump_s": 0.0}


def odd(registry):
    """What the counters say of the clock, without what is as it should be."""
    return {name: value for name, value in registry.counters()["clock"].items() if value != QUIET[name]}


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


# -- the registry ------------------------------------------------------------------------------------------


def test_times_that_go_on_are_not_odd(caplog):
    registry = Registry(Limits(total_s=5))
    registry.dispatch_many([register("p", {}, at=1e6), beat("p", at=1e6), beat("p", at=1e6 + 2), tick(1e6 + 3)])
    assert odd(registry) == {"largest_jump_s": 2.0}
    assert warnings(caplog) == []


def test_events_behind_the_clock_are_counted_with_the_furthest_and_warned_of_once(caplog):
    registry = Registry()
    registry.dispatch_many([register("p", {}, at=10.0), beat("p", at=9.5), beat("p", at=2.0), beat("p", at=9.0)])
    assert odd(registry) == {"behind": 3, "furthest_behind_s": 8.0}
    (warning,) = warnings(caplog)
    assert "request_progressed has at=9.5, 0.5 s before" in warning


def test_a_jump_of_more_than_a_day_is_warned_of_once_and_the_largest_jump_is_kept(caplog):
    registry = Registry()
    registry.dispatch_many([register("p", {}, at=5.0), beat("p", at=5.0 + DAY)])
    assert warnings(caplog) == [], "a day is not too long"
    registry.dispatch_many([beat("p", at=EPOCH_MS), beat("p", at=3 * EPOCH_MS), beat("p", at=3 * EPOCH_MS + 1)])
    assert odd(registry) == {"largest_jump_s": 2 * EPOCH_MS}
    (warning,) = warnings(caplog)
    assert "at=1700000000000.0" in warning
    assert "in another unit" in warning


def test_the_first_time_is_no_jump(caplog):
    registry = Registry()
    registry.dispatch(register("p", {}, at=EPOCH_MS))
    assert odd(registry) == {}
    assert warnings(caplog) == []


@pytest.mark.parametrize(
    ("limits", "own"),
    [
        *((Limits(**{name: 5.0}), None) for name in ("deferred_s", "silent_s", "start_s", "total_s", "confirm_s")),
        (Limits(), Limits(total_s=5)),
        (Limits(), Limits(confirm_s=5)),
    ],
)
def test_events_without_a_time_count_while_a_limit_in_time_is_set(limits, own, caplog):
    registry = Registry(limits)
    registry.dispatch_many([register("p", {}, limits=own, at=1.0), beat("p"), beat("p")])
    assert odd(registry) == {"undated": 2}
    (warning,) = warnings(caplog)
    assert "request_progressed has no `at`" in warning
    assert registry.copy().counters() == registry.counters()
    assert registry.copy().dispatch(beat("p")) == registry.dispatch(beat("p"))


def test_without_a_limit_in_time_no_event_needs_a_time(caplog):
    registry = Registry(Limits(max_requests=5, tombstone_s=1))
    registry.dispatch_many([register("p", {}, limits=Limits(max_companions_per_parent=2)), output("p")])
    assert odd(registry) == {}
    assert warnings(caplog) == []


def test_each_kind_has_its_own_warning_and_a_copy_does_not_repeat_it(caplog):
    registry = Registry(Limits(total_s=5))
    registry.dispatch_many([register("p", {}, at=3.0), beat("p", at=1.0), beat("p"), beat("p", at=EPOCH_MS)])
    assert len(warnings(caplog)) == 3
    registry.copy().dispatch_many([beat("p", at=1.0), beat("p"), beat("p", at=9 * EPOCH_MS)])
    assert len(warnings(caplog)) == 3


def test_the_clock_never_goes_back_and_what_is_set_later_counts_from_it():
    registry = Registry(Limits(total_s=10, silent_s=4))
    registry.dispatch_many([register("p", TWO, at=100.0), start("a", at=20.0)])
    assert registry.now == 100.0
    assert registry.next_deadline() == 104.0
    registry.dispatch(tick(50.0))
    assert registry.now == 100.0
    assert told(registry.dispatch(tick(104.0)))[0] == "fail p: silent"


def test_one_wrong_unit_does_not_pass_in_silence(caplog):
    """No deadline comes after it, as R11 wants; an operator can see it in three places."""
    registry = Registry(Limits(total_s=10))
    registry.dispatch_many([register("p", {}, at=100.0), beat("p", at=100_000_000.0), register("q", {}, at=101.0)])
    assert told(registry.dispatch(tick(500.0))) == ["fail p: total_deadline", "abort p", "release p"]
    assert odd(registry) == {"behind": 2, "furthest_behind_s": 99_999_899.0, "largest_jump_s": 99_999_900.0}
    assert len(warnings(caplog)) == 2


def test_a_log_handler_that_raises_does_no_harm():
    class Broken(logging.Handler):
        def emit(self, record):
            raise RuntimeError("no disk")

    handler = Broken()
    logging.getLogger("cfg_fsm").addHandler(handler)
    try:
        registry = Registry()
        registry.dispatch_many([register("p", {}, at=5.0), beat("p", at=1.0)])
    finally:
        logging.getLogger("cfg_fsm").removeHandler(handler)
    assert odd(registry) == {"behind": 1, "furthest_behind_s": 4.0}


# -- a run of a trace --------------------------------------------------------------------------------------


def run(events, **limits):
    actions = []
    job = Run(Registry(Limits(**limits)), actions.append)
    job.feed(list(enumerate(events, 1)))
    return job, [sentence(action.to_dict()) for action in actions]


def test_a_run_says_where_the_first_event_of_each_kind_stands():
    events = [
        register("p", {}, at=10.0), beat("p", at=8.0), beat("p", at=1.0), beat("p"), beat("p", at=EPOCH_MS),
        beat("p", at=11.0), beat("p"),
    ]  # fmt: skip
    job, _ = run(events, total_s=5.0)
    assert job.summary().clock == {
        "behind": {"count": 3, "line": 2, "by_s": 2.0},
        "undated": {"count": 2, "line": 4, "by_s": 0.0},
        "jump": {"count": 1, "line": 5, "by_s": EPOCH_MS - 10.0},
    }
    assert odd(job.registry)["undated"] == 2
    text = render(job.summary(), terminal=False).splitlines()
    assert next(line for line in text if line.startswith("line 5")).endswith("to be trusted (1 such event in all)")
    assert any(line.startswith("line 2 lies 2.000 s before the event ahead of it") for line in text)
    assert any(line.startswith("line 4 has no `at` while limits in time are set") for line in text)


def test_a_run_of_a_trace_whose_times_go_on_says_nothing_of_them():
    job, _ = run([register("p", {}, at=10.0), output("p", at=12.0), finish("p", at=12.0)], total_s=50.0)
    assert job.summary().clock == {}
    undated, _ = run([register("p", {}), output("p"), finish("p")])
    assert undated.summary().clock == {}


def test_a_limit_that_a_parent_brings_makes_events_without_a_time_odd_from_there_on():
    job, _ = run([register("q", {}), register("p", {}, limits=Limits(total_s=5)), beat("p")])
    assert job.summary().clock == {"undated": {"count": 1, "line": 3, "by_s": 0.0}}


@pytest.mark.parametrize("limits", [{"confirm_s": 1.0}, {"confirm_s": 1.0, "total_s": 50.0}])
def test_a_run_plays_the_clock_for_what_waits_for_its_report(limits):
    events = [register("p", {"neg": "a"}, at=1.0), abort("p", at=2.0), register("q", {}, at=30.0)]
    job, said = run(events, **limits)
    assert said == ["acknowledge p=ended", "abort p a", "release p a"]
    assert odd(job.registry) == {"largest_jump_s": 27.0}, "the tick came in its time"


def test_the_command_names_the_first_such_line_and_what_it_means(tmp_path):
    trace = tmp_path / "t.jsonl"
    events = [register("p", {"neg": "a"}, at=1.0), output("p", at=2.0), done("a", at=EPOCH_MS), beat("p", at=3.0)]
    trace.write_text("".join(event.model_dump_json(exclude_none=True) + "\n" for event in events))
    result = CliRunner().invoke(app, ["run", str(trace)])
    assert result.exit_code == 0
    words = " ".join(result.stdout.split())
    assert "line 3 goes on by 1,699,999,999,998.000 s at once" in words
    assert "another unit" in words
    assert "line 4 lies 1,699,999,999,997.000 s before the event ahead of it" in words
