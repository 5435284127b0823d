"""The checks by what they look at, and a walk that holds every step of a registry against them.

A ``Checker`` walks beside a registry. It keeps a ``History``, its own account of what happened, made from the
events alone, in plain dictionaries and without the tables; foresees what an event must bring; and asks the checks
of every step. Whoever has another way of walking (all orders of events, say) makes a ``Step`` and asks the same.

    registry, checker = watched(Limits(total_s=10))
    for event in events:
        checker.dispatch(event)
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, get_args

from cfg_fsm.actions import Dispatched
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.engine.registry import Registry
from cfg_fsm.limits import Limits
from cfg_fsm.rules.history import History
from cfg_fsm.rules.rule import CHECKS, Broken, Check, Kind, Moment
from cfg_fsm.rules.step import Repetition, Step
from cfg_fsm.rules.verdicts import r5_nothing_raises
from cfg_fsm.rules.walks import r10_ticks_alone_end_every_parent, r12_the_same_events_give_the_same_answers


def of_kind(*kinds: Kind) -> tuple[Check, ...]:
    """The checks that look at this, in the order in which they are asked."""
    return tuple(check for check in CHECKS if check.kind in kinds)


STEP_CHECKS = of_kind(Kind.STEP)
#: Those that are asked of a registry, in whatever way.
REGISTRY_CHECKS = of_kind(Kind.CALL, Kind.STEP, Kind.TWIN, Kind.WALK)
LOG_CHECKS: dict[Moment, tuple[Check, ...]] = {
    moment: tuple(check for check in of_kind(Kind.LOG) if check.moment == moment) for moment in get_args(Moment)
}


def broken_by(step: Step) -> list[Broken]:
    """Everything that does not hold of a step."""
    found: list[Broken] = []
    for check in STEP_CHECKS:
        try:
            check(step)
        except Broken as broken:
            found.append(broken)
        except Exception as error:  # noqa: BLE001 - whatever it is, the rule does not hold
            if not found:  # a check may rely on those before it
                found.append(Broken(repr(error), step, check=check))
    return found


class Checker:
    """Holds every step of a registry against the rules. The registry must be new, and have no other caller.

    ``twin``: another one with the same limits, which is given the same events (R12); ``records`` and
    ``twin_records`` are what the observers of the two have collected.
    """

    def __init__(
        self,
        registry: Registry,
        records: list[AuditRecord] | None = None,
        twin: Registry | None = None,
        twin_records: list[AuditRecord] | None = None,
    ) -> None:
        self.registry, self.twin = registry, twin
        self.records = [] if records is None else records
        self.twin_records = [] if twin_records is None else twin_records
        self.history = History(registry.limits)
        self.snapshot = registry.snapshot()

    def dispatch(self, event: Any) -> Dispatched:
        """Dispatch the event and check the step. Raises ``Broken``."""
        answer = r5_nothing_raises(partial(self.registry.dispatch, event))
        self.step(event, answer)
        return answer

    def step(self, event: Any, answer: Dispatched) -> None:
        """Check a step that the registry has just taken. Raises ``Broken``."""
        past, before = self.history.copy(), self.snapshot
        foreseen = self.history.take(event)
        self.snapshot = after = self.registry.snapshot()
        step = Step(event, answer, before, after, self.registry.requests(), past, self.history, foreseen)
        for check in STEP_CHECKS:
            check(step)
        if self.twin is not None:
            again = self.twin.dispatch(event)
            ours, theirs = (list(map(json.dumps, records)) for records in (self.records, self.twin_records))
            r12_the_same_events_give_the_same_answers(step, Repetition(again, ours, theirs))
            self.records.clear()
            self.twin_records.clear()
        if self.registry.limits.total_s is not None:
            r10_ticks_alone_end_every_parent(self.registry)
        self.history.forget(set(after.tombstones))


def watched(limits: Limits) -> tuple[Registry, Checker]:
    """A new registry with a checker, and a twin in the checker."""
    records: list[AuditRecord] = []
    twin_records: list[AuditRecord] = []
    registry = Registry(limits=limits, observers=[records.append])
    twin = Registry(limits=limits, observers=[twin_records.append])
    return registry, Checker(registry, records, twin, twin_records)
