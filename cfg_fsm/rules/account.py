"""What is known of the parents and companions from the events alone: the nouns of ``History``.

It is a second account beside that of the engine, in plain objects and without the tables, so that an error in
the tables is not made twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cfg_fsm.limits import Limits


@dataclass(slots=True)
class Companion:
    """One companion of a life."""

    request_id: str
    role: str
    since: float
    seen: float
    state: str = "registered"
    replica: tuple[int, int] | None = None
    output: Any = None

    @property
    def open(self) -> bool:
        """Whether it has not ended."""
        return self.state in ("registered", "running")


@dataclass(slots=True)
class Life:
    """One registration of one parent."""

    parent_id: str
    number: int
    announced: list[tuple[str, str]] | None
    streaming: bool
    own_limits: Limits | None
    limits: Limits
    registered_at: float
    since: float
    sealed: bool
    companions: list[Companion] = field(default_factory=list)
    state: str = "registered"
    replica: tuple[int, int] | None = None
    stage_id: int | None = None
    engine_outputs: Any = None
    context: Any = None
    seq: int = 0
    """Number of its registration."""

    @property
    def ids(self) -> list[str]:
        """The parent's id, then the companions' in role order."""
        return [self.parent_id, *(companion.request_id for companion in self.companions)]

    def enter(self, state: str, now: float) -> None:
        """The parent is in ``state``; since now, if it was not."""
        if state != self.state:
            self.state, self.since = state, now

    def companion(self, request_id: str) -> Companion | None:
        """The companion with this id."""
        return next((c for c in self.companions if c.request_id == request_id), None)

    def missing(self) -> dict[str, str]:
        """``{role: companion id}`` of the outputs that are not here."""
        return {c.role: c.request_id for c in self.companions if c.state != "done"}

    def deadlines(self) -> list[Deadline]:
        """In the order that decides between equal ones."""
        limits, found = self.limits, []
        if self.state == "deferred" and limits.deferred_s is not None:
            found.append(Deadline(self.since + limits.deferred_s, "deferred_deadline", None))
        if limits.total_s is not None:
            found.append(Deadline(self.registered_at + limits.total_s, "total_deadline", None))
        for companion in self.companions:
            if companion.state == "registered" and limits.start_s is not None:
                found.append(Deadline(companion.since + limits.start_s, "start_deadline", companion))
            if companion.state == "running" and limits.silent_s is not None:
                found.append(Deadline(companion.seen + limits.silent_s, "silent", companion))
        return found


@dataclass(frozen=True, slots=True)
class Deadline:
    """When, why, and which companion is the cause, if one is."""

    when: float
    reason: str
    companion: Companion | None


class Ended(NamedTuple):
    """What may be remembered of an id that ended."""

    parent_id: str
    number: int
    at: float
    may_report: bool


@dataclass(frozen=True, slots=True)
class End:
    """The end of a group, as it has to be told."""

    life: Life
    reason: str | None
    """``None``: it finished."""
    companion_id: str | None
    stage_id: int | None
    aborted: list[str]

    @property
    def released(self) -> list[str]:
        """Ids that are released with it; the others wait for their report."""
        waits = self.aborted if self.life.limits.confirm_s is not None else []
        return [request_id for request_id in self.life.ids if request_id not in waits]

    @property
    def is_told_as_failure(self) -> bool:
        """Whether the client is to be told."""
        return self.reason not in (None, "aborted")


@dataclass(frozen=True, slots=True)
class Wait:
    """A request whose release waits for its report."""

    parent_id: str
    number: int
    seq: int
    """Number of the registration of its group."""
    deadline: float
    replica: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What an event must bring."""

    disposition: str
    forward: dict[str, Any] | None = None
    ends: tuple[End, ...] = ()
    outcomes: dict[str, str] | None = None
    strays: tuple[str, ...] = ()
    """Types of the actions for a request without an owner."""
    late: tuple[tuple[str, ...], ...] = ()
    """Ids of which the release waited, by group."""


def forward_of(life: Life) -> dict[str, Any]:
    """The bundle that a life with all its outputs brings, as ``ForwardParent`` has it."""
    return {
        "parent_id": life.parent_id,
        "life": life.number,
        "stage_id": life.stage_id,
        "engine_outputs": life.engine_outputs,
        "companion_request_ids": {c.role: c.request_id for c in life.companions},
        "companion_outputs": [c.output for c in life.companions],
        "context": life.context,
    }
