"""The rules about what a step leaves behind: R5 to R9, R11, and what holds between two events.

Each is a function that looks at one ``Step`` and raises ``Broken`` if it does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cfg_fsm.rules.step import Step, armed_groups, live_records, require, tombstones


def r5_an_event_touches_no_other_group(step: Step) -> None:
    """R5: only groups that the event names, is bound to or is due for can change."""
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
    for request_id, record in step.before.records.items():
        owner = past.owner(request_id)
        require(owner is not None, "R7: every record is of a live group", step)
        if owner is not None and owner.parent_id not in touched:
            require(step.after.records.get(request_id) == record, f"R5: {request_id} is not touched", step)


def r6_done_means_its_output_is_here(step: Step) -> None:
    """R6: a companion becomes done in the step that brings its output, with it, and stays so."""
    for request_id, record in step.after.records.items():
        if step.after.views[request_id]["machine"] != "companion" or record["state"] != "done":
            continue
        before = step.before.records.get(request_id)
        if before is not None and before["state"] == "done" and before["group"] == record["group"]:
            require(before["output"] == record["output"], "R6: the first output wins", step)
        else:
            came = step.name == "companion_output_ready" and step.event.companion_id == request_id
            require(came, "R6: nothing but its output completes a companion", step)
            output = step.event.output
            require(
                record["output"] == (None if output is None else id(output)),
                "R6: done comes with its output",
                step,
            )


def r7_nothing_is_left_of_ended_groups(step: Step) -> None:
    """R7: no record, reverse mapping, timer; a tombstone of plain values at most, and not too many of those."""
    registry, live = step.registry, step.present.live_ids()
    require(
        sorted(live_records(registry)) == sorted(live),
        "R7: the registry holds the live requests and no others",
        step,
    )
    groups = {id(live_records(registry)[parent_id]) for parent_id in step.present.lives}
    require(
        all(id(record.group) in groups for record in live_records(registry).values()),
        "R7: every record belongs to a live group",
        step,
    )
    for parent_id, life in step.present.lives.items():
        held = [record.request_id for record in live_records(registry)[parent_id].group.members()]
        require(held == life.ids, "R7: a group holds its own companions and no others", step)
    armed = armed_groups(registry)
    require(all(id(group) in groups for group in armed), "R7: no timer of a group that ended", step)
    counters = registry.counters()
    require(
        (counters["live"], counters["live_parents"], counters["live_companions"])
        == (len(live), len(step.present.lives), len(live) - len(step.present.lives)),
        "R7: the counters agree",
        step,
    )


def r7_tombstones_are_bounded_and_true(step: Step) -> None:
    """R7: ended ids are remembered as they ended, not while they live, not for too long, and not too many."""
    limits, stones, ended = step.registry.limits, step.after.tombstones, step.present.ended
    require(len(stones) <= limits.tombstones, "R7: no more tombstones than the limit says", step)
    require(not set(stones) & set(live_records(step.registry)), "R7: a live id has no tombstone", step)
    require(stones.items() <= ended.items(), "R7: a tombstone says how its id ended", step)
    if limits.tombstones >= 1000:
        require(stones == ended, "R7: an ended id is remembered for its time", step)
    held = {
        type(value)
        for stone in tombstones(step.registry).values()
        for name in type(stone).__slots__
        for value in _flat(getattr(stone, name))
    }
    require(held <= {str, int, float, type(None)}, "R7: a tombstone holds no payload and no record", step)


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple | set | frozenset):
        yield from value
    else:
        yield value


def r8_a_late_event_never_resurrects(step: Step) -> None:
    """R8: only an accepted registration makes an id live; a late start is answered with an abort."""
    born = set(step.after.records) - set(step.before.records)
    registration = step.name in ("parent_registered", "companion_registered")
    require(not born or (registration and step.answer.disposition == "accepted"), "R8: nothing comes back", step)
    ended = step.present.ended.get(step.event.request_id) if step.name == "request_started" else None
    if ended is not None and (step.event.life is None or step.event.life <= ended.number):
        require(
            [action.to_dict() for action in step.answer.actions]
            == [{"type": "abort_requests", "request_ids": [step.event.request_id]}],
            "R8: what starts after its group ended is aborted",
            step,
        )


def r9_registration_is_all_or_nothing(step: Step) -> None:
    """R9: what is let in is let in whole, what is turned away has changed nothing, and the rules say which."""
    if step.name not in ("parent_registered", "companion_registered"):
        return
    event, accepted = step.event, step.answer.disposition == "accepted"
    if step.name == "parent_registered":
        new = [event.parent_id, *(event.companions or {}).values()]
    else:
        new = [event.companion_id]
    born = set(step.after.records) - set(step.before.records)
    require(born == (set(new) if accepted else set()), "R9: a registration is taken in whole or not at all", step)
    require(step.answer.disposition == step.foreseen.disposition, "R9: the door opens by its rules", step)
    limit = step.registry.limits.max_requests
    require(limit is None or len(step.after.records) <= limit, "R9: the registry is never over-full", step)


def what_is_refused_has_changed_nothing(step: Step) -> None:
    """An ignored or rejected event leaves every record as it was; of an ended id it may be noted that it has
    reported, and time goes on."""
    if step.answer.disposition == "accepted":
        return
    require(step.after.records == step.before.records, "a refused event has changed nothing", step)
    require(list(step.after.records) == list(step.before.records), "a refused event has changed no order", step)
    require(step.after.next_deadline == step.before.next_deadline, "a refused event moves no deadline", step)
    for request_id, stone in step.after.tombstones.items():
        before = step.before.tombstones[request_id]
        require(stone in (before, step.present.ended[request_id]), "a refused event makes no tombstone", step)


def r11_the_next_deadline_is_exact(step: Step) -> None:
    """R11: it is the earliest that the views show and that follows from the events; after a tick it is to come."""
    shown = min((v["deadline"] for v in step.after.views.values() if v["deadline"] is not None), default=None)
    follows = min((d.when for life in step.present.lives.values() for d in life.deadlines()), default=None)
    require(step.after.next_deadline == shown == follows, "R11: the next deadline is exact", step)
    if step.name == "clock_ticked" and shown is not None:
        require(shown > step.registry.now, "R11: after a tick nothing is due", step)


def the_coupling_is_settled(step: Step) -> None:
    """Between two events no coupling row is satisfied, and nothing rests in a state that is passed through."""
    for view in step.after.views.values():
        if view["machine"] == "parent":
            require(view["state"] in ("registered", "running", "deferred", "forwarded"), "a live parent", step)
            complete = view["sealed"] and not view["missing"]
            require(view["state"] != "deferred" or not complete, "a complete bundle does not wait", step)
        else:
            require(view["state"] in ("registered", "running", "done"), "a live companion", step)


def the_views_show_what_was_told(step: Step) -> None:
    """The views are the account of the events: states, ages, missing roles, replicas, deadlines, in order."""
    now, expected = step.present.now, []
    for life in step.present.lives.values():
        common = {"parent_id": life.parent_id, "life": life.number, "sealed": life.sealed}
        own = [d.when for d in life.deadlines() if d.companion is None]
        expected.append(
            common
            | {"request_id": life.parent_id, "machine": "parent", "role": None, "state": life.state}
            | {"age_s": now - life.since, "missing": life.missing(), "replica": life.replica}
            | {"deadline": min(own, default=None)}
        )
        for c in life.companions:
            own = [d.when for d in life.deadlines() if d.companion is c]
            expected.append(
                common
                | {"request_id": c.request_id, "machine": "companion", "role": c.role, "state": c.state}
                | {"age_s": now - c.since, "missing": {}, "replica": c.replica, "deadline": min(own, default=None)}
            )
    shown = list(step.after.views.values())
    if shown != expected:  # asked first: the sentence costs more than the comparison
        require(False, f"the views show what was told\n  shown    {shown}\n  expected {expected}", step)
    require(step.registry.now == now, "the registry's time is the latest that an event brought", step)
