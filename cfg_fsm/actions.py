"""Actions: imperatives for the host, and the answer of a dispatch.

Actions are frozen and typed; ``to_dict()`` gives their JSON shape, payloads by reference.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from cfg_fsm.payload import describe_payload
from cfg_fsm.states import FailureReason

Disposition: TypeAlias = Literal["accepted", "ignored", "rejected"]
AbortOutcome: TypeAlias = Literal["ended", "already_ended", "unknown"]


class _Imperative:
    __slots__ = ()

    type: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """``{"type": ..., <fields>}``; payloads by reference, codes as plain strings."""
        shape: dict[str, Any] = {"type": self.type}
        for item in fields(self):  # type: ignore[arg-type]
            shape[item.name] = getattr(self, item.name)
        return shape

    def log_body(self) -> dict[str, Any]:
        """The same for the audit: of payloads only type and size, and containers of its own."""
        return self.to_dict()

    def log_reason(self) -> str | None:
        """The reason that an audit record of it names."""
        return None


@dataclass(frozen=True, slots=True)
class ForwardParent(_Imperative):
    """Hand the complete bundle to the next stage."""

    type: ClassVar[str] = "forward_parent"

    parent_id: str
    life: int
    stage_id: int
    """The stage whose output this is."""
    engine_outputs: Any = field(repr=False)
    companion_request_ids: dict[str, str]
    """``{role: companion id}`` in role-registration order."""
    companion_outputs: list[Any] = field(repr=False)
    """One output for every role, in the same order."""
    context: Any = field(repr=False)

    def log_body(self) -> dict[str, Any]:
        """See ``_Imperative``."""
        return {
            "type": self.type,
            "parent_id": self.parent_id,
            "life": self.life,
            "stage_id": self.stage_id,
            "engine_outputs": describe_payload(self.engine_outputs),
            "companion_request_ids": self.companion_request_ids.copy(),
            "companion_outputs": [describe_payload(output) for output in self.companion_outputs],
            "context": describe_payload(self.context),
        }


class _Unfrozen(ForwardParent):
    """One that is being made: a frozen dataclass sets each field in a call, which costs five times as much."""

    __slots__ = ()
    __setattr__ = object.__setattr__


def forward_parent(
    parent_id: str,
    life: int,
    stage_id: int,
    engine_outputs: Any,
    roles: dict[str, str],
    outputs: list[Any],
    context: Any,
) -> ForwardParent:
    """``ForwardParent`` of these fields, in its order. There is one in the life of every parent."""
    action = _Unfrozen.__new__(_Unfrozen)
    action.parent_id = parent_id  # type: ignore[misc]
    action.life = life  # type: ignore[misc]
    action.stage_id = stage_id  # type: ignore[misc]
    action.engine_outputs = engine_outputs  # type: ignore[misc]
    action.companion_request_ids = roles  # type: ignore[misc]
    action.companion_outputs = outputs  # type: ignore[misc]
    action.context = context  # type: ignore[misc]
    action.__class__ = ForwardParent  # type: ignore[assignment]
    return action


@dataclass(frozen=True, slots=True)
class FailParent(_Imperative):
    """Tell the client that its request failed."""

    type: ClassVar[str] = "fail_parent"

    parent_id: str
    life: int
    stage_id: int | None
    reason: FailureReason
    error: str
    """A sentence that names the cause, the limit, the missing roles."""
    companion_id: str | None
    error_type: str | None
    status_code: int | None
    """HTTP status; 504 for a deadline."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON shape; ``reason`` as a plain string."""
        shape = _Imperative.to_dict(self)
        shape["reason"] = self.reason.value
        return shape

    def log_reason(self) -> str | None:
        """See ``_Imperative``."""
        return self.reason.value


@dataclass(frozen=True, slots=True)
class AbortRequests(_Imperative):
    """Stop these requests wherever they still run."""

    type: ClassVar[str] = "abort_requests"

    request_ids: list[str]

    def log_body(self) -> dict[str, Any]:
        """See ``_Imperative``."""
        return {"type": self.type, "request_ids": self.request_ids.copy()}


@dataclass(frozen=True, slots=True)
class ReleaseRequests(_Imperative):
    """Free what is held for these requests; nothing more will be said about them."""

    type: ClassVar[str] = "release_requests"

    request_ids: list[str]

    def log_body(self) -> dict[str, Any]:
        """See ``_Imperative``."""
        return {"type": self.type, "request_ids": self.request_ids.copy()}


@dataclass(frozen=True, slots=True)
class AcknowledgeAbort(_Imperative):
    """Answer the client's abort."""

    type: ClassVar[str] = "acknowledge_abort"

    outcomes: dict[str, AbortOutcome]
    """What became of each id, in the order of first mention."""

    def log_body(self) -> dict[str, Any]:
        """See ``_Imperative``."""
        return {"type": self.type, "outcomes": self.outcomes.copy()}


Action: TypeAlias = ForwardParent | FailParent | AbortRequests | ReleaseRequests | AcknowledgeAbort

ACTION_TYPES: tuple[type[Action], ...] = (
    AcknowledgeAbort,
    ForwardParent,
    FailParent,
    AbortRequests,
    ReleaseRequests,
)


class Dispatched(NamedTuple):
    """The answer of a dispatch."""

    disposition: Disposition
    reason: str | None
    """A code of ``IgnoredReason`` or ``RejectedReason``; ``None`` when accepted."""
    actions: tuple[Action, ...]
    """What the host has to carry out, in this order."""
    life: int | None
    """Life of the one group the event was about; ``None``: unknown id, or an event about several groups."""

    def to_dict(self) -> dict[str, Any]:
        """``{"disposition", "reason", "actions", "life"}`` as plain data, payloads by reference."""
        return {
            "disposition": self.disposition,
            "reason": None if self.reason is None else str(self.reason),
            "actions": [action.to_dict() for action in self.actions],
            "life": self.life,
        }


def accepted(life: int) -> Dispatched:
    """The answer to an event that was taken in and asks nothing of the host. One object for many answers."""
    return ACCEPTED[life] if life < MANY else Dispatched("accepted", None, (), life)


MANY = 64
#: Those answers, by life.
ACCEPTED = tuple(Dispatched("accepted", None, (), life) for life in range(MANY))
