"""The rules about what a step tells the host: R1 to R4, and the order of the actions."""

from __future__ import annotations

from cfg_fsm.rules.rule import Broken, require
from cfg_fsm.rules.statements import ORDER, R1, R2, R3, R4
from cfg_fsm.rules.step import Step


@R1.step
def r1_a_parent_ends_once(step: Step) -> None:
    """Forwards and failures are told of live lives only, one each; who ended is heard of only in a release."""
    told = [(a["parent_id"], a["life"]) for kind in ("forward_parent", "fail_parent") for a in step.actions(kind)]
    live = {(life.parent_id, life.number) for life in step.past.lives.values()}
    require(len(set(told)) == len(told), "a parent is told of once in a step", step)
    require(set(told) <= live, "nothing is said about a life that has ended", step)
    ended = {end.life.parent_id for end in step.foreseen.ends}
    require(
        not ended & {a["parent_id"] for a in step.actions("forward_parent")},
        "a parent that ends is not forwarded",
        step,
    )


@R1.step
def r1_every_end_is_told_and_no_other(step: Step) -> None:
    """A failure is told under its reason, once; a client's abort and a finish are not told as failures."""
    told = [
        (a["parent_id"], a["life"], a["reason"], a["companion_id"], a["stage_id"])
        for a in step.actions("fail_parent")
    ]
    require(
        told
        == [
            (end.life.parent_id, end.life.number, end.reason, end.companion_id, end.stage_id)
            for end in step.foreseen.ends
            if end.is_told_as_failure
        ],
        "the failures that are told are those that happened, in order",
        step,
    )
    for action in step.actions("fail_parent"):
        require(bool(action["error"]), "a failure says why in a sentence", step)
        by_deadline = step.name == "clock_ticked"
        require(not by_deadline or action["status_code"] == 504, "a deadline has the status 504", step)


@R2.step
def r2_a_forward_carries_the_whole_bundle(step: Step) -> None:
    """An output for every role, in role order, by reference, exactly when it is complete; else nothing."""
    forwards, expected = step.actions("forward_parent"), step.foreseen.forward
    require(len(forwards) == (expected is not None), "a bundle is sent when, and only when, it is complete", step)
    if expected is None:
        return
    (forward,) = forwards
    require(
        list(forward["companion_request_ids"].items()) == list(expected["companion_request_ids"].items()),
        "every role is there, in the order of registration",
        step,
    )
    outputs = forward["companion_outputs"]
    require(
        len(outputs) == len(expected["companion_outputs"])
        and all(ours is theirs for ours, theirs in zip(outputs, expected["companion_outputs"], strict=True)),
        "the outputs are the first that came, in role order, by reference",
        step,
    )
    for name in ("engine_outputs", "context"):
        require(forward[name] is expected[name], f"{name} is the latest, by reference", step)
    for name in ("parent_id", "life", "stage_id"):
        require(forward[name] == expected[name], f"{name} is the bundle's", step)


@R3.step
def r3_ids_belong_to_the_group_that_ended(step: Step) -> None:
    """Unique, of that group, the parent first and then role order, each released exactly once."""
    ends, strays = step.foreseen.ends, step.foreseen.strays
    aborts = [a["request_ids"] for a in step.actions("abort_requests")]
    releases = [a["request_ids"] for a in step.actions("release_requests")]
    if strays:
        subject = [getattr(step.event, "companion_id", None) or getattr(step.event, step.event.subject_field)]
        require(aborts == [subject], "what runs without an owner is aborted, and nothing else", step)
        require(
            releases == ([subject] if "release_requests" in strays else []),
            "a stray is released, and nothing else",
            step,
        )
        require(subject[0] not in step.past.live_ids(), "an id that lives elsewhere is left alone", step)
        return
    require(
        aborts == [end.aborted for end in ends if end.aborted],
        "aborted are those that may still run, the parent first, then in role order",
        step,
    )
    require(
        releases == [*(end.released for end in ends if end.released), *map(list, step.foreseen.late)],
        "released is every id of a group that ends, once: with it, or when what it waits for has come",
        step,
    )
    for ids in (*aborts, *releases):
        require(len(set(ids)) == len(ids), "ids are unique", step)


@R4.step
def r4_client_facing_actions_name_parents(step: Step) -> None:
    """A companion's id never stands where a parent's belongs."""
    for kind in ("forward_parent", "fail_parent"):
        for action in step.actions(kind):
            require(action["parent_id"] in step.past.lives, "client-facing actions name parents", step)


@ORDER.step
def the_answer_is_in_order(step: Step) -> None:
    """Acknowledge first; then group by group, in their order, forward or fail, abort, release."""
    expected: list[tuple[str, str | None]] = []
    if step.foreseen.outcomes is not None:
        expected.append(("acknowledge_abort", None))
    if step.foreseen.forward is not None:
        expected.append(("forward_parent", step.foreseen.forward["parent_id"]))
    for end in step.foreseen.ends:
        parent_id = end.life.parent_id
        if end.is_told_as_failure:
            expected.append(("fail_parent", parent_id))
        if end.aborted:
            expected.append(("abort_requests", parent_id))
        if end.released:
            expected.append(("release_requests", parent_id))
    expected += [(kind, None) for kind in step.foreseen.strays]
    expected += [("release_requests", step.waited_for(ids[0])) for ids in step.foreseen.late]
    got: list[tuple[str, str | None]] = []
    for action in step.answer.actions:
        shape = action.to_dict()
        owner = shape.get("parent_id")
        if owner is None and not step.foreseen.strays and "request_ids" in shape:
            life = step.past.owner(shape["request_ids"][0])
            owner = step.waited_for(shape["request_ids"][0]) if life is None else life.parent_id
        got.append((shape["type"], owner))
    if got != expected:  # asked first: the sentence costs more than the comparison
        raise Broken(f"the actions stand in order: {expected}", step)
