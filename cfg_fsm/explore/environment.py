"""What a scheduler may do with one group: a small process model.

Every request of the group is told of, starts, reports and ends, in its own time; what the host has heard from
the engine (a forward, the end of the group) decides what else it sends. ``moves`` says what may come next. A
move is a *signal* (a tuple that ``alphabet.make`` turns into an event), the group's state after it, and the fault
whose budget pays for it. Nothing here is fair: whatever may come may also never come, so silence is everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from cfg_fsm.explore.scenario import ROLES, Scenario

Signal = tuple[object, ...]

#: Whether an event was delivered: not yet; yes, or it never will be; not yet, but what it caused has been.
NOT, TOLD, HELD = range(3)
#: ``Request.start`` beside those: it runs on another replica than at first.
REBOUND = 3
#: ``Request.end`` of a companion: its output came; it failed.
OUTPUT, FAILED = 1, 2
#: ``Request.end`` of a parent that failed; below it is the number of its outputs.
PARENT_FAILED = 9

#: What may become of an event whose effects are seen before it: never delivered, or later.
_SKIPS = ((TOLD, "lost"), (HELD, "reordered"))


class Request(NamedTuple):
    """What was delivered of one request."""

    told: int
    start: int = NOT
    end: int = 0


class GroupState(NamedTuple):
    """What was delivered of one group, and what the host heard of it."""

    announced: bool
    streaming: bool
    life: int
    named: bool
    """Whether the registration carried its ``life``, and so does every event of this life."""
    registered: int
    sealed: int
    over: bool
    """The host saw its end."""
    parent: Request
    companions: tuple[Request, ...]

    @property
    def tag(self) -> int | None:
        """The ``life`` that its events carry."""
        return self.life if self.named else None

    def finished(self) -> GroupState:
        """The same when the host has heard of the end. What ran may still report, in any order; whether it had
        started makes no difference any more."""

        def rest(request: Request) -> Request:
            return Request(TOLD, HELD, request.end and FAILED)

        companions = tuple(rest(request) for request in self.companions)
        return self._replace(
            registered=TOLD, sealed=TOLD, over=True, parent=rest(self.parent), companions=companions
        )


class Move(NamedTuple):
    """Something that a scheduler may do."""

    signal: Signal
    after: GroupState
    fault: str | None = None
    refused: GroupState | None = None
    """The state instead of ``after`` if the engine rejects it."""


def unborn(companions: int) -> GroupState:
    """A group of which nothing is known yet."""
    return GroupState(False, False, 0, False, NOT, NOT, False, Request(NOT), (Request(NOT),) * companions)


class Scheduler:
    """Says what may come next for one group of a scenario."""

    def __init__(self, scenario: Scenario, parent_id: str) -> None:
        self.scenario, self.faults = scenario, scenario.faults
        self.parent_id = parent_id
        self.companion_ids = scenario.companion_ids(parent_id)

    def moves(self, group: GroupState) -> list[Move]:
        """Everything that may come next."""
        if group.life == NOT:
            found = list(self._births(group))
        else:
            found = [*self._of_group(group), *(self._rest(group) if group.over else self._of_requests(group))]
            if group.over:
                found += self._births(group)
            if group.life > 1 and self.faults.late:
                found += self._of_old(group)
        return [move for move in found if move.fault is None or getattr(self.faults, move.fault)]

    # -- the group as a whole -----------------------------------------------------------------------------

    def _births(self, group: GroupState) -> Iterator[Move]:
        """A registration, or what follows from one that is not delivered. Ids are used again as they were."""
        kinds = ((group.announced, group.streaming),) if group.life else self.scenario.kinds
        for announced, streaming in kinds:
            for named in (False, True) if group.life else (False,):
                new = self._fresh(group, announced, streaming, named)
                fault = "reused" if group.life else None
                yield Move(self._registration(new), new, fault, group)
                if fault is None:
                    for how, fault in _SKIPS:
                        skipped = new._replace(registered=how)
                        for move in self._of_requests(skipped):
                            if move.fault is None:
                                yield move._replace(fault=fault)

    def _fresh(self, before: GroupState, announced: bool, streaming: bool, named: bool) -> GroupState:
        request = Request(TOLD if announced else NOT)
        return GroupState(
            announced, streaming, before.life + 1, named, TOLD, request.told, False,
            Request(TOLD), (request,) * len(before.companions),
        )  # fmt: skip

    def _registration(self, group: GroupState) -> Signal:
        return ("register", self.parent_id, group.announced, group.streaming, group.tag)

    def _of_group(self, group: GroupState) -> Iterator[Move]:
        late = self.faults.late or not group.over
        if group.registered == HELD:
            yield Move(self._registration(group), group._replace(registered=TOLD), None, group)
        else:
            yield Move(self._registration(group), group, "duplicated", group)
        if not group.announced:
            seal = ("seal", self.parent_id, group.tag)
            if group.sealed == TOLD:
                yield Move(seal, group, "duplicated")
            elif late:
                yield Move(seal, group._replace(sealed=TOLD))
        if late:  # at any time: the engine says when it is too early
            yield Move(("finish", self.parent_id, group.tag), group)
            yield Move(("reject", self.parent_id, group.tag), group)

    # -- one request after the other ----------------------------------------------------------------------

    def _of_requests(self, group: GroupState) -> Iterator[Move]:
        for signal, request, fault in self._of_parent(group):
            yield Move(signal, group._replace(parent=request), fault)
        for number, request_id in enumerate(self.companion_ids):
            before, after = group.companions[:number], group.companions[number + 1 :]
            for signal, request, fault in self._of_companion(group, number, request_id):
                yield Move(signal, group._replace(companions=(*before, request, *after)), fault)

    def _of_any(
        self, group: GroupState, request_id: str, request: Request, runs: bool
    ) -> Iterator[tuple[Signal, Request, str | None]]:
        """What parents and companions have in common: starts and signs of life."""
        tag = group.tag
        first, again = ("start", request_id, 0, tag), ("start", request_id, 1, tag)
        if request.start == HELD or (request.start == NOT and runs):
            yield first, request._replace(start=TOLD), None
        if request.start in (TOLD, REBOUND):
            yield (first if request.start == TOLD else again), request, "duplicated"
        if request.start == TOLD and runs and self.scenario.rebind:
            yield again, request._replace(start=REBOUND), None
        if self.scenario.heartbeats and runs:
            if request.start == NOT:
                yield ("kv", request_id, tag), request._replace(start=HELD), "reordered"
            else:
                yield ("kv", request_id, tag), request, None
                yield ("beat", request_id, tag), request, None
        if runs:
            failed = PARENT_FAILED if request_id == self.parent_id else FAILED
            yield ("fail", request_id, tag), request._replace(end=failed), None

    def _of_parent(self, group: GroupState) -> Iterator[tuple[Signal, Request, str | None]]:
        request, tag = group.parent, group.tag
        runs = request.end != PARENT_FAILED
        yield from self._of_any(group, self.parent_id, request, runs)
        if request.end == PARENT_FAILED:
            yield ("fail", self.parent_id, tag), request, "duplicated"
        elif request.end:
            yield self._output(group, request.end, True), request, "duplicated"
        if runs and request.end < self.scenario.outputs:
            more = request._replace(end=request.end + 1)
            signal = self._output(group, more.end, False)
            if request.start != NOT:
                yield signal, more, None
            else:
                for how, fault in _SKIPS:
                    yield signal, more._replace(start=how), fault

    def _output(self, group: GroupState, number: int, again: bool) -> Signal:
        more = group.streaming and number < self.scenario.outputs
        name = f"{group.life}.{number}{'+' if again else ''}"
        return ("output", self.parent_id, name, more, group.tag)

    def _of_companion(
        self, group: GroupState, number: int, request_id: str
    ) -> Iterator[tuple[Signal, Request, str | None]]:
        request, tag = group.companions[number], group.tag
        runs = request.end == 0
        join = ("join", self.parent_id, ROLES[number], request_id, tag)
        if request.told == TOLD:
            yield join, request, None if group.announced else "duplicated"
        elif request.told != TOLD:
            # One that the sealing has overtaken was sent before it.
            overtaken = group.sealed == TOLD and request.told == NOT
            yield join, request._replace(told=TOLD), "reordered" if overtaken else None
        if request.told == NOT:
            if runs:
                for how, fault in _SKIPS:
                    yield ("start", request_id, 0, tag), request._replace(told=how, start=TOLD), fault
            return
        yield from self._of_any(group, request_id, request, runs)
        if request.end == FAILED:
            yield ("fail", request_id, tag), request, "duplicated"
        elif request.end:
            yield ("done", request_id, f"{group.life}.1+", "stop", tag), request, "duplicated"
        if runs:
            for reason in self.scenario.finish_reasons:
                ended = request._replace(end=OUTPUT if reason in ("stop", "length") else FAILED)
                signal = ("done", request_id, f"{group.life}.1", reason, tag)
                if request.start != NOT:
                    yield signal, ended, None
                elif reason == "stop":
                    for how, fault in _SKIPS:
                        yield signal, ended._replace(start=how), fault

    # -- what is left when a group has ended ---------------------------------------------------------------

    def _rest(self, group: GroupState) -> Iterator[Move]:
        """Late reports. What has not ended may start, give signs of life, and end."""
        if not self.faults.late:
            return
        tag, name = group.tag, f"{group.life}.1"
        for number, request_id in enumerate((self.parent_id, *self.companion_ids)):
            request = group.companions[number - 1] if number else group.parent
            if request.end:
                continue
            ended = request._replace(end=FAILED)
            if number == 0:
                after = group._replace(parent=ended)
                yield Move(("output", request_id, name, True, tag), group)
                yield Move(("output", request_id, name, False, tag), after)
            else:
                others = list(group.companions)
                others[number - 1] = ended
                after = group._replace(companions=tuple(others))
                if not group.announced:
                    yield Move(("join", self.parent_id, ROLES[number - 1], request_id, tag), group)
                for reason in self.scenario.finish_reasons:
                    yield Move(("done", request_id, name, reason, tag), after)
            yield Move(("fail", request_id, tag), after)
            yield Move(("start", request_id, 0, tag), group)
            if self.scenario.heartbeats:
                yield Move(("kv", request_id, tag), group)
                yield Move(("beat", request_id, tag), group)

    def _of_old(self, group: GroupState) -> Iterator[Move]:
        """Reports of requests of the life before, with its number. There is no telling which of them still run,
        and no need: a right engine leaves all of them aside."""
        tag = group.life - 1
        yield Move(("output", self.parent_id, f"{tag}.1", False, tag), group)
        for request_id in (self.parent_id, *self.companion_ids):
            yield Move(("start", request_id, 0, tag), group)
            yield Move(("fail", request_id, tag), group)
            if request_id != self.parent_id:
                yield Move(("done", request_id, f"{tag}.1", "stop", tag), group)
