"""The rules R1 to R12, each stated once, as a function that looks at one step of a registry.

A ``Checker`` walks beside a registry. It keeps a ``History``, its own account of what happened, made from the
events alone, in plain dictionaries and without the tables; foresees what an event must bring; and holds every
step against ``PROPERTIES``. Whoever has another way of walking (all orders of events, say) makes a ``Step`` and
calls the same functions.

    registry, checker = watched(Limits(total_s=10))
    for event in events:
        checker.dispatch(event)
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from helpers import armed_groups, live_records, tombstones

from cfg_fsm import Dispatched, Limits, Registry
from cfg_fsm.audit.record import AuditRecord

# ---------------------------------------------------------------------------
# What happened so far
# ---------------------------------------------------------------------------

#: Where an event that names one request is taken in: states of a parent, states of a companion.
TAKEN_IN: dict[str, tuple[set[str], set[str]]] = {
    "companions_sealed": ({"registered", "running", "deferred", "forwarded"}, set()),
    "request_started": ({"registered", "running"}, {"registered", "running"}),
    "request_progressed": ({"registered", "running"}, {"running"}),
    "kv_ready": ({"registered", "running"}, {"running"}),
    "parent_output_ready": ({"registered", "running", "deferred", "forwarded"}, set()),
    "companion_output_ready": (set(), {"registered", "running"}),
    "request_failed": ({"registered", "running", "deferred", "forwarded"}, {"registered", "running"}),
    "forward_rejected": ({"forwarded"}, set()),
    "parent_finished": ({"registered", "running", "forwarded"}, set()),
}
TERMINAL = {"companion_output_ready", "request_failed"}


@dataclass(slots=True)
class Companion:
    request_id: str
    role: str
    since: float
    seen: float
    state: str = "registered"
    replica: tuple[int, int] | None = None
    output: Any = None

    @property
    def open(self) -> bool:
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

    @property
    def ids(self) -> list[str]:
        return [self.parent_id, *(companion.request_id for companion in self.companions)]

    def enter(self, state: str, now: float) -> None:
        if state != self.state:
            self.state, self.since = state, now

    def companion(self, request_id: str) -> Companion | None:
        return next((c for c in self.companions if c.request_id == request_id), None)

    def missing(self) -> dict[str, str]:
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
    when: float
    reason: str
    companion: Companion | None


@dataclass(frozen=True, slots=True)
class Ended:
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
    def is_told_as_failure(self) -> bool:
        return self.reason not in (None, "aborted")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What an event must bring."""

    disposition: str
    forward: dict[str, Any] | None = None
    ends: tuple[End, ...] = ()
    outcomes: dict[str, str] | None = None
    strays: tuple[str, ...] = ()
    """Types of the actions for a request without an owner."""


class History:
    """An account of the events, and what follows from it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now = 0.0
        self.lives: dict[str, Life] = {}
        """By parent id, in the order of registration."""
        self.ended: dict[str, Ended] = {}
        """Those that the registry remembers, see ``forget``."""

    def copy(self) -> History:
        """An independent one; payloads are shared."""
        other = copy.copy(self)
        other.lives = {}
        for parent_id, life in self.lives.items():
            other.lives[parent_id] = twin = copy.copy(life)
            twin.companions = [copy.copy(companion) for companion in life.companions]
        other.ended = dict(self.ended)
        return other

    def owner(self, request_id: str) -> Life | None:
        """The live group that the id belongs to."""
        return next((life for life in self.lives.values() if request_id in life.ids), None)

    def live_ids(self) -> list[str]:
        return [request_id for life in self.lives.values() for request_id in life.ids]

    def forget(self, remembered: set[str]) -> None:
        """The registry remembers no more than these."""
        self.ended = {request_id: ended for request_id, ended in self.ended.items() if request_id in remembered}

    # -- foreseeing ---------------------------------------------------------------------------------------

    def take(self, event: Any) -> Foreseen:
        """What the event must bring; it is in the account from now on."""
        self.now = max(self.now, event.at or 0.0)
        if self.limits.tombstone_s is not None:
            self.ended = {i: e for i, e in self.ended.items() if self.now - e.at < self.limits.tombstone_s}
        foreseen: Foreseen = getattr(self, f"_{event.type}", self._about_one)(event)
        for end in foreseen.ends:
            del self.lives[end.life.parent_id]
            for request_id in end.life.ids:
                self.ended[request_id] = Ended(
                    end.life.parent_id, end.life.number, self.now, request_id in end.aborted
                )
        return foreseen

    def _parent_registered(self, event: Any) -> Foreseen:
        life = self.lives.get(event.parent_id)
        companions = None if event.companions is None else list(event.companions.items())
        if life is not None:
            same = (
                life.announced == companions
                and life.streaming == event.streaming
                and life.own_limits == event.limits
                and event.life in (None, life.number)
            )
            return Foreseen("ignored" if same else "rejected")
        if not self.admits(event):
            return Foreseen("rejected")
        last = self.ended.get(event.parent_id)
        number = event.life if event.life is not None else 1 if last is None else last.number + 1
        limits = self.limits.with_overrides(event.limits)
        life = Life(
            event.parent_id, number, companions, event.streaming, event.limits, limits, self.now, self.now,
            companions is not None, [Companion(i, role, self.now, self.now) for role, i in companions or ()],
        )  # fmt: skip
        self.lives[event.parent_id] = life
        for request_id in life.ids:
            self.ended.pop(request_id, None)
        return Foreseen("accepted")

    def _companion_registered(self, event: Any) -> Foreseen:
        life = self.owner(event.parent_id)
        stray = ("abort_requests", "release_requests") if self.owner(event.companion_id) is None else ()
        if life is None:
            ended = self.ended.get(event.parent_id)
            was_parent = ended is not None and ended.parent_id == event.parent_id
            return Foreseen("rejected", strays=stray if was_parent else ())
        if event.life not in (None, life.number):
            return Foreseen("ignored")
        if life.parent_id != event.parent_id:
            return Foreseen("rejected")
        if any((c.role, c.request_id) == (event.role, event.companion_id) for c in life.companions):
            return Foreseen("ignored")
        if life.sealed:
            return Foreseen("rejected", strays=stray)
        if not self.admits(event):
            return Foreseen("rejected")
        life.companions.append(Companion(event.companion_id, event.role, self.now, self.now))
        self.ended.pop(event.companion_id, None)
        return Foreseen("accepted")

    def admits(self, event: Any) -> bool:
        """R9, for a registration whose parent is not live or whose group is open."""
        life = self.lives.get(event.parent_id)
        if life is None:
            new = [event.parent_id, *(event.companions or {}).values()]
            limits, companions = self.limits.with_overrides(event.limits), len(new) - 1
            last = self.ended.get(event.parent_id)
            if event.life is not None and last is not None and event.life <= last.number:
                return False
        else:
            new, limits, companions = [event.companion_id], life.limits, len(life.companions) + 1
            if event.role in [companion.role for companion in life.companions]:
                return False
        live = self.live_ids()
        most, most_companions = self.limits.max_requests, limits.max_companions_per_parent
        may_report = [i for i in new if i in self.ended and self.ended[i].may_report]
        return (
            len(set(new)) == len(new)
            and not set(new) & set(live)
            and (most is None or len(live) + len(new) <= most)
            and (most_companions is None or companions <= most_companions)
            and (event.life is not None or not may_report)
        )

    def _about_one(self, event: Any) -> Foreseen:
        request_id = getattr(event, event.subject_field)
        life = self.owner(request_id)
        if life is None:
            return self._about_nobody(event, request_id)
        companion = life.companion(request_id)
        state = life.state if companion is None else companion.state
        if (
            event.life not in (None, life.number)
            or state not in TAKEN_IN[event.type][companion is not None]
            or (event.type == "companions_sealed" and life.sealed)
            or (event.type == "parent_output_ready" and state == "forwarded" and not life.streaming)
        ):
            return Foreseen("ignored")
        end = self._end_of_one(event, life, companion)
        if end is not None:
            return Foreseen("accepted", ends=(end,))
        self._note(event, life, companion)
        if life.state == "deferred" and life.sealed and not life.missing():
            life.enter("forwarded", self.now)
            return Foreseen("accepted", forward=_forward_of(life))
        return Foreseen("accepted")

    def _about_nobody(self, event: Any, request_id: str) -> Foreseen:
        ended = self.ended.get(request_id)
        if ended is None:
            return Foreseen("ignored")
        is_terminal = event.type in TERMINAL or (event.type == "parent_output_ready" and not event.segment)
        if is_terminal and event.life in (None, ended.number):
            self.ended[request_id] = Ended(ended.parent_id, ended.number, ended.at, False)
        return Foreseen("ignored", strays=("abort_requests",) if event.type == "request_started" else ())

    def _note(self, event: Any, life: Life, companion: Companion | None) -> None:
        if event.type == "companions_sealed":
            life.sealed = True
        elif event.type == "request_started":
            replica = None if event.replica_id is None else (event.stage_id, event.replica_id)
            if companion is None:
                life.enter("running", self.now)
                life.replica = replica
            else:
                if companion.state != "running":
                    companion.since = self.now
                companion.state, companion.seen, companion.replica = "running", self.now, replica
        elif event.type in ("request_progressed", "kv_ready"):
            if companion is not None:
                companion.seen = self.now
        elif event.type == "parent_output_ready":
            life.stage_id, life.engine_outputs, life.context = event.stage_id, event.engine_outputs, event.context
            life.enter("deferred", self.now)
        else:
            assert companion is not None
            companion.state, companion.since, companion.output = "done", self.now, event.output

    def _end_of_one(self, event: Any, life: Life, companion: Companion | None) -> End | None:
        kind = event.type
        if kind == "parent_finished":
            return self._ends(life, None, None, parent_runs=False)
        if kind == "forward_rejected":
            return self._ends(life, "forward_rejected", None)
        if kind == "request_failed":
            reason = "error" if companion is None else "companion_failed"
            return self._ends(
                life, reason, companion, event.stage_id, parent_runs=companion is not None, stopped=companion
            )
        if kind == "companion_output_ready" and event.finish_reason in ("abort", "error"):
            reason = "companion_aborted" if event.finish_reason == "abort" else "companion_failed"
            return self._ends(life, reason, companion, stopped=companion)
        return None

    def _ends(
        self,
        life: Life,
        reason: str | None,
        companion: Companion | None,
        stage_id: int | None = None,
        *,
        parent_runs: bool = True,
        stopped: Companion | None = None,
        lost: tuple[int, int] | None = None,
    ) -> End:
        aborted = [life.parent_id] if parent_runs else []
        aborted += [
            c.request_id
            for c in life.companions
            if c.open and c is not stopped and not (lost is not None and c.replica == lost)
        ]
        return End(
            life,
            reason,
            None if companion is None else companion.request_id,
            life.stage_id if stage_id is None else stage_id,
            aborted,
        )

    def _requests_aborted(self, event: Any) -> Foreseen:
        outcomes: dict[str, str] = {}
        causes: dict[str, Companion | None] = {}
        mentioned: list[str] = []
        for request_id in event.request_ids:
            life = self.owner(request_id)
            if life is None or event.life not in (None, life.number):
                known = life.number if life is not None else None
                if life is None and request_id in self.ended:
                    known = self.ended[request_id].number
                was = known is not None and (event.life is None or event.life <= known)
                outcomes[request_id] = "already_ended" if was else "unknown"
                continue
            mentioned.append(life.parent_id)
            companion = life.companion(request_id)
            if companion is not None and not companion.open:
                outcomes[request_id] = "already_ended"
                continue
            outcomes[request_id] = "ended"
            if companion is None:
                causes[life.parent_id] = None
            else:
                causes.setdefault(life.parent_id, companion)
        ends = [
            self._ends(
                self.lives[parent_id], "companion_aborted" if causes[parent_id] else "aborted", causes[parent_id]
            )
            for parent_id in dict.fromkeys(mentioned)
            if parent_id in causes
        ]
        return Foreseen("accepted" if ends else "ignored", ends=tuple(ends), outcomes=outcomes)

    def _replica_lost(self, event: Any) -> Foreseen:
        lost = (event.stage_id, event.replica_id)
        ends = []
        for life in self.lives.values():
            if event.life not in (None, life.number):
                continue
            if life.state == "running" and life.replica == lost:
                ends.append(self._ends(life, "replica_lost", None, event.stage_id, parent_runs=False, lost=lost))
                continue
            hit = [c for c in life.companions if c.state == "running" and c.replica == lost]
            if hit:
                ends.append(self._ends(life, "replica_lost", hit[0], event.stage_id, lost=lost))
        return Foreseen("accepted" if ends else "ignored", ends=tuple(ends))

    def _clock_ticked(self, event: Any) -> Foreseen:
        due = []
        for life in self.lives.values():
            first = min(life.deadlines(), key=lambda deadline: deadline.when, default=None)
            if first is not None and first.when <= self.now:
                due.append((first.when, len(due), life, first))
        ends = tuple(
            self._ends(life, first.reason, first.companion) for _, _, life, first in sorted(due, key=_two)
        )
        return Foreseen("accepted", ends=ends)


def _two(due: tuple[float, int, Life, Deadline]) -> tuple[float, int]:
    return due[:2]


def _forward_of(life: Life) -> dict[str, Any]:
    return {
        "parent_id": life.parent_id,
        "life": life.number,
        "stage_id": life.stage_id,
        "engine_outputs": life.engine_outputs,
        "companion_request_ids": {c.role: c.request_id for c in life.companions},
        "companion_outputs": [c.output for c in life.companions],
        "context": life.context,
    }


# ---------------------------------------------------------------------------
# A look at a registry
# ---------------------------------------------------------------------------

_PAYLOADS = ("engine_outputs", "context", "output")


@dataclass(frozen=True, slots=True)
class Picture:
    """What a registry shows and what it holds. Payloads are named by their identity and not held."""

    views: dict[str, dict[str, Any]]
    records: dict[str, dict[str, Any]]
    """Everything in the records of live requests, but for the bound that the heap of deadlines keeps there."""
    tombstones: dict[str, Ended]
    next_deadline: float | None


def take_picture(registry: Registry) -> Picture:
    records = {}
    for request_id, record in live_records(registry).items():
        seen: dict[str, Any] = {}
        for name in type(record).__slots__:
            value = getattr(record, name)
            if name in _PAYLOADS:
                seen[name] = None if value is None else id(value)
            elif name == "companions":
                seen[name] = [(companion.role, id(companion)) for companion in value]
            elif name == "group":
                seen[name] = id(value)
            elif name != "alarm":
                seen[name] = value
        records[request_id] = seen
    stones = {
        request_id: Ended(stone.parent_id, stone.life, stone.ended_at, request_id in (stone.unheard or ()))
        for request_id, stone in tombstones(registry).items()
    }
    views = {view.request_id: view.to_dict() for view in registry.requests()}
    return Picture(views, records, stones, registry.next_deadline())


@dataclass(frozen=True, slots=True)
class Step:
    """One event, its answer, and the world before and after."""

    registry: Registry
    event: Any
    answer: Dispatched
    before: Picture
    after: Picture
    past: History
    """The account before the event."""
    present: History
    """The account with it."""
    foreseen: Foreseen

    @property
    def name(self) -> str:
        return str(self.event.type)

    def actions(self, kind: str) -> list[dict[str, Any]]:
        return [action.to_dict() for action in self.answer.actions if action.type == kind]


def require(condition: bool, rule: str, step: Step) -> None:
    """Raise with the name of the rule and what broke it."""
    if not condition:
        raise AssertionError(
            f"{rule}\n  event    {step.event!r}\n  answer   {step.answer!r}\n  foreseen {step.foreseen}"
        )


# ---------------------------------------------------------------------------
# The rules
# ---------------------------------------------------------------------------


def r1_a_parent_ends_once(step: Step) -> None:
    """R1: forwards and failures are told of live lives only, one each; who ended is heard of only in a release."""
    told = [(a["parent_id"], a["life"]) for kind in ("forward_parent", "fail_parent") for a in step.actions(kind)]
    live = {(life.parent_id, life.number) for life in step.past.lives.values()}
    require(len(set(told)) == len(told), "R1: a parent is told of once in a step", step)
    require(set(told) <= live, "R1: nothing is said about a life that has ended", step)
    ended = {end.life.parent_id for end in step.foreseen.ends}
    require(
        not ended & {a["parent_id"] for a in step.actions("forward_parent")},
        "R1: a parent that ends is not forwarded",
        step,
    )


def r1_every_end_is_told_and_no_other(step: Step) -> None:
    """R1: a failure is told under its reason, once; a client's abort and a finish are not told as failures."""
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
        "R1: the failures that are told are those that happened, in order",
        step,
    )
    for action in step.actions("fail_parent"):
        require(bool(action["error"]), "a failure says why in a sentence", step)
        by_deadline = step.name == "clock_ticked"
        require(not by_deadline or action["status_code"] == 504, "a deadline has the status 504", step)


def r2_a_forward_carries_the_whole_bundle(step: Step) -> None:
    """R2: an output for every role, in role order, by reference, exactly when it is complete; else nothing."""
    forwards, expected = step.actions("forward_parent"), step.foreseen.forward
    require(
        len(forwards) == (expected is not None), "R2: a bundle is sent when, and only when, it is complete", step
    )
    if expected is None:
        return
    (forward,) = forwards
    require(
        list(forward["companion_request_ids"].items()) == list(expected["companion_request_ids"].items()),
        "R2: every role is there, in the order of registration",
        step,
    )
    outputs = forward["companion_outputs"]
    require(
        len(outputs) == len(expected["companion_outputs"])
        and all(ours is theirs for ours, theirs in zip(outputs, expected["companion_outputs"], strict=True)),
        "R2, R6: the outputs are the first that came, in role order, by reference",
        step,
    )
    for name in ("engine_outputs", "context"):
        require(forward[name] is expected[name], f"R2: {name} is the latest, by reference", step)
    for name in ("parent_id", "life", "stage_id"):
        require(forward[name] == expected[name], f"R2: {name} is the bundle's", step)


def r3_ids_belong_to_the_group_that_ended(step: Step) -> None:
    """R3: unique, of that group, the parent first and then role order, each released exactly once."""
    ends, strays = step.foreseen.ends, step.foreseen.strays
    aborts = [a["request_ids"] for a in step.actions("abort_requests")]
    releases = [a["request_ids"] for a in step.actions("release_requests")]
    if strays:
        subject = [getattr(step.event, "companion_id", None) or getattr(step.event, step.event.subject_field)]
        require(aborts == [subject], "R8: what runs without an owner is aborted, and nothing else", step)
        require(
            releases == ([subject] if "release_requests" in strays else []),
            "a stray is released, and nothing else",
            step,
        )
        require(subject[0] not in step.past.live_ids(), "R3: an id that lives elsewhere is left alone", step)
        return
    require(
        aborts == [end.aborted for end in ends if end.aborted],
        "R3: aborted are those that may still run, the parent first, then in role order",
        step,
    )
    require(
        releases == [end.life.ids for end in ends],
        "R3: released is every id of a group that ends, once, and nobody else",
        step,
    )
    for ids in (*aborts, *releases):
        require(len(set(ids)) == len(ids), "R3: ids are unique", step)


def r4_client_facing_actions_name_parents(step: Step) -> None:
    """R4: a companion's id never stands where a parent's belongs."""
    for kind in ("forward_parent", "fail_parent"):
        for action in step.actions(kind):
            require(action["parent_id"] in step.past.lives, "R4: client-facing actions name parents", step)


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
    if step.name == "request_started" and step.event.request_id in step.present.ended:
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
        expected.append(("release_requests", parent_id))
    expected += [(kind, None) for kind in step.foreseen.strays]
    got: list[tuple[str, str | None]] = []
    for action in step.answer.actions:
        shape = action.to_dict()
        owner = shape.get("parent_id")
        if owner is None and not step.foreseen.strays and "request_ids" in shape:
            life = step.past.owner(shape["request_ids"][0])
            owner = None if life is None else life.parent_id
        got.append((shape["type"], owner))
    require(got == expected, f"the actions stand in order: {expected}", step)


def every_abort_is_answered(step: Step) -> None:
    """``requests_aborted`` is answered for each id, in the order of first mention; nothing else is."""
    expected = [] if step.foreseen.outcomes is None else [list(step.foreseen.outcomes.items())]
    got = [list(action["outcomes"].items()) for action in step.actions("acknowledge_abort")]
    require(got == expected, "every abort is answered", step)


def the_disposition_is_the_agreed_one(step: Step) -> None:
    """Accepted, ignored or rejected by what the event meets; a code for a refusal and none otherwise."""
    answer = step.answer
    require(answer.disposition == step.foreseen.disposition, "the disposition is the agreed one", step)
    require((answer.reason is None) == (answer.disposition == "accepted"), "a refusal has a code", step)


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
    require(shown == expected, f"the views show what was told\n  shown    {shown}\n  expected {expected}", step)
    require(step.registry.now == now, "the registry's time is the latest that an event brought", step)


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


# ---------------------------------------------------------------------------
# Walking beside a registry
# ---------------------------------------------------------------------------


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
