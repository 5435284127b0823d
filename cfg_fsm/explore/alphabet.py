"""Signals, the short form of events: how they become events, how they read, and which need no permission.

A signal is relative (the time that it adds, not the time that it is), so the same signal in the same state of the
engine always means the same. Payloads are strings that name their request and which of its outputs it is; one name
is one object as long as anybody holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from sys import intern
from typing import Any

from cfg_fsm import events as ev
from cfg_fsm.explore.environment import Signal
from cfg_fsm.explore.scenario import ROLES, Scenario

#: Ids that no group of a scenario has.
STRANGER, STRANGERS_COMPANION, NOBODY = "x", "x-a", "nobody"
_FAR = 60.0


def companions_of(scenario: Scenario, parent_id: str) -> dict[str, str]:
    """``{role: companion id}`` as a registration names them."""
    return dict(zip(ROLES, scenario.companion_ids(parent_id), strict=False))


def make(scenario: Scenario, signal: Signal, now: float, due: float | None) -> Any:
    """The event that a signal means at the time ``now`` when the next deadline is ``due``."""
    kind, *rest = signal
    return _MAKERS[str(kind)](scenario, now, due, *rest)


def _register(s: Scenario, _: Any, __: Any, parent: str, announced: bool, streaming: bool, life: Any) -> Any:
    companions = companions_of(s, parent) if announced else None
    return ev.ParentRegistered(parent_id=parent, companions=companions, streaming=streaming, life=life)


def _register_as(_: Any, __: Any, ___: Any, parent: str, pairs: Any, life: Any) -> Any:
    return ev.ParentRegistered(parent_id=parent, companions=dict(pairs), life=life)


def _join(_: Any, __: Any, ___: Any, parent: str, role: str, companion: str, life: Any) -> Any:
    return ev.CompanionRegistered(parent_id=parent, role=role, companion_id=companion, life=life)


def _seal(_: Any, __: Any, ___: Any, parent: str, life: Any) -> Any:
    return ev.CompanionsSealed(parent_id=parent, life=life)


def _start(_: Any, __: Any, ___: Any, request: str, replica: int, life: Any) -> Any:
    return ev.RequestStarted(request_id=request, replica_id=replica, life=life)


def _beat(_: Any, __: Any, ___: Any, request: str, life: Any) -> Any:
    return ev.RequestProgressed(request_id=request, life=life)


def _kv(_: Any, __: Any, ___: Any, request: str, life: Any) -> Any:
    return ev.KvReady(request_id=request, life=life)


def _output(_: Any, __: Any, ___: Any, parent: str, name: str, segment: bool, life: Any) -> Any:
    return ev.ParentOutputReady(
        parent_id=parent, engine_outputs=intern(f"{parent}:{name}"), segment=segment,
        context=intern(f"{parent}:ctx {name}"), life=life,
    )  # fmt: skip


def _done(_: Any, __: Any, ___: Any, companion: str, name: str, reason: Any, life: Any) -> Any:
    return ev.CompanionOutputReady(
        companion_id=companion, output=intern(f"{companion}:{name}"), finish_reason=reason, life=life
    )


def _fail(_: Any, __: Any, ___: Any, request: str, life: Any) -> Any:
    return ev.RequestFailed(request_id=request, error="boom", stage_id=1, life=life)


def _abort(_: Any, __: Any, ___: Any, requests: Any, life: Any) -> Any:
    return ev.RequestsAborted(request_ids=list(requests), life=life)


def _lose(_: Any, __: Any, ___: Any, replica: int) -> Any:
    return ev.ReplicaLost(stage_id=0, replica_id=replica)


def _reject(_: Any, __: Any, ___: Any, parent: str, life: Any) -> Any:
    return ev.ForwardRejected(parent_id=parent, error="no room", life=life)


def _finish(_: Any, __: Any, ___: Any, parent: str, life: Any) -> Any:
    return ev.ParentFinished(parent_id=parent, life=life)


def _tick(_: Any, now: float, due: float | None, when: str) -> Any:
    at = {"now": now, "due": max(now, due or now), "far": max(now, due or now) + _FAR}[when]
    return ev.ClockTicked(at=at)


def _pass(_: Any, now: float, __: Any) -> Any:
    return ev.RequestProgressed(request_id=NOBODY, at=now + 1.0)


def _back(_: Any, now: float, __: Any) -> Any:
    return ev.RequestProgressed(request_id=NOBODY, at=max(0.0, now - 1.0))


_MAKERS: dict[str, Any] = {
    "register": _register, "register_as": _register_as, "join": _join, "seal": _seal, "start": _start,
    "beat": _beat, "kv": _kv, "output": _output, "done": _done, "fail": _fail, "abort": _abort, "lose": _lose,
    "reject": _reject, "finish": _finish, "tick": _tick, "pass": _pass, "back": _back,
}  # fmt: skip

#: A second passes, and no clock ticks.
PASS: Signal = ("pass",)


def payloads(event: Any) -> list[str]:
    """The payloads that an event carries."""
    if isinstance(event, ev.ParentOutputReady):
        return [event.engine_outputs, event.context]
    return [event.output] if isinstance(event, ev.CompanionOutputReady) else []


def free(scenario: Scenario) -> list[Signal]:
    """What may come at any time and tells nothing of the scheduler's state: the client's aborts, losses of
    replicas, the clock."""
    found: list[Signal] = [("lose", 0), ("tick", "now"), ("tick", "due")]
    if scenario.rebind:
        found.append(("lose", 1))
    if scenario.timed:
        found.append(("tick", "far"))
    for parent in scenario.parent_ids:
        ids = scenario.companion_ids(parent)
        found.append(("abort", (parent,), None))
        found += [("abort", (companion,), None) for companion in ids]
        if ids:
            found += [("abort", names, None) for names in ((parent, ids[-1]), (ids[-1], parent))]
            found.append(("abort", (*reversed(ids), ids[0], STRANGER), None))
    found += [("abort", names, None) for names in permutations(scenario.parent_ids) if len(names) > 1]
    return found


def strange(scenario: Scenario) -> Iterator[Signal]:
    """What no right scheduler sends; to be sent where it must be refused."""
    yield ("back",)
    yield ("start", STRANGER, 0, None)
    yield ("done", STRANGER, "0.1", "stop", None)
    yield ("lose", 7)
    yield ("abort", (STRANGER,), None)
    yield ("abort", (), None)
    yield ("register_as", STRANGER, (("a", STRANGERS_COMPANION), ("b", STRANGERS_COMPANION)), 7)
    yield ("register_as", STRANGER, (("a", STRANGERS_COMPANION), ("b", STRANGER)), 7)
    yield ("join", STRANGER, "a", STRANGERS_COMPANION, None)
    for parent in scenario.parent_ids:
        ids = scenario.companion_ids(parent)
        yield ("register_as", STRANGER, (("a", STRANGERS_COMPANION), ("b", parent)), None)
        yield ("register_as", parent, (("z", STRANGERS_COMPANION),), None)
        yield ("register_as", parent, (("z", STRANGERS_COMPANION),), 0)
        yield ("done", parent, "0.1", "stop", None)
        yield ("join", parent, "z", STRANGERS_COMPANION, None)
        yield ("join", parent, "z", parent, None)
        for kind in ("seal", "finish", "reject", "fail", "kv"):
            yield (kind, parent, 9)
        yield ("output", parent, "9.1", False, 9)
        yield ("start", parent, 0, 9)
        yield ("abort", (parent,), 9)
        if ids:
            yield ("register_as", parent, tuple(reversed(companions_of(scenario, parent).items())), None)
            yield ("register_as", STRANGER, (("a", STRANGERS_COMPANION), ("b", ids[-1])), None)
            yield ("register_as", ids[0], (), None)
            yield ("join", parent, "a", STRANGERS_COMPANION, None)
            yield ("join", parent, "z", ids[0], None)
            yield ("join", ids[0], "z", STRANGERS_COMPANION, None)
            for kind in ("seal", "finish", "reject"):
                yield (kind, ids[0], None)
            yield ("output", ids[0], "0.1", False, None)
            yield ("done", ids[-1], "9.1", "stop", 9)
            yield ("start", ids[-1], 0, 9)
            yield ("abort", (ids[0],), 9)
