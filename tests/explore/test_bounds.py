"""The explorer keeps to its bounds, whatever it is asked to explore."""

from dataclasses import replace
from itertools import count

import pytest
from typer.testing import CliRunner

from cfg_fsm.cli import app
from cfg_fsm.explore.scenario import ALL_FAULTS, SHORT_LIMITS, Faults, Scenario
from cfg_fsm.explore.search import Search, _Budgets, explore

LARGE = Scenario(parents=3, companions=4, faults=ALL_FAULTS, limits=SHORT_LIMITS, passes=1)


@pytest.mark.parametrize(
    "scenario",
    [
        LARGE,
        replace(LARGE, passes=10**9),
        replace(LARGE, parents=1, companions=1, passes=10**9),
        replace(LARGE, faults=Faults.of(("lost", "duplicated", "reordered", "reused"), 10**30)),
        replace(LARGE, faults=Faults.of(("lost", "reordered"), 10**5, 10**6), passes=10**5),
    ],
    ids=["many requests", "and much time", "much time", "many faults", "many of both"],
)
def test_the_clock_is_looked_at_before_each_step_of_the_engine(scenario):
    """One state of many requests has hundreds of steps: time may be up in the middle of them."""
    for most in (1, 2, 50):
        ticks = count()
        search = Search(scenario)
        result = search.run(max_seconds=float(most), clock=lambda now=ticks: float(next(now)))
        assert result.truncated == f"after {most} seconds"
        assert result.checked < most


def test_states_are_counted_before_each_step_too():
    result = explore(LARGE, max_states=5)
    assert result.truncated == "at 5 states"
    assert result.unique < 300
    result = explore(LARGE, max_engine_states=5)
    assert result.truncated == "at 5 states of the engine"
    assert result.engine_states == 5


@pytest.mark.parametrize("together", [None, 0, 1, 3])
def test_what_is_left_is_compared_field_by_field(together):
    scenario = Scenario(faults=Faults(lost=1, duplicated=2, reordered=0, reused=5, together=together), passes=3)
    budgets = _Budgets(scenario)
    most = {"lost": 1, "duplicated": 2, "reordered": 0, "reused": 5, "pass": 3}
    room = sum(most.values()) - 3 if together is None else together
    known = {budgets.first: most}
    todo = [budgets.first]
    for left in todo:
        for name, amount in known[left].items():
            spent = sum(most.values()) - 3 - sum(known[left].values()) + known[left]["pass"]
            allowed = amount > 0 and (name == "pass" or spent < room)
            after = budgets.spend(left, name)
            assert (after >= 0) == allowed
            if allowed and after not in known:
                known[after] = {**known[left], name: amount - 1}
                todo.append(after)
    for one, of_one in known.items():
        for other, of_other in known.items():
            assert budgets.covers(one, other) == all(of_one[name] >= of_other[name] for name in most)


@pytest.mark.parametrize("option", ["--seconds", "--budget"])
def test_the_command_ends_when_it_is_told_to(option):
    done = CliRunner().invoke(app, ["explore", option, "1" + "0" * 40, "--max-states", "50"])
    assert done.exit_code == 3
    assert "TRUNCATED at 50 states" in done.stdout


def test_the_command_has_an_end_of_its_own(monkeypatch):
    monkeypatch.setattr("cfg_fsm.explore.search.MAX_STATES", 60)
    done = CliRunner().invoke(app, ["explore", "--seconds", "100000"])
    assert (done.exit_code, "TRUNCATED at 60 states" in done.stdout) == (3, True)
    monkeypatch.setattr("cfg_fsm.explore.search.MAX_ENGINE_STATES", 30)
    done = CliRunner().invoke(app, ["explore", "--seconds", "100000", "--max-states", "5000000"])
    assert (done.exit_code, "TRUNCATED at 30 states of the engine" in done.stdout) == (3, True)


@pytest.mark.parametrize("limit", ["total_s=1e308", "silent_s=1e-320", "tombstone_s=1e9"])
def test_limits_beside_which_a_second_is_nothing_are_refused(limit):
    done = CliRunner().invoke(app, ["explore", "--limits", limit])
    assert done.exit_code == 2
    assert "must lie between 0.001 and 1,000,000 s here" in " ".join(done.stderr.split())


def test_a_bound_that_is_no_number_is_reached_at_once():
    assert explore(LARGE, max_seconds=float("nan"), clock=lambda: 0.0).truncated == "after nan seconds"
