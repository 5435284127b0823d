"""The rules that one step does not show: R12 asks a second registry the same, R10 goes on to the end."""

from __future__ import annotations

from functools import partial

from cfg_fsm.engine.registry import Registry
from cfg_fsm.events import ClockTicked
from cfg_fsm.rules.rule import Broken, require
from cfg_fsm.rules.statements import R10, R12
from cfg_fsm.rules.step import Repetition, Step
from cfg_fsm.rules.verdicts import r5_nothing_raises


@R12.twin
def r12_the_same_events_give_the_same_answers(step: Step, again: Repetition) -> None:
    """The same actions, and the same audit records."""
    require(step.answer == again.answer, "the same events give the same actions", step)
    require(again.ours == again.theirs, "the same events give the same audit records", step)


@R10.walk
def r10_ticks_alone_end_every_parent(registry: Registry) -> None:
    """From here a tick at each next deadline ends at least one parent, or releases what waits, until nothing is
    left. It is to be asked where ``total_s`` is set."""
    registry = registry.copy()
    ticks = 0
    while _left(registry):
        due, left = registry.next_deadline(), _left(registry)
        if due is None:
            what = "a parent is live" if registry.counters()["live_parents"] else "a release waits"
            raise Broken(f"{what} and no deadline will end it", registry, ticks=ticks)
        ticks += 1
        try:
            r5_nothing_raises(partial(registry.dispatch, ClockTicked(at=max(due, registry.now))))
        except Broken as broken:
            broken.ticks = ticks
            raise
        if _left(registry) >= left:
            raise Broken("a tick at the next deadline ends nobody and releases nobody", registry, ticks=ticks)


def _left(registry: Registry) -> int:
    """How many parents live, and requests wait to be released. A parent that ends may leave some that wait."""
    counters = registry.counters()
    return _MORE_THAN_A_GROUP * int(counters["live_parents"]) + int(counters["waiting"])


#: More than the requests of one group.
_MORE_THAN_A_GROUP = 1 << 32
