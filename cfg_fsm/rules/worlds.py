"""The rules about what a step leaves behind: R5 to R8, R11, and what holds between two events."""

from __future__ import annotations

from operator import attrgetter

from cfg_fsm.engine.snapshot import CompanionSnapshot, ParentSnapshot
from cfg_fsm.rules.rule import Broken, require
from cfg_fsm.rules.statements import COUPLING, R5, R6, R7, R8, R11, VIEWS
from cfg_fsm.rules.step import Step

#: With as many tombstones as this, none is forgotten before its time in any walk of the explorer or the tests.
_AMPLE = 1000
#: What may be held of somebody who has ended: these, which hold nothing else, and tuples of them.
_PLAIN = {str, int, float, bool, tuple, type(None)}


@R5.step
def r5_an_event_touches_no_other_group(step: Step) -> None:
    """Only groups that the event names, is bound to or is due for can change."""
    past, event = step.past, step.event
    if step.name == "clock_ticked":
        now = step.present.now
        touched = {p for p, life in past.lives.items() if any(d.when <= now for d in life.deadlines())}
    elif step.name == "replica_lost":
        lost = (event.stage_id, event.replica_id)
        touched = {
            p for p, life in past.lives.items() if lost in (life.replica, *(c.replica for c in life.companions))
        }
    else:
        names = event.request_ids if step.name == "requests_aborted" else [getattr(event, event.subject_field)]
        owners = [past.owner(name) for name in names]
        touched = {life.parent_id for life in owners if life is not None}
    after = step.after.requests
    for request_id, record in step.before.requests.items():
        owner = past.owner(request_id)
        if owner is None:
            raise Broken(f"{request_id} has a record and is of no live group", step)
        if owner.parent_id not in touched and after.get(request_id) != record:
            raise Broken(f"{request_id} is not touched", step)


@R7.step
def r7_nothing_is_left_of_ended_groups(step: Step) -> None:
    """No record, reverse mapping or timer is left."""
    held, live = step.after.requests, step.present.live_ids()
    require(sorted(held) == sorted(live), "the registry holds the live requests and no others", step)
    groups = set()
    for parent_id, life in step.present.lives.items():
        parent = held[parent_id]
        require(
            isinstance(parent, ParentSnapshot)
            and [parent_id, *(request_id for _, request_id in parent.companions)] == life.ids,
            "a group holds its own companions and no others",
            step,
        )
        groups.add(parent.seq)
    require(all(record.seq in groups for record in held.values()), "every record belongs to a live group", step)
    require(
        all(deadline.seq in groups for deadline in step.after.deadlines), "no timer of a group that ended", step
    )
    counters, parents = step.after.counters, len(groups)
    expected = {
        "live": len(live),
        "live_parents": parents,
        "live_companions": len(live) - parents,
        "deadlines": len(step.after.deadlines),
        "waiting": len(step.present.waiting),
        "unconfirmed": len(step.after.told),
    }
    require(all(counters[name] == count for name, count in expected.items()), "the counters agree", step)


@R7.step
def r7_tombstones_are_bounded_and_true(step: Step) -> None:
    """Ended ids are remembered as they ended, not while they live, not for too long, and not too many; and who was
    told to abort as long as it may report or waits. Nothing but plain values is held of them."""
    limits, stones, ended = step.after.limits, step.after.tombstones, step.present.ended
    live = step.after.requests
    require(len(stones) <= limits.tombstones, "no more tombstones than the limit says", step)
    require(stones.keys().isdisjoint(live), "a live id has no tombstone", step)
    for request_id, stone in stones.items():
        require(stone[:4] == ended.get(request_id), "a tombstone says how its id ended", step)
        require(
            {type(value) for value in stone} <= _PLAIN,
            "a tombstone holds no payload and no record",
            step,
        )
    told, waits = step.after.told, step.present.waiting
    waiting = {i: (one.replica, one.waits_until) for i, one in told.items() if one.waits_until is not None}
    expected = {request_id: (wait.replica, wait.deadline) for request_id, wait in waits.items()}
    require(waiting == expected, "what waits to be released is what was aborted and has not reported", step)
    may_report = {request_id for request_id, stone in stones.items() if stone.may_report}
    require(told.keys() == may_report | waits.keys(), "who was told to abort is who may report or waits", step)
    require(
        {type(value) for one in told.values() for value in (*one, *(one.replica or ()))} <= _PLAIN,
        "who was told to abort holds no payload and no record",
        step,
    )
    if limits.tombstones >= _AMPLE:
        require(len(stones) == len(ended), "an ended id is remembered for its time", step)
    require(
        all(request_id in live or request_id in stones for request_id in step.after.parent_lives),
        "lives are counted of those who live or are remembered",
        step,
    )


@R8.step
def r8_a_late_event_never_resurrects(step: Step) -> None:
    """Only an accepted registration makes an id live; a late start is answered with an abort."""
    born = set(step.after.requests) - set(step.before.requests)
    registration = step.name in ("parent_registered", "companion_registered")
    require(not born or (registration and step.answer.disposition == "accepted"), "nothing comes back", step)
    ended = step.present.ended.get(step.event.request_id) if step.name == "request_started" else None
    if ended is not None and (step.event.life is None or step.event.life <= ended.number):
        require(
            [action.to_dict() for action in step.answer.actions]
            == [{"type": "abort_requests", "request_ids": [step.event.request_id]}],
            "what starts after its group ended is aborted",
            step,
        )


@R6.step
def r6_done_means_its_output_is_here(step: Step) -> None:
    """A companion becomes done in the step that brings its output, with it, and stays so."""
    for request_id, record in step.after.requests.items():
        if not isinstance(record, CompanionSnapshot) or record.state != "done":
            continue
        before = step.before.requests.get(request_id)
        if isinstance(before, CompanionSnapshot) and before.state == "done" and before.seq == record.seq:
            require(before.output == record.output, "the first output wins", step)
        else:
            came = step.name == "companion_output_ready" and step.event.companion_id == request_id
            require(came, "nothing but its output completes a companion", step)
            output = step.event.output
            require(record.output == (None if output is None else id(output)), "done comes with its output", step)


@COUPLING.step
def the_coupling_is_settled(step: Step) -> None:
    """Between two events no coupling row is satisfied, and nothing rests in a state that is passed through."""
    for view in step.views:
        if view.machine == "parent":
            require(view.state in ("registered", "running", "deferred", "forwarded"), "a live parent", step)
            complete = view.sealed and not view.missing
            require(view.state != "deferred" or not complete, "a complete bundle does not wait", step)
        else:
            require(view.state in ("registered", "running", "done"), "a live companion", step)


@R11.step
def r11_the_next_deadline_is_exact(step: Step) -> None:
    """It is the earliest that the views show and that follows from the events; after a tick it is to come. The
    deadlines that are set are those that follow from the events."""
    shown = min((view.deadline for view in step.views if view.deadline is not None), default=None)
    follows = min((d.when for life in step.present.lives.values() for d in life.deadlines()), default=None)
    waits = min((wait.deadline for wait in step.present.waiting.values()), default=None)
    if waits is not None:
        shown = waits if shown is None else min(shown, waits)
        follows = waits if follows is None else min(follows, waits)
    require(step.after.next_deadline == shown == follows, "the next deadline is exact", step)
    expected = [
        (d.when, life.seq, parent_id if d.companion is None else d.companion.request_id)
        for parent_id, life in step.present.lives.items()
        for d in life.deadlines()
    ]
    require(
        [deadline[:3] for deadline in step.after.deadlines] == sorted(expected),
        "the deadlines that are set are those of the states",
        step,
    )
    if step.name == "clock_ticked" and shown is not None:
        require(shown > step.after.now, "after a tick nothing is due", step)


_SHOWN = attrgetter(
    "request_id", "machine", "parent_id", "role", "life", "state", "age_s", "missing", "sealed", "replica",
    "deadline",
)  # fmt: skip


@VIEWS.step
def the_views_show_what_was_told(step: Step) -> None:
    """The views are the account of the events: states, ages, missing roles, replicas, deadlines, in order."""
    now = step.present.now
    expected: list[tuple[object, ...]] = []
    for life in step.present.lives.values():
        deadlines, parent_id, number, sealed = life.deadlines(), life.parent_id, life.number, life.sealed
        own = min((d.when for d in deadlines if d.companion is None), default=None)
        expected.append(
            (parent_id, "parent", parent_id, None, number, life.state, now - life.since, life.missing(), sealed,
             life.replica, own)
        )  # fmt: skip
        for c in life.companions:
            own = min((d.when for d in deadlines if d.companion is c), default=None)
            expected.append(
                (c.request_id, "companion", parent_id, c.role, number, c.state, now - c.since, {}, sealed,
                 c.replica, own)
            )  # fmt: skip
    shown = [_SHOWN(view) for view in step.views]
    if shown != expected:  # asked first: the sentence costs more than the comparison
        raise Broken(f"the views show what was told\n  shown    {shown}\n  expected {expected}", step)
    require(step.after.now == now, "the registry's time is the latest that an event brought", step)
