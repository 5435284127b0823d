"""Every order of events, on the real engine: no rule is broken, and the numbers of states are the known ones."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import count

import pytest
from mutants import MUTANTS
from replay import replay
from typer.testing import CliRunner

from cfg_fsm import Limits
from cfg_fsm.cli import app
from cfg_fsm.explore.coverage import Coverage
from cfg_fsm.explore.environment import Scheduler, unborn
from cfg_fsm.explore.report import properties
from cfg_fsm.explore.scenario import ALL_FAULTS, CONFIRMED, FAULTS, Faults, Scenario
from cfg_fsm.explore.search import Search, explore
from cfg_fsm.tables import COUPLING_ROWS

ONE_AT_A_TIME = Faults.of(FAULTS, 1, together=1)
NOT_STRANGE = replace(ONE_AT_A_TIME, strange=False)

#: Name: scenario, and how many states there are: unique ones, and all as they are reached by every event.
KNOWN = {
    # Each fault once, all of them on one way; with time.
    "no companions": (
        Scenario(companions=0, faults=ALL_FAULTS, streaming=(False,)).with_limits(passes=1),
        2_516,
        96_903,
    ),
    # The same without time; streaming parents as well.
    "one companion": (Scenario(companions=1, faults=ALL_FAULTS).lean(), 25_990, 1_378_341),
    # One fault of any kind on each way, with time.
    "one companion, with limits": (
        Scenario(companions=1, faults=ONE_AT_A_TIME, announced=(True,), streaming=(False,)).lean().with_limits(),
        2_445,
        133_515,
    ),
    # One fault of any kind on each way. Strange events are left to the others.
    "two companions": (
        Scenario(companions=2, faults=NOT_STRANGE).lean(),
        21_673,
        395_632,
    ),
    # Announced, one output, one fault, none lost or out of order: what two groups may do to each other.
    "two parents with a companion each": (
        Scenario(
            parents=2,
            companions=1,
            faults=Faults.of(("duplicated", "reused", "late"), 1, together=1),
            announced=(True,),
            streaming=(False,),
            outputs=1,
        ).lean(),
        6_149,
        180_241,
    ),
    # As the one with limits; what was aborted is released when it reports, and in time.
    "one companion, with limits, releases confirmed": (
        Scenario(companions=1, faults=ONE_AT_A_TIME, announced=(True,), streaming=(False,))
        .lean()
        .with_limits(CONFIRMED),
        2_979,
        163_033,
    ),
    # No other limit; what runs late may run on another replica.
    "one companion, releases confirmed, other replicas": (
        replace(
            Scenario(
                companions=1, faults=Faults.of(("reused", "late"), 1), announced=(True,), streaming=(False,)
            ).lean(),
            rebind=True,
        ).with_limits(Limits(confirm_s=2.0, tombstone_s=3.0)),
        1_890,
        42_110,
    ),
}

#: The same with fewer faults. They too meet all that can be met.
SMALLER = {
    "no companions, one fault": (
        Scenario(companions=0, faults=ONE_AT_A_TIME, streaming=(False,)).with_limits(passes=1),
        874,
        31_636,
    ),
    "one companion, one fault": (Scenario(companions=1, faults=NOT_STRANGE).lean(), 2_523, 36_170),
    "one companion, with limits, one fault": (
        Scenario(
            companions=1,
            faults=Faults.of(("lost", "duplicated"), 1, together=1),
            announced=(True,),
            streaming=(False,),
        )
        .lean()
        .with_limits(),
        306,
        4_537,
    ),
    "two companions, one fault": (
        Scenario(
            companions=2,
            faults=Faults.of(("duplicated", "late"), 1, together=1),
            announced=(True,),
            streaming=(False,),
        ).lean(),
        332,
        5_508,
    ),
    "two parents with a companion each, one fault": (
        Scenario(
            parents=2,
            companions=1,
            faults=Faults.of(("late",), 1),
            announced=(True,),
            streaming=(False,),
            outputs=1,
        ).lean(),
        565,
        15_009,
    ),
    # The tombstones go before what waits is released.
    "one companion, releases confirmed": (
        Scenario(
            companions=1,
            faults=Faults.of(("reused", "late"), 1),
            announced=(True,),
            streaming=(False,),
        )
        .lean()
        .with_limits(Limits(confirm_s=2.0, tombstone_s=1.0)),
        575,
        12_239,
    ),
    # Who is released first, and whose ids may be used again.
    "two parents, releases confirmed": (
        Scenario(
            parents=2,
            companions=0,
            faults=Faults.of(("reused", "late"), 1),
            announced=(True,),
            streaming=(False,),
            outputs=1,
        )
        .lean()
        .with_limits(Limits(confirm_s=2.0, tombstone_s=1.0), passes=1),
        2_157,
        41_767,
    ),
    "two companions, releases confirmed": (
        Scenario(
            companions=2,
            faults=Faults.of(("late",), 1),
            announced=(True,),
            streaming=(False,),
            outputs=1,
        )
        .lean()
        .with_limits(Limits(confirm_s=2.0, tombstone_s=1.0), passes=1),
        260,
        5_464,
    ),
}
ALL = {**SMALLER, **KNOWN}


@cache
def explored(name):
    """Each of them is explored once, by whichever test comes first: run a file by one process."""
    return explore(ALL[name][0])


@pytest.mark.parametrize("name", [*SMALLER, *(pytest.param(name, marks=pytest.mark.exhaustive) for name in KNOWN)])
def test_no_order_of_events_breaks_a_rule(name):
    _, unique, states = ALL[name]
    result = explored(name)
    assert result.violation is None
    assert result.truncated is None
    assert set(properties(result).values()) <= {"holds", "not asked"}
    assert (result.unique, result.states) == (unique, states), "the engine behaves differently: is that meant?"


@pytest.mark.parametrize(
    "known", [SMALLER, pytest.param(KNOWN, marks=pytest.mark.exhaustive)], ids=["smaller", "known"]
)
def test_every_row_every_coupling_row_and_every_failure_reason_is_reached(known):
    seen = Coverage()
    for name in known:
        seen.update(explored(name).coverage)
    assert seen.missing() == {"rows": [], "coupling rows": [], "failure reasons": []}
    assert seen.coupling == {row.name for row in COUPLING_ROWS}


def test_with_limits_ticks_alone_end_every_parent():
    result = explore(Scenario(companions=1, announced=(True,)).lean().with_limits())
    assert properties(result)["r10_ticks_alone_end_every_parent"] == "holds"
    assert properties(explore(Scenario(companions=0)))["r10_ticks_alone_end_every_parent"] == "not asked"


SMALL = Scenario(companions=1, faults=NOT_STRANGE, streaming=(False,)).lean()


def walked(scenario):
    """The edges by which each state was first reached, in order."""
    search = Search(scenario)
    result = search.run()
    return [result.unique, result.states, result.checked, *search._came_from, *search._came_by]


def test_the_same_scenario_is_explored_in_the_same_order():
    assert walked(SMALL) == walked(SMALL)


def test_the_order_does_not_hang_on_the_hashes_of_strings():
    code = "from test_explore import SMALL, walked; import zlib; print(zlib.crc32(repr(walked(SMALL)).encode()))"
    path = os.pathsep.join([os.path.dirname(__file__), *sys.path])
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1


def test_companions_taken_for_the_same_make_fewer_states():
    scenario = Scenario(companions=2, announced=(True,), streaming=(False,)).lean()
    every, fewer = explore(scenario), explore(replace(scenario, symmetry=True))
    assert every.violation is fewer.violation is None
    assert fewer.unique < every.unique
    assert fewer.coverage.missing() == every.coverage.missing()


def test_time_and_memory_are_bounded_and_it_is_said():
    few = explore(SMALL, max_states=100)
    assert few.unique >= 100
    assert few.truncated == "at 100 states"
    ticks = count()
    short = explore(SMALL, max_seconds=60.0, clock=lambda: float(next(ticks)))
    assert short.truncated == "after 60 seconds"
    assert 1 < short.unique < explore(SMALL).unique
    none = explore(SMALL, max_seconds=0.0, clock=lambda: 0.0)
    assert none.truncated == "after 0 seconds"
    assert none.unique == 1


def test_a_group_without_a_deadline_is_one_state_though_others_may_have_one():
    """The only limit counts while a parent is deferred, so most groups have no deadline to be told apart by."""
    scenario = Scenario(companions=0, limits=Limits(deferred_s=2.0))
    result = explore(scenario, max_states=2_000)
    assert (result.truncated, result.violation) == (None, None)


def test_progress_is_told():
    told = []
    explore(SMALL, on_progress=told.append)
    assert told
    assert told[0].unique == 1


@pytest.mark.parametrize("fault", ["lost", "duplicated", "reordered", "reused", "late", "strange"])
def test_a_fault_that_is_switched_off_does_not_happen(fault):
    one = replace(SMALL, faults=Faults.of([fault], 1))
    none = replace(SMALL, faults=Faults())
    with_fault, without = explore(one), explore(none)
    assert with_fault.states > without.states
    moves = Scheduler(none, "p").moves(unborn(1))
    assert {move.fault for move in moves} == {None}


# -- the command --------------------------------------------------------------------------------------------

RUN = CliRunner()
FAST = ["explore", "--companions", "0", "--faults", "none", "--limits", "none"]


def test_the_command_says_what_it_explored():
    done = RUN.invoke(app, FAST)
    assert done.exit_code == 0
    assert "74 unique" in done.stdout
    assert "r1 a parent ends once" in done.stdout
    assert "Never reached:" in done.stdout


def test_the_command_says_it_as_json():
    done = RUN.invoke(app, [*FAST, "--json", "--streaming", "--announced"])
    found = json.loads(done.stdout)
    assert found["violation"] is None
    assert found["truncated"] is None
    assert set(found["properties"].values()) == {"holds", "not asked"}
    assert "announced, streaming" in found["scenario"]


def test_truncation_has_its_exit_code():
    done = RUN.invoke(app, [*FAST, "--max-states", "20"])
    assert done.exit_code == 3
    assert "TRUNCATED at 20 states" in done.stdout
    assert "holds so far" in done.stdout


def test_an_unknown_fault_is_refused():
    done = RUN.invoke(app, [*FAST[:3], "--faults", "late,wrong"])
    assert done.exit_code == 2
    assert "there is no fault 'wrong'" in done.stderr


def test_a_violation_is_shown_and_exported_as_a_case(tmp_path):
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == "checks_only_when_a_companion_completes")
    path = tmp_path / "waits-for-ever.json"
    small = ["--limits", "none", "--faults", "none", "--lean"]
    with mutant():
        done = RUN.invoke(app, ["explore", *small, "--export", str(path)])
    assert done.exit_code == 1
    assert "a bundle is sent when, and only when, it is complete" in done.stdout
    assert "To be answered was: accepted; forward p with" in done.stdout
    case = json.loads(path.read_text())
    assert case["id"] == "waits-for-ever"
    assert replay(case) is None


def test_ctrl_c_shows_what_was_found_up_to_there(monkeypatch):
    def press(self, *args):
        raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_reach", press)
    done = RUN.invoke(app, FAST)
    assert done.exit_code == 130
    assert "TRUNCATED by Ctrl-C" in done.stdout
    assert "interrupted" in done.stderr
