"""Field failures as event sequences, each with the right answer."""

import json
from pathlib import Path

import pytest

from cfg_fsm import Limits, Registry, parse_event

CASES = sorted((Path(__file__).parent / "cases").glob("*.json"))


def matches(expected, got):
    """Whether ``got`` has everything that ``expected`` names."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(k in got and matches(v, got[k]) for k, v in expected.items())
    return expected == got


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path):
    case = json.loads(path.read_text())
    registry = Registry(limits=Limits(**case["limits"]))
    for number, step in enumerate(case["steps"], 1):
        got = registry.dispatch(parse_event(step["event"])).to_dict()
        expect = step["expect"]
        where = f"step {number}: {step['event']}\ngot {got}"
        dispositions = expect["disposition"]
        assert got["disposition"] in ([dispositions] if isinstance(dispositions, str) else dispositions), where
        if "actions" in expect:
            assert len(got["actions"]) == len(expect["actions"]), where
            for expected, action in zip(expect["actions"], got["actions"], strict=True):
                assert matches(expected, action), where
    assert len(registry.requests()) == case["after"]["live"]
    assert registry.counters()["live"] == case["after"]["live"]


def test_there_are_cases():
    assert len(CASES) >= 20
