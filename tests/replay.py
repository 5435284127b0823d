"""Cases, that is, events with their right answers, as the explorer exports them and ``tests/cases`` keeps them."""

from __future__ import annotations

from typing import Any

from cfg_fsm import Limits, Registry, parse_event


def matches(expected: Any, got: Any) -> bool:
    """Whether ``got`` has everything that ``expected`` names."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and all(k in got and matches(v, got[k]) for k, v in expected.items())
    return bool(expected == got)


def replay(case: dict[str, Any]) -> str | None:
    """What the engine does first that is not as the case expects; ``None``: it does all as expected."""
    registry = Registry(limits=Limits(**case["limits"]))
    for number, step in enumerate(case["steps"], 1):
        got, expect = registry.dispatch(parse_event(step["event"])).to_dict(), step["expect"]
        right = expect["disposition"]
        actions = expect.get("actions", got["actions"])
        if (
            got["disposition"] not in ([right] if isinstance(right, str) else right)
            or len(got["actions"]) != len(actions)
            or not all(map(matches, actions, got["actions"]))
        ):
            return f"step {number}: {step['event']}\nexpected {expect}\ngot {got}"
    live = len(registry.requests()), registry.counters()["live"]
    expected = case["after"]["live"]
    return None if live == (expected, expected) else f"after it {live} are live, not {expected}"
