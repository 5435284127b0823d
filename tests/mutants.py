"""Engines that are broken on purpose, one for each way in which a join goes wrong.

Each is the real engine with one thing changed, for as long as its patches are in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from unittest import mock

from cfg_fsm import Limits, actions, tables
from cfg_fsm import events as ev
from cfg_fsm.engine import admission, group, routes
from cfg_fsm.engine.confirmations import Confirmations
from cfg_fsm.engine.deadlines import Deadlines
from cfg_fsm.engine.ledger import Ledger
from cfg_fsm.engine.step import Step
from cfg_fsm.engine.tombstones import Tombstones
from cfg_fsm.explore.scenario import Faults, Scenario
from cfg_fsm.states import FailureReason, IgnoredReason

#: Two companions, announced, one forward: enough for most.
PLAIN = Scenario(
    companions=2, announced=(True,), streaming=(False,), rebind=False, heartbeats=False, finish_reasons=("stop",)
)
ONE = replace(PLAIN, companions=1)
DOUBLED = replace(PLAIN, faults=Faults(duplicated=1))
LATE = replace(ONE, faults=Faults(late=True))
STRANGE = replace(ONE, faults=Faults(strange=True))
TIMED = replace(ONE, limits=Limits(deferred_s=2.0, silent_s=3.0, start_s=4.0, total_s=9.0), passes=2)
CONFIRMED = replace(LATE, limits=Limits(confirm_s=2.0, total_s=9.0, tombstone_s=6.0), passes=1)


@dataclass(frozen=True)
class Mutant:
    """One way to break the engine."""

    name: str
    rule: str
    """Must be among the rules that are reported."""
    scenario: Scenario
    patches: Callable[[], Iterable[object]]

    @contextmanager
    def __call__(self):
        with ExitStack() as stack:
            for patch in self.patches():
                stack.enter_context(patch)
            yield


MUTANTS: list[Mutant] = []


def mutant(rule, scenario=PLAIN):
    """The function makes the patches."""

    def register(patches):
        MUTANTS.append(Mutant(patches.__name__, rule, scenario, patches))
        return patches

    return register


def patched(owner, name, make):
    """Put in the place of an attribute what ``make`` makes of it."""
    original = owner.__dict__[name]
    plain = original.__func__ if isinstance(original, staticmethod) else original
    new = make(plain)
    return mock.patch.object(owner, name, staticmethod(new) if isinstance(original, staticmethod) else new)


def effect(event, make, *others):
    """Another effect of an event that is not refused; of some ``others`` too."""
    for model in (event, *others):
        route = routes.NAMED[model]
        cells = [cell for column in route.cells.values() for cell in column.values()]
        options = {id(option): option for cell in (*cells, route.absent) for option in cell}
        for option in options.values():
            if option.effect is not None:
                yield mock.patch.object(option, "effect", make(option.effect))


def cell(event, kind, states, *choices):
    """Another cell of the classification."""
    route = routes.NAMED.get(event) or routes.SEVERAL[event]
    resolved = tuple(routes.Option(ev.type_of(event), choice) for choice in choices)
    return mock.patch.dict(route.cells[kind], dict.fromkeys(states, resolved))


def moves(trigger=None):
    return tables.Choice(tables.Verdict.MOVES, trigger)


# -- the join ---------------------------------------------------------------------------------------------


@mutant("r6_done_means_its_output_is_here", DOUBLED)
def counts_completion_events_instead_of_members():
    def make(original):
        def complete(ledger, record, event):
            if record.state == "done":  # as many events as members: everything is here
                for companion in record.group.companions:
                    companion.state = "done"
                return record.life
            return original(ledger, record, event)

        return complete

    yield cell(ev.CompanionOutputReady, "companion", ["done"], moves(tables.Trigger.COMPLETE))
    yield from effect(ev.CompanionOutputReady, make)


@mutant("r6_done_means_its_output_is_here", replace(ONE, streaming=(True,)))
def pops_the_bundle_when_it_forwards():
    def make(original):
        def hand_over(self, *args):
            original(self, *args)
            for companion in self.companions:
                companion.output = None

        return hand_over

    yield patched(group.Group, "hand_over", make)


@mutant("r6_done_means_its_output_is_here", DOUBLED)
def the_second_output_wins():
    def make(original):
        def complete(ledger, record, event):
            if record.state == "done":
                record.output = event.output
                return record.life
            return original(ledger, record, event)

        return complete

    yield cell(ev.CompanionOutputReady, "companion", ["done"], moves(tables.Trigger.COMPLETE))
    yield from effect(ev.CompanionOutputReady, make)


@mutant("r6_done_means_its_output_is_here", replace(PLAIN, heartbeats=True))
def kv_ready_completes():
    def make(original):
        def progress(ledger, record, event):
            if record is record.group:
                return original(ledger, record, event)
            record.group.complete(record, None, ledger.step)
            if ledger.step.actions:
                ledger.conclude(record.group)
            return record.life

        return progress

    yield from effect(ev.KvReady, make)


@mutant("r2_a_forward_carries_the_whole_bundle", replace(PLAIN, announced=(False,)))
def an_unsealed_group_counts_as_ready():
    for rows in (group.COUPLED, group.ENABLED_BY, group.COUPLED_BY):
        yield other_rows(rows, False, rows[True])


def other_rows(rows, key, value):
    return mock.patch.dict(rows, {key: value})


@mutant("r2_a_forward_carries_the_whole_bundle")
def forwards_without_what_is_missing():
    """The row asks for one companion in the place of every one."""

    (row,) = group.COUPLED_BY[True]["done"]["deferred"]
    yield mock.patch.object(row, "every", False)


@mutant("r2_a_forward_carries_the_whole_bundle")
def the_order_of_the_roles_is_lost():
    def make(original):
        def forward(self, *args):
            self.companions = self.companions[::-1]
            original(self, *args)
            self.companions = self.companions[::-1]

        return forward

    (row,) = group.COUPLED_BY[True]["done"]["deferred"]
    yield mock.patch.object(row, "effect", make(row.effect))


@mutant("the_coupling_is_settled")
def checks_only_when_a_companion_completes():
    """A parent whose output comes last waits for ever."""
    nothing = {source: dict.fromkeys(dests, ()) for source, dests in group.ENABLED_BY[True].items()}
    yield other_rows(group.ENABLED_BY, True, nothing)


@mutant("r2_a_forward_carries_the_whole_bundle")
def an_older_parent_output_stays():
    def make(original):
        def defer(self, stage_id, engine_outputs, context, *args):
            kept = self.engine_outputs
            original(self, stage_id, engine_outputs if kept is None else kept, context, *args)

        return defer

    yield patched(group.Group, "defer", make)


# -- the end ----------------------------------------------------------------------------------------------


def _closed(change):
    """``change`` gets the ledger, the group, its members and the actions when a group was closed."""

    def make(original):
        def conclude(self, group):
            members = group.members()
            original(self, group)
            if group.ended:
                change(self, group, members, self.step.actions)

        return conclude

    return patched(Ledger, "conclude", make)


@mutant("r7_nothing_is_left_of_ended_groups")
def keeps_a_record_when_the_group_has_ended():
    yield _closed(
        lambda ledger, group, members, actions: ledger.requests.update({members[-1].request_id: members[-1]})
    )


@mutant("r7_tombstones_are_bounded_and_true")
def keeps_the_payloads_in_the_tombstone():
    class Name(str):
        """Like any other, with the group in it."""

    def keep(ledger, group, members, actions):
        stone = ledger.tombstones.get(group.request_id)
        stone.parent_id = Name(stone.parent_id)
        stone.parent_id.group = group

    yield _closed(keep)


@mutant("r7_tombstones_are_bounded_and_true")
def writes_no_tombstone():
    yield patched(Tombstones, "add", lambda original: lambda self, request_ids, tombstone: None)


@mutant("r7_nothing_is_left_of_ended_groups", TIMED)
def forgets_a_timer():
    yield patched(Deadlines, "drop", lambda original: lambda self, record: None)


@mutant("r3_ids_belong_to_the_group_that_ended")
def releases_twice():
    yield _closed(lambda ledger, group, members, actions: actions.append(actions[-1]))


@mutant("r3_ids_belong_to_the_group_that_ended")
def releases_nothing():
    yield _closed(lambda ledger, group, members, actions: actions.pop())


@mutant("r3_ids_belong_to_the_group_that_ended")
def releases_the_parent_alone():
    yield _closed(lambda ledger, group, members, actions: actions[-1].request_ids.__delitem__(slice(1, None)))


@mutant("the_answer_is_in_order")
def releases_before_it_fails():
    yield _closed(lambda ledger, group, members, actions: actions.reverse())


@mutant("r3_ids_belong_to_the_group_that_ended")
def fails_the_parent_and_lets_its_companions_run():
    yield patched(Step, "abort", lambda original: lambda self, request_ids: None)


@mutant("r3_ids_belong_to_the_group_that_ended", replace(ONE, parents=2))
def aborts_a_stranger():
    yield patched(Step, "abort", lambda original: lambda self, request_ids: original(self, [*request_ids, "q"]))


@mutant("r1_a_parent_ends_once")
def forwards_after_a_failure():
    def make(original):
        def fail(self, companion, step):
            original(self, companion, step)
            if self.engine_outputs is not None:
                step.say(
                    actions.ForwardParent(
                        self.request_id, self.life, 0, self.engine_outputs, self.roles(), [], None
                    )
                )

        return fail

    yield patched(group.Group, "_fail_parent", make)


@mutant("r1_every_end_is_told_and_no_other")
def an_abort_by_the_client_brings_a_failure():
    def make(original):
        def fail(self, companion, step):
            reason = step.cause.reason
            if reason is FailureReason.ABORTED and companion is None:
                step.say(actions.FailParent(self.request_id, self.life, None, reason, "gone", None, None, None))
            original(self, companion, step)

        return fail

    yield patched(group.Group, "_fail_parent", make)


@mutant("r1_every_end_is_told_and_no_other")
def a_lost_replica_of_a_companion_goes_unnoticed():
    ignored = tables.Choice(tables.Verdict.IGNORED, None, IgnoredReason.NOTHING_BOUND)
    yield cell(ev.ReplicaLost, "companion", ["running"], ignored)


@mutant("every_abort_is_answered")
def an_abort_of_what_has_ended_is_not_answered():
    def make(original):
        def refuse(self, *args):
            self.step.actions.clear()
            return original(self, *args)

        return refuse

    yield patched(Ledger, "refuse", make)


@mutant("r4_client_facing_actions_name_parents")
def fails_under_the_name_of_the_companion():
    def make(original):
        def fail(self, companion, step):
            original(self, companion, step)
            for number, action in enumerate(step.actions):
                if companion is not None and isinstance(action, actions.FailParent):
                    fields = {**action.to_dict(), "parent_id": companion.request_id, "reason": action.reason}
                    del fields["type"]
                    step.actions[number] = actions.FailParent(**fields)

        return fail

    yield patched(group.Group, "_fail_parent", make)


# -- late, repeated and strange events -----------------------------------------------------------------------


@mutant("r8_a_late_event_never_resurrects", LATE)
def a_late_start_resurrects():
    def make(original):
        def start(ledger, record, event):
            if record is None:
                record = ledger.open(event.request_id, 9, announced=True, streaming=False, own=None)
                ledger.admit(record)
            return original(ledger, record, event)

        return start

    for kind in ("parent", "companion"):
        yield cell(ev.RequestStarted, kind, ["cleaned"], moves(tables.Trigger.START))
    yield from effect(ev.RequestStarted, make)


@mutant("r8_a_late_event_never_resurrects", LATE)
def what_starts_late_runs_on():
    ignored = tables.Choice(tables.Verdict.IGNORED, None, IgnoredReason.ENDED)
    for kind in ("parent", "companion"):
        yield cell(ev.RequestStarted, kind, ["cleaned"], ignored)


@mutant("the_disposition_is_the_agreed_one", STRANGE)
def the_life_is_not_checked():
    for model in (ev.RequestFailed, ev.RequestStarted, ev.ParentFinished):
        yield mock.patch.object(routes.NAMED[model], "checks_life", False)


@mutant("r9_registration_is_all_or_nothing", STRANGE)
def a_rejected_registration_is_half_applied():
    def make(original):
        def refuse(self, ledger, event, record, option):
            answer = original(self, ledger, event, record, option)
            if event.type == "parent_registered" and event.parent_id not in ledger.requests:
                ledger.admit(ledger.open(event.parent_id, 1, announced=True, streaming=False, own=None))
            return answer

        return refuse

    yield patched(routes.Named, "refuse", make)


@mutant("r9_registration_is_all_or_nothing", DOUBLED)
def a_registration_that_comes_again_starts_again():
    yield cell(ev.ParentRegistered, "parent", ["registered", "running"], moves())


@mutant("r9_registration_is_all_or_nothing", replace(LATE, faults=Faults(late=True, reused=1)))
def an_id_is_used_again_while_it_may_report():
    def make(original):
        def why_not(ledger, ids, companions, life, own):
            return original(ledger, ids, companions, life or 1, own)  # as if the host had numbered it

        return why_not

    yield patched(admission, "_why_no_ids", make)


@mutant("r5_an_event_touches_no_other_group", replace(ONE, parents=2, companions=0, announced=(False,)))
def a_failure_seals_the_other_groups():
    def make(original):
        def conclude(self, group):
            for other in self.requests.values():
                if group.reason is not None and other.group is not group:
                    other.group.sealed = True
            return original(self, group)

        return conclude

    yield patched(Ledger, "conclude", make)


@mutant("r5_nothing_raises", LATE)
def a_late_event_raises():
    def make(original):
        def refuse(self, ledger, event, record, option):
            if record is None:
                raise KeyError(event.type)
            return original(self, ledger, event, record, option)

        return refuse

    yield patched(routes.Named, "refuse", make)


@mutant("what_is_refused_has_changed_nothing", DOUBLED)
def a_refused_output_is_kept():
    def make(original):
        def refuse(self, ledger, event, record, option):
            if event.type == "companion_output_ready" and record is not None:
                record.output = event.output
            return original(self, ledger, event, record, option)

        return refuse

    yield patched(routes.Named, "refuse", make)


# -- time -------------------------------------------------------------------------------------------------


@mutant("r11_the_next_deadline_is_exact", TIMED)
def a_second_output_begins_the_wait_anew():
    def make(original):
        def defer(record, step):
            moved = original(record, step)
            record.since = step.now
            return moved

        return defer

    yield patched(group, "DEFER", make)


@mutant("r11_the_next_deadline_is_exact", replace(TIMED, heartbeats=True))
def a_sign_of_life_counts_for_nothing():
    yield patched(group.Group, "progress", lambda original: lambda self, record, step: None)


@mutant("r11_the_next_deadline_is_exact", TIMED)
def no_timer_is_set_for_a_deferred_parent():
    def make(original):
        def update(self, record):
            if record.state != "deferred":
                original(self, record)

        return update

    yield patched(Deadlines, "update", make)


@mutant("r10_ticks_alone_end_every_parent", TIMED)
def a_tick_ends_nobody():
    yield patched(Deadlines, "due", lambda original: lambda self, now: iter(()))


@mutant("r11_the_next_deadline_is_exact", replace(TIMED, parents=2, companions=0, passes=0))
def a_tick_ends_the_first_parent_that_is_due_and_no_other():
    yield patched(Deadlines, "due", lambda original: lambda self, now: islice(original(self, now), 1))


# -- releases that wait ------------------------------------------------------------------------------------


@mutant("r3_ids_belong_to_the_group_that_ended", CONFIRMED)
def releases_at_once_who_should_wait():
    def make(original):
        def released(self, group):
            original(self, group)
            return [record.request_id for record in group.members()]

        return released

    yield patched(Ledger, "_told", make)


@mutant("r3_ids_belong_to_the_group_that_ended", CONFIRMED)
def a_report_releases_nobody_who_waits():
    def make(original):
        def hear(self, request_id):
            self.tombstones.told.pop(request_id, None)
            self.waiting.remove(request_id)

        return hear

    yield patched(Ledger, "hear", make)


@mutant("r10_ticks_alone_end_every_parent", CONFIRMED)
def never_releases_who_does_not_report():
    yield patched(Confirmations, "due", lambda original: lambda self, now: iter(()))


@mutant("r7_tombstones_are_bounded_and_true", CONFIRMED)
def releases_on_report_and_in_time():
    def make(original):
        def hear(self, request_id):
            if request_id in self.waiting.by_id:
                self.step.say(actions.ReleaseRequests([request_id]))
            self.tombstones.told.pop(request_id, None)

        return hear

    yield patched(Ledger, "hear", make)


@mutant("r3_ids_belong_to_the_group_that_ended", CONFIRMED)
def the_loss_of_any_replica_releases_who_waits():
    def make(original):
        def on(self, replica):
            return [(waiting, list(waiting.told)) for waiting in self._groups.values()]

        return on

    yield patched(Confirmations, "on", make)


@mutant("r9_registration_is_all_or_nothing", replace(CONFIRMED, faults=Faults(late=True, reused=1)))
def an_id_that_waits_is_used_again_with_a_life():
    def make(original):
        def why_not(ledger, *args):
            with mock.patch.object(ledger.waiting, "by_id", {}):
                return original(ledger, *args)

        return why_not

    yield patched(admission, "_why_no_ids", make)


@mutant("r11_the_next_deadline_is_exact", replace(CONFIRMED, limits=Limits(confirm_s=2.0, tombstone_s=1.0)))
def what_waits_has_no_deadline():
    yield patched(Ledger, "next_deadline", lambda original: lambda self: self.deadlines.next())


# -- the same again -----------------------------------------------------------------------------------------


@mutant("r12_the_same_events_give_the_same_answers")
def what_it_answers_hangs_on_what_it_was_asked_before():
    calls = count()

    def make(original):
        def abort(self, request_ids):
            original(self, request_ids[::-1] if next(calls) % 2 else request_ids)

        return abort

    yield patched(Step, "abort", make)
