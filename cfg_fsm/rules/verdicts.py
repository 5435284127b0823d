"""The rules about how an event is taken: what raises (R5), what is accepted and refused (R9), what is answered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cfg_fsm.rules.rule import Broken, require
from cfg_fsm.rules.statements import ABORTS, R5, R9, REFUSALS
from cfg_fsm.rules.step import Step

T = TypeVar("T")


@R5.call
def r5_nothing_raises(call: Callable[[], T]) -> T:
    """Nothing raises out of the engine, whatever it is asked."""
    try:
        return call()
    except Exception as error:
        raise Broken(f"nothing raises out of the engine: {error!r}") from error


@REFUSALS.step
def the_disposition_is_the_agreed_one(step: Step) -> None:
    """Accepted, ignored or rejected by what the event meets; a code for a refusal and none otherwise."""
    answer = step.answer
    require(answer.disposition == step.foreseen.disposition, "the disposition is the agreed one", step)
    require((answer.reason is None) == (answer.disposition == "accepted"), "a refusal has a code", step)


@R9.step
def r9_registration_is_all_or_nothing(step: Step) -> None:
    """What is let in is let in whole, what is turned away has changed nothing, and the rules say which."""
    if step.name not in ("parent_registered", "companion_registered"):
        return
    event, accepted = step.event, step.answer.disposition == "accepted"
    if step.name == "parent_registered":
        new = [event.parent_id, *(event.companions or {}).values()]
    else:
        new = [event.companion_id]
    born = set(step.after.requests) - set(step.before.requests)
    require(born == (set(new) if accepted else set()), "a registration is taken in whole or not at all", step)
    require(step.answer.disposition == step.foreseen.disposition, "the door opens by its rules", step)
    limit = step.after.limits.max_requests
    require(limit is None or len(step.after.requests) <= limit, "the registry is never over-full", step)


@REFUSALS.step
def what_is_refused_has_changed_nothing(step: Step) -> None:
    """An ignored or rejected event leaves every record as it was; of an ended id it may be noted that it has
    reported, and time goes on."""
    if step.answer.disposition == "accepted":
        return
    before, after = step.before, step.after
    require(after.requests == before.requests, "a refused event has changed nothing", step)
    require(list(after.requests) == list(before.requests), "a refused event has changed no order", step)
    if not step.foreseen.late:
        require(after.next_deadline == before.next_deadline, "a refused event moves no deadline", step)
    for request_id, stone in after.tombstones.items():
        same = stone == before.tombstones.get(request_id)
        require(
            same or stone[:4] == step.present.ended.get(request_id), "a refused event makes no tombstone", step
        )


@ABORTS.step
def every_abort_is_answered(step: Step) -> None:
    """``requests_aborted`` is answered for each id, in the order of first mention; nothing else is."""
    expected = [] if step.foreseen.outcomes is None else [list(step.foreseen.outcomes.items())]
    got = [list(action["outcomes"].items()) for action in step.actions("acknowledge_abort")]
    require(got == expected, "every abort is answered", step)
