"""Short names for the events, and answers in a form that reads well in a test."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cfg_fsm import Dispatched, ForwardParent, Limits, Registry
from cfg_fsm import events as ev
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.engine.views import RequestView


class Payload:
    """A payload that can be watched by a weak reference, and that must show up in no text."""

    __slots__ = ("__weakref__", "name")

    def __init__(self, name: str = "") -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"SECRET({self.name})"


class Restless:
    """A payload that does something when it is let go of, as a finalizer of the host's might."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def __del__(self) -> None:
        self.act()


#: The companions of a group by their roles.
TWO = {"neg": "a", "img": "b"}
THREE = {"neg": "a", "img": "b", "txt": "c"}


# -- events -----------------------------------------------------------------------------------------------


def register(parent: str = "p", companions: dict[str, str] | None = None, **fields: Any) -> ev.ParentRegistered:
    return ev.ParentRegistered(parent_id=parent, companions=companions, **fields)


def join(parent: str, role: str, companion: str, **fields: Any) -> ev.CompanionRegistered:
    return ev.CompanionRegistered(parent_id=parent, role=role, companion_id=companion, **fields)


def seal(parent: str = "p", **fields: Any) -> ev.CompanionsSealed:
    return ev.CompanionsSealed(parent_id=parent, **fields)


def start(request: str, replica: int | None = None, *, stage: int = 0, **fields: Any) -> ev.RequestStarted:
    return ev.RequestStarted(request_id=request, replica_id=replica, stage_id=stage, **fields)


def beat(request: str, **fields: Any) -> ev.RequestProgressed:
    return ev.RequestProgressed(request_id=request, **fields)


def kv(request: str, **fields: Any) -> ev.KvReady:
    return ev.KvReady(request_id=request, **fields)


def output(parent: str = "p", payload: Any = "P", *, stage: int = 0, **fields: Any) -> ev.ParentOutputReady:
    return ev.ParentOutputReady(parent_id=parent, engine_outputs=payload, stage_id=stage, **fields)


def done(companion: str, payload: Any = "C", finish: Any = "stop", **fields: Any) -> ev.CompanionOutputReady:
    return ev.CompanionOutputReady(companion_id=companion, output=payload, finish_reason=finish, **fields)


def error(request: str, text: str = "boom", **fields: Any) -> ev.RequestFailed:
    return ev.RequestFailed(request_id=request, error=text, **fields)


def abort(*requests: str, **fields: Any) -> ev.RequestsAborted:
    return ev.RequestsAborted(request_ids=list(requests), **fields)


def lose(replica: int, *, stage: int = 0, **fields: Any) -> ev.ReplicaLost:
    return ev.ReplicaLost(stage_id=stage, replica_id=replica, **fields)


def reject(parent: str = "p", text: str = "no room", **fields: Any) -> ev.ForwardRejected:
    return ev.ForwardRejected(parent_id=parent, error=text, **fields)


def finish(parent: str = "p", **fields: Any) -> ev.ParentFinished:
    return ev.ParentFinished(parent_id=parent, **fields)


def tick(at: float) -> ev.ClockTicked:
    return ev.ClockTicked(at=at)


# -- the inside of a registry, for tests that ask what it holds --------------------------------------------


def live_records(registry: Registry) -> dict[str, Any]:
    """The record of each live request, by its id."""
    return registry._ledger.requests


def armed_groups(registry: Registry) -> list[Any]:
    """The groups that the heap of deadlines knows."""
    return [record.group for record, _, _ in registry._ledger.deadlines.each()]


def tombstones(registry: Registry) -> dict[str, Any]:
    """The tombstone of each ended id that is remembered."""
    return registry._ledger.tombstones.by_id


# -- answers ----------------------------------------------------------------------------------------------


def sentence(action: dict[str, Any]) -> str:
    """One action on one line: who, and why; not what it carries."""
    kind = action["type"]
    if kind == "acknowledge_abort":
        return " ".join(["acknowledge", *(f"{who}={how}" for who, how in action["outcomes"].items())])
    if kind == "forward_parent":
        return f"forward {action['parent_id']}"
    if kind == "fail_parent":
        return f"fail {action['parent_id']}: {action['reason']}"
    return " ".join([kind.removesuffix("_requests"), *action["request_ids"]])


def told(answer: Dispatched) -> list[str]:
    """What an answer tells the host to do, e.g. ``["fail p: error", "abort a", "release p a"]``."""
    return [sentence(action.to_dict()) for action in answer.actions]


class Host:
    """A registry with an eye on what it says."""

    def __init__(self, **limits: Any) -> None:
        self.records: list[AuditRecord] = []
        self.registry = Registry(limits=Limits(**limits), observers=[self.records.append])

    def send(self, *events: Any) -> Dispatched:
        """Dispatch the events; the answer to the last."""
        return self.registry.dispatch_many(events)[-1]

    def tells(self, *events: Any) -> list[str]:
        """What the answer to the last of the events tells the host to do."""
        return told(self.send(*events))

    def verdict(self, *events: Any) -> tuple[str, str | None]:
        """Disposition of the last of the events, and the code of a refusal."""
        answer = self.send(*events)
        return answer.disposition, answer.reason

    def view(self, request: str) -> RequestView:
        return next(view for view in self.registry.requests() if view.request_id == request)

    def state(self, request: str) -> str | None:
        """The state of a live request; ``None``: it is not live."""
        return next((view.state for view in self.registry.requests() if view.request_id == request), None)

    def live(self) -> list[str]:
        return [view.request_id for view in self.registry.requests()]

    def moves(self, request: str) -> list[tuple[str | None, str | None, str | None]]:
        """All ``(trigger, source, dest)`` of a request so far."""
        return [
            (record.trigger, record.source, record.dest)
            for record in self.records
            if record.kind == "transition" and record.request_id == request
        ]


def forwarded(host: Host, companions: dict[str, str] | None = None, **fields: Any) -> None:
    """``p`` is forwarded, with all of its companions done."""
    companions = TWO if companions is None else companions
    host.send(register("p", companions, **fields), *(done(companion) for companion in companions.values()))
    assert host.tells(output("p")) == ["forward p"]


def bundle(answer: Dispatched) -> tuple[dict[str, str], list[Any]]:
    """Ids and outputs of the bundle in an answer that is a forward and nothing else."""
    (forward,) = answer.actions
    assert isinstance(forward, ForwardParent)
    return forward.companion_request_ids, forward.companion_outputs
