"""What an exploration has found, as text for people and as plain data."""

from __future__ import annotations

from typing import Any

from cfg_fsm.explore.coverage import Coverage
from cfg_fsm.explore.search import Result
from cfg_fsm.rules.checker import REGISTRY_CHECKS
from cfg_fsm.rules.rule import Kind


def properties(result: Result) -> dict[str, str]:
    """Each check with its result: ``holds``, ``holds so far`` if not everything was explored, ``broken``, or
    ``not asked``."""
    broken = () if result.violation is None else result.violation.checks
    holds = "holds" if result.truncated is None and result.violation is None else "holds so far"
    found = {}
    for check in REGISTRY_CHECKS:
        # Without a total limit nothing promises an end.
        unasked = check.kind is Kind.WALK and result.scenario.limits.total_s is None
        found[check.name] = "broken" if check in broken else "not asked" if unasked else holds
    return found


def to_dict(result: Result) -> dict[str, Any]:
    """Everything, as plain data."""
    violation = result.violation
    return {
        "scenario": result.scenario.title,
        "states": result.states,
        "unique": result.unique,
        "depth": result.depth,
        "engine_states": result.engine_states,
        "checked_steps": result.checked,
        "seconds": round(result.seconds, 3),
        "truncated": result.truncated,
        "properties": properties(result),
        "never": result.coverage.missing(),
        "violation": None
        if violation is None
        else {"rules": list(violation.rules), "why": violation.why, "events": len(violation.signals)},
    }


def text(result: Result) -> str:
    """One scenario as text."""
    lines = [
        result.scenario.title,
        f"  {result.states:,} states, {result.unique:,} unique, depth {result.depth}, {result.seconds:.1f} s",
        f"  the engine: {result.engine_states:,} states, {result.checked:,} steps held against the rules",
    ]
    if result.truncated is not None:
        lines.append(f"  TRUNCATED {result.truncated}: nothing is said of the rest")
    found = properties(result)
    width = max(map(len, found))
    lines += [f"    {name.replace('_', ' '):<{width}}  {what}" for name, what in found.items()]
    return "\n".join(lines)


def never(coverage: Coverage) -> str:
    """What never happened, as text."""
    missing = coverage.missing()
    if not any(missing.values()):
        return "Every row, every coupling row and every failure reason was reached."
    lines = ["Never reached:"]
    lines += [f"  {kind}: {', '.join(names)}" for kind, names in missing.items() if names]
    return "\n".join(lines)
