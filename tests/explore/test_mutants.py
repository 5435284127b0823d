"""The explorer at work: it finds what is wrong with each of many broken engines, by a short sequence of events."""

import json

import pytest
from mutants import MUTANTS
from replay import replay

from cfg_fsm.explore.counterexample import table, tell, to_case
from cfg_fsm.explore.search import explore
from cfg_fsm.rules.checker import REGISTRY_CHECKS

LONGEST = 8


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_engine_is_found_out(mutant):
    with mutant():
        result = explore(mutant.scenario)
        assert result.violation is not None, f"{result.unique} states and nothing found"
        told = tell(mutant.scenario, result.violation)
        case = to_case(mutant.scenario, result.violation, mutant.name)
    assert mutant.rule in result.violation.rules, result.violation
    assert len(result.violation.signals) <= LONGEST
    text = table(told, result.violation)
    assert result.violation.why in text
    assert all(f"{it.rule.name}, {it.rule.title}: {it.rule.sentence}" in text for it in result.violation.checks)
    assert all(step.short in text for step in told)
    assert replay(json.loads(json.dumps(case))) is None


@pytest.mark.parametrize("scenario", {mutant.scenario: None for mutant in MUTANTS}, ids=lambda it: it.title)
def test_the_right_engine_is_not(scenario):
    assert explore(scenario).violation is None


#: What shows in the actions fails as a case too. (What is left behind shows to a look inside only.)
SHOWN = [mutant for mutant in MUTANTS if mutant.rule[:3] in ("r1_", "r2_", "r3_", "r4_", "r8_", "the", "eve")]


@pytest.mark.parametrize("mutant", SHOWN, ids=lambda mutant: mutant.name)
def test_what_is_found_is_a_case_that_the_broken_engine_fails(mutant):
    with mutant():
        violation = explore(mutant.scenario).violation
        assert replay(to_case(mutant.scenario, violation)) is not None


def test_there_is_a_broken_engine_for_each_rule():
    assert len(MUTANTS) >= 15
    checks = {check.name: check for check in REGISTRY_CHECKS}
    broken = {checks[mutant.rule].rule.name for mutant in MUTANTS}
    assert {f"R{number}" for number in range(1, 13)} <= broken
