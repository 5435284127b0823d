"""The work: the life of a parent with two companions, as the orchestrator drives it, on each of the peers.

One life: the parent and two companions are registered, one companion ends, the parent's output is deferred, the
other companion ends and so the bundle is complete, the parent is forwarded and finishes, everything is cleaned.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import statemachine
from transitions import Machine

from cfg_fsm import Registry, events, tables

OUTPUT = {"text": "payload"}


def names() -> Iterator[tuple[str, str, str]]:
    """Ids of a parent and its two companions, never the same twice."""
    for number in itertools.count():
        parent = f"chatcmpl-{number:08x}"
        yield parent, parent + "__cfg_text", parent + "__cfg_img"


def on_tracker(tracker: Any, ids: Iterator[tuple[str, str, str]], lives: int) -> None:
    """The calls that vLLM-Omni's orchestrator makes, in its order."""
    for parent, text, image in itertools.islice(ids, lives):
        tracker.register_companion(parent, "cfg_text", text)
        tracker.register_companion(parent, "cfg_img", image)
        # a companion ends
        tracker.is_companion(text)
        tracker.set_companion_output(text, OUTPUT)
        tracker.on_companion_completed(text)
        tracker.get_parent_id(text)
        tracker.is_companion_done(text)
        tracker.cleanup_parent(text)
        # the parent ends first
        tracker.is_companion(parent)
        tracker.has_companions(parent)
        tracker.all_companions_done(parent)
        tracker.defer_parent(parent, OUTPUT, 0)
        # the last companion ends, and the bundle is forwarded
        tracker.is_companion(image)
        tracker.set_companion_output(image, OUTPUT)
        if tracker.on_companion_completed(image) is not None:
            tracker.pop_pending_parent(parent)
        tracker.has_companions(parent)
        tracker.all_companions_done(parent)
        tracker.get_companion_outputs(parent)
        tracker.get_companion_request_ids(parent)
        tracker.get_companion_request_ids(parent)
        tracker.get_parent_id(image)
        tracker.is_companion_done(image)
        tracker.cleanup_parent(image)
        # final output
        tracker.is_companion(parent)
        tracker.cleanup_parent(parent)
        for request_id in (parent, text, image):
            tracker.get_parent_id(request_id)
            tracker.cleanup_parent(request_id)


def on_events(registry: Registry, ids: Iterator[tuple[str, str, str]], lives: int) -> None:
    """The same life as events, built and dispatched."""
    dispatch = registry.dispatch
    for parent, text, image in itertools.islice(ids, lives):
        dispatch(events.ParentRegistered(parent_id=parent, companions={"cfg_text": text, "cfg_img": image}))
        dispatch(events.RequestStarted(request_id=parent, replica_id=0))
        dispatch(events.RequestStarted(request_id=text, replica_id=0))
        dispatch(events.RequestStarted(request_id=image, replica_id=0))
        dispatch(events.CompanionOutputReady(companion_id=text, output=OUTPUT))
        dispatch(events.ParentOutputReady(parent_id=parent, engine_outputs=OUTPUT))
        dispatch(events.CompanionOutputReady(companion_id=image, output=OUTPUT))
        dispatch(events.ParentFinished(parent_id=parent))


class _Host:
    """The least a host needs around stock machines: who belongs together, and the bundle."""

    def __init__(self, machine_of: Callable[[str], Any], forget: Callable[[Any], None]) -> None:
        self.machine_of = machine_of
        self.forget = forget

    def live(self, ids: Iterator[tuple[str, str, str]], lives: int) -> None:
        for _ in itertools.islice(ids, lives):
            parent = self.machine_of("parent")
            companions = [self.machine_of("companion"), self.machine_of("companion")]
            outputs: list[Any] = []
            for machine in (parent, *companions):
                machine.start()
            companions[0].complete()
            outputs.append(OUTPUT)
            parent.defer()
            companions[1].complete()
            outputs.append(OUTPUT)
            parent.forward()
            parent.finish()
            for machine in (parent, *companions):
                machine.clean()
                self.forget(machine)


class _Model:
    """Something that a stock machine decorates."""

    streaming = False


def _arguments(kind: str) -> dict[str, Any]:
    machine_kind = tables.MachineKind(kind)
    return {
        "states": [str(state) for state in tables.STATES[machine_kind]],
        "initial": str(tables.INITIAL[machine_kind]),
        "transitions": [
            {"trigger": str(r.trigger), "source": str(r.source), "dest": str(r.dest), "conditions": r.guard}
            for r in tables.ROWS[machine_kind]
        ],
    }


_ARGUMENTS = {kind: _arguments(kind) for kind in ("parent", "companion")}


def transitions_machine_each() -> _Host:
    """Stock ``transitions``, one ``Machine`` per request."""

    def machine_of(kind: str) -> Any:
        model = _Model()
        Machine(model, **_ARGUMENTS[kind])
        return model

    return _Host(machine_of, lambda model: None)


def transitions_shared_machine() -> _Host:
    """Stock ``transitions``, one shared ``Machine`` per kind and ``add_model``."""
    machines = {kind: Machine(None, **_ARGUMENTS[kind]) for kind in _ARGUMENTS}

    def machine_of(kind: str) -> Any:
        model = _Model()
        model.kind = kind  # type: ignore[attr-defined]
        machines[kind].add_model(model)
        return model

    return _Host(machine_of, lambda model: machines[model.kind].remove_model(model))


class _ParentMachine(statemachine.StateMachine):
    registered = statemachine.State(initial=True)
    running = statemachine.State()
    deferred = statemachine.State()
    forwarded = statemachine.State()
    done = statemachine.State()
    failed = statemachine.State()
    cleaned = statemachine.State(final=True)
    start = registered.to(running) | running.to(running)
    defer = registered.to(deferred) | running.to(deferred) | deferred.to(deferred) | forwarded.to(deferred)
    forward = deferred.to(forwarded)
    finish = registered.to(done) | running.to(done) | forwarded.to(done)
    fail = registered.to(failed) | running.to(failed) | deferred.to(failed) | forwarded.to(failed)
    clean = done.to(cleaned) | failed.to(cleaned)


class _CompanionMachine(statemachine.StateMachine):
    registered = statemachine.State(initial=True)
    running = statemachine.State()
    done = statemachine.State()
    failed = statemachine.State()
    cleaned = statemachine.State(final=True)
    start = registered.to(running) | running.to(running)
    complete = registered.to(done) | running.to(done)
    fail = registered.to(failed) | running.to(failed)
    clean = done.to(cleaned) | failed.to(cleaned)


def python_statemachine() -> _Host:
    """``python-statemachine``, one machine per request."""
    kinds = {"parent": _ParentMachine, "companion": _CompanionMachine}
    return _Host(lambda kind: kinds[kind](), lambda machine: None)
