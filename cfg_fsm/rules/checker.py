"""The rules R1 to R12, each stated once, and a walk that holds every step of a registry against them.

A ``Checker`` walks beside a registry. It keeps a ``History``, its own account of what happened, made from the
events alone, in plain dictionaries and without the tables; foresees what an event must bring; and holds every
step against ``PROPERTIES``. Whoever has another way of walking (all orders of events, say) makes a ``Step`` and
calls the same functions.

    registry, checker = watched(Limits(total_s=10))
    for event in events:
        checker.dispatch(event)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cfg_fsm.actions import Dispatched
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.engine.registry import Registry
from cfg_fsm.limits import Limits
from cfg_fsm.rules.answers import (
    every_abort_is_answered,
    r1_a_parent_ends_once,
    r1_every_end_is_told_and_no_other,
    r2_a_forward_carries_the_whole_bundle,
    r3_ids_belong_to_the_group_that_ended,
    r4_client_facing_actions_name_parents,
    the_answer_is_in_order,
    the_disposition_is_the_agreed_one,
)
from cfg_fsm.rules.history import History
from cfg_fsm.rules.step import Step, require, take_picture
from cfg_fsm.rules.worlds import (
    r5_an_event_touches_no_other_group,
    r6_done_means_its_output_is_here,
    r7_nothing_is_left_of_ended_groups,
    r7_tombstones_are_bounded_and_true,
    r8_a_late_event_never_resurrects,
    r9_registration_is_all_or_nothing,
    r11_the_next_deadline_is_exact,
    the_coupling_is_settled,
    the_views_show_what_was_told,
    what_is_refused_has_changed_nothing,
)

PROPERTIES: tuple[Callable[[Step], None], ...] = (
    the_disposition_is_the_agreed_one,
    r9_registration_is_all_or_nothing,
    what_is_refused_has_changed_nothing,
    every_abort_is_answered,
    r1_a_parent_ends_once,
    r1_every_end_is_told_and_no_other,
    r2_a_forward_carries_the_whole_bundle,
    r3_ids_belong_to_the_group_that_ended,
    r4_client_facing_actions_name_parents,
    the_answer_is_in_order,
    r5_an_event_touches_no_other_group,
    r7_nothing_is_left_of_ended_groups,
    r7_tombstones_are_bounded_and_true,
    r8_a_late_event_never_resurrects,
    r6_done_means_its_output_is_here,
    the_coupling_is_settled,
    r11_the_next_deadline_is_exact,
    the_views_show_what_was_told,
)


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
        self.registry, self.records, self.twin, self.twin_records = registry, records, twin, twin_records
        self.history = History(registry.limits)
        self.picture = take_picture(registry)

    def dispatch(self, event: Any) -> Dispatched:
        """Dispatch the event and check the step."""
        answer = self.registry.dispatch(event)
        self.step(event, answer)
        return answer

    def step(self, event: Any, answer: Dispatched) -> None:
        """Check a step that the registry has just taken."""
        past, before = self.history.copy(), self.picture
        foreseen = self.history.take(event)
        self.picture = take_picture(self.registry)
        step = Step(self.registry, event, answer, before, self.picture, past, self.history, foreseen)
        for holds in PROPERTIES:
            holds(step)
        self.r12_the_same_events_give_the_same_answers(step)
        self.history.forget(set(self.picture.tombstones))

    def r12_the_same_events_give_the_same_answers(self, step: Step) -> None:
        """R12: the same actions, and the same audit records to the byte."""
        if self.twin is None:
            return
        again = self.twin.dispatch(step.event)
        require(step.answer.to_dict() == again.to_dict(), "R12: the same events give the same actions", step)
        if self.records is not None and self.twin_records is not None:
            ours, theirs = map(json.dumps, self.records), map(json.dumps, self.twin_records)
            require(list(ours) == list(theirs), "R12: the same events give the same audit records", step)
            self.records.clear()
            self.twin_records.clear()


def watched(limits: Limits) -> tuple[Registry, Checker]:
    """A new registry with a checker, and a twin in the checker."""
    records: list[AuditRecord] = []
    twin_records: list[AuditRecord] = []
    registry = Registry(limits=limits, observers=[records.append])
    twin = Registry(limits=limits, observers=[twin_records.append])
    return registry, Checker(registry, records, twin, twin_records)
