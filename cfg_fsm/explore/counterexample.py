"""A violation, told step by step: as a table for people, and as a case that a test can replay."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cfg_fsm.engine.registry import Registry
from cfg_fsm.explore import alphabet
from cfg_fsm.explore.environment import Signal
from cfg_fsm.explore.graph import next_due
from cfg_fsm.explore.scenario import Scenario
from cfg_fsm.explore.search import Violation
from cfg_fsm.rules.account import Foreseen
from cfg_fsm.rules.history import History


@dataclass(frozen=True, slots=True)
class Told:
    """One step of the way."""

    number: int
    event: Any
    short: str
    """The event on one line."""
    answer: str
    """Disposition and actions on one line; of the last step perhaps the exception."""
    states: str
    """Of the live requests afterwards."""
    foreseen: Foreseen
    live: int
    """How many requests are live then, by the account."""


def tell(scenario: Scenario, violation: Violation) -> list[Told]:
    """Go the way of a violation again with a new registry."""
    registry, history = Registry(scenario.limits), History(scenario.limits)
    told = []
    for number, signal in enumerate(violation.signals, 1):
        event = alphabet.make(scenario, signal, history.now, next_due(history))
        foreseen = history.take(event)
        try:
            answer = registry.dispatch(event)
            said = "; ".join([answer.disposition, *(sentence(action.to_dict()) for action in answer.actions)])
            states = ", ".join(f"{view.request_id} {view.state}" for view in registry.requests()) or "none live"
        except Exception as error:  # noqa: BLE001 - it is what was found
            said, states = f"raised {error!r}", "?"
        told.append(Told(number, event, short(signal, event), said, states, foreseen, len(history.live_ids())))
    return told


def short(signal: Signal, event: Any) -> str:
    """An event on one line: its type, whom it names, and what sets it apart."""
    kind = signal[0]
    if kind in ("tick", "pass"):
        return f"{event.type} at {event.at:g}" if kind == "tick" else f"(a second passes: it is {event.at:g})"
    fields = event.model_dump(exclude_none=True, exclude_defaults=True)
    fields.pop("context", None)
    return " ".join([event.type, *(f"{name}={value}" for name, value in fields.items() if name != "type")])


def sentence(action: dict[str, Any]) -> str:
    """An action on one line: who, and why; of what it carries the names."""
    kind = action["type"]
    if kind == "acknowledge_abort":
        return " ".join(["acknowledge", *(f"{who}={how}" for who, how in action["outcomes"].items())])
    if kind == "forward_parent":
        return f"forward {action['parent_id']} with {[action['engine_outputs'], *action['companion_outputs']]}"
    if kind == "fail_parent":
        return f"fail {action['parent_id']}: {action['reason']}"
    return " ".join([kind.removesuffix("_requests"), *action["request_ids"]])


def table(told: list[Told], violation: Violation) -> str:
    """The way as text: a few lines for each step."""
    lines = [f"Broken: {violation.why}", f"  ({', '.join(violation.rules)})"]
    rules = dict.fromkeys(check.rule for check in violation.checks)
    lines += [*(f"  {rule.name}, {rule.title}: {rule.sentence}" for rule in rules), ""]
    width = max(len(step.short) for step in told)
    for step in told:
        lines.append(f"{step.number:>3}  {step.short:<{width}}  ->  {step.answer}")
        lines.append(f"     {'':<{width}}      {step.states}")
    foreseen = [sentence(action) for action in expected(told[-1])] or ["nothing to do"]
    return "\n".join([*lines, "", f"To be answered was: {'; '.join([told[-1].foreseen.disposition, *foreseen])}"])


def expected(step: Told) -> list[dict[str, Any]]:
    """The actions that the account foresees, as far as the rules fix what stands in them."""
    return list(_expected(step))


def _expected(step: Told) -> Iterator[dict[str, Any]]:
    foreseen = step.foreseen
    if foreseen.outcomes is not None:
        yield {"type": "acknowledge_abort", "outcomes": foreseen.outcomes}
    if foreseen.forward is not None:
        yield {"type": "forward_parent", **foreseen.forward}
    for end in foreseen.ends:
        if end.is_told_as_failure:
            yield {
                "type": "fail_parent",
                "parent_id": end.life.parent_id,
                "life": end.life.number,
                "stage_id": end.stage_id,
                "reason": str(end.reason),
                "companion_id": end.companion_id,
            }
        if end.aborted:
            yield {"type": "abort_requests", "request_ids": end.aborted}
        if end.released:
            yield {"type": "release_requests", "request_ids": end.released}
    for kind in foreseen.strays:
        stray = getattr(step.event, "companion_id", None) or getattr(step.event, step.event.subject_field)
        yield {"type": kind, "request_ids": [stray]}
    for ids in foreseen.late:
        yield {"type": "release_requests", "request_ids": list(ids)}


def to_case(scenario: Scenario, violation: Violation, case_id: str = "found-by-exploration") -> dict[str, Any]:
    """The way as a case: events, and for each what the account foresees. What the engine did stands nowhere in it,
    so that a broken engine fails it and a right one passes."""
    told = tell(scenario, violation)
    return {
        "id": case_id,
        "title": violation.why,
        "limits": scenario.limits.model_dump(exclude_unset=True),
        "steps": [
            {
                "event": step.event.model_dump(exclude_none=True),
                "expect": {"disposition": step.foreseen.disposition, "actions": expected(step)},
            }
            for step in told
        ],
        "after": {"live": told[-1].live},
    }
