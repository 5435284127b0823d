"""A drop-in for vLLM-Omni's ``CfgCompanionTracker``, on the records and machines of this package.

The orchestrator owns the life of its requests and tells this tracker about it; nothing here acts on its own.
A parent is ``deferred`` while it is pending and ``forwarded`` once it was popped; ``cleanup_parent`` ends the
group, and there the coupling rows clean all its machines.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from cfg_fsm.engine.arguments import journal_of, limits_of
from cfg_fsm.engine.deadlines import Deadlines
from cfg_fsm.engine.group import Companion, Group
from cfg_fsm.engine.journal import Observer
from cfg_fsm.engine.log import log_warning
from cfg_fsm.engine.resolved import CAN_FINISH, DONE, WAITING
from cfg_fsm.engine.step import Cause, Step
from cfg_fsm.engine.tombstones import Tombstone, Tombstones
from cfg_fsm.engine.views import RequestView, view
from cfg_fsm.limits import Limits
from cfg_fsm.lines import text_of
from cfg_fsm.states import FailureReason, IgnoredReason, RejectedReason
from cfg_fsm.tables import Verdict


class _Tracked(Group):
    """A group of the tracker. ``announced``: the parent was registered; else it was only deferred."""

    __slots__ = ("superseded",)

    superseded: tuple[str, ...]
    """Ids of companions whose role went to another id; they are handed out with the group for abort."""

    def missing(self) -> dict[str, str]:
        """``{role: companion id}`` of those that are not done, or done without an output."""
        return {c.role: c.request_id for c in self.companions if c.state not in DONE or c.output is None}


class _OnlyDeferred(Tombstone):
    """Of a parent that was never registered: it may be deferred again."""

    __slots__ = ()


class CfgCompanionTracker:
    """The 15 methods of vLLM-Omni 0.30.0's ``CfgCompanionTracker``: same names, parameters, results, ordering.

    ``CfgCompanionTracker()`` needs no arguments. Those it takes:

    - ``clock``: monotonic seconds, read when something changes (default ``time.monotonic``);
    - ``deferred_limit_s``: seconds that a parent may stay deferred, from its first defer; short for
      ``limits=Limits(deferred_s=...)``. Of ``limits`` only ``deferred_s`` and the tombstones' bounds apply:
      an orchestrator's registration is never refused for want of room.
    - ``observers``: callables that get each ``AuditRecord`` once its call is complete.

    It never raises where the original would not. Where the original leaks or corrupts it does the safe thing:

    ============================  ================================  ==============================================
    situation                     the original                      here
    ============================  ================================  ==============================================
    role registered again with    the old id stays in its maps for  the old companion is superseded: forgotten at
    another id                    ever                              once, and its id is handed out by
                                                                    ``cleanup_parent`` and ``abort_parents``
    companion id under two        belongs to both, and the cleanup  the first owner keeps it; the second
    parents or in two roles       of one breaks the other           registration is refused whole, logged and
                                                                    counted
    parent id that is a           is both at once                   likewise; a defer under a companion's id is
    companion's, or the reverse                                     not kept
    output of an unknown or       kept for ever, found by the next  not kept
    cleaned id                    request with that id
    defer of a parent whose       kept for ever, found by the next  not kept
    group ended                   request with that id
    completed without an output   looks like any other              done, but ``missing`` in ``requests()`` names
                                                                    it and ``counters()`` counts it
    second output of a companion  replaces the first                the first wins
    roles handed out by           the live inner dictionary         a dictionary of the caller's own
    get_companion_request_ids
    order of ``abort_parents``    that of a set                     the given ids as given, then the companions by
                                                                    parent in that order, each once
    deferred for ever             never ends                        ``pop_expired_parents`` and ``next_deadline``
    ============================  ================================  ==============================================

    Not thread-safe, as the original.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        limits: Limits | None = None,
        deferred_limit_s: float | None = None,
        observers: Iterable[Observer] = (),
    ) -> None:
        limits = limits_of(limits)
        if not callable(clock):
            raise TypeError(f"clock is called for the time in seconds, as time.monotonic is; {clock!r} cannot be")
        if deferred_limit_s is not None:
            limits = limits.model_copy(update={"deferred_s": _seconds("deferred_limit_s", deferred_limit_s)})
        self._clock = clock
        self._limits = Limits(deferred_s=limits.deferred_s) if limits.deferred_s is not None else None
        self._step = Step(journal_of(observers), heard=False)
        self._groups: dict[str, _Tracked] = {}
        self._companions: dict[str, Companion] = {}
        self._superseded: dict[str, _Tracked] = {}
        self._deadlines = Deadlines()
        self._tombstones = Tombstones(limits.tombstones, limits.tombstone_s)
        self._opened = 0
        self._dropped: list[object] = []
        """What a call let go of: kept until it is audited, for a payload may have a finalizer of the host's."""
        self._finished = 0
        self._failed: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    # -- the original's methods ---------------------------------------------------------------------------

    def is_companion(self, req_id: str) -> bool:
        """Whether this is the id of a companion that is tracked."""
        return req_id in self._companions

    def get_parent_id(self, req_id: str) -> str | None:
        """The id of a companion's parent; ``None`` for any other id."""
        companion = self._companions.get(req_id)
        return None if companion is None else companion.group.request_id

    def has_companions(self, parent_id: str) -> bool:
        """Whether the parent was registered, by itself or with a companion."""
        group = self._groups.get(parent_id)
        return group is not None and group.announced

    def all_companions_done(self, parent_id: str) -> bool:
        """Whether no companion of it is open; true for an unknown parent."""
        group = self._groups.get(parent_id)
        return group is None or group.all_done()

    def get_companion_request_ids(self, parent_id: str) -> dict[str, str]:
        """``{role: companion id}`` in role-registration order, in a dictionary of the caller's own."""
        group = self._groups.get(parent_id)
        roles: dict[str, str] = {}
        if group is not None:
            for companion in group.companions:
                roles[companion.role] = companion.request_id
        return roles

    def register_parent(self, parent_id: str) -> None:
        """Track the parent. Does nothing if it is tracked."""
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("register_parent", step.now)
        if parent_id in self._companions:
            self._refuse(RejectedReason.ID_IN_USE, parent_id)
        else:
            (self._groups.get(parent_id) or self._open(parent_id)).announced = True
        if journal is not None:
            journal.deliver()

    def register_companion(self, parent_id: str, role: str, companion_id: str) -> None:
        """Track a companion, and its parent. Another id in the same role supersedes the first."""
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("register_companion", step.now)
        companions = self._companions
        if companion_id in companions or companion_id in self._groups or companion_id == parent_id:
            known = companions.get(companion_id)
            if known is not None and known.role == role and known.group.request_id == parent_id:
                self._refuse(IgnoredReason.DUPLICATE, companion_id, known)
            else:
                self._refuse(RejectedReason.ID_IN_USE, companion_id, asked_by=parent_id)
        elif parent_id in companions:
            self._refuse(RejectedReason.NOT_A_PARENT, companion_id, asked_by=parent_id)
        else:
            group = self._groups.get(parent_id) or self._open(parent_id)
            group.announced = True
            if self._superseded:
                self._reclaim(companion_id)
            for old in group.companions:
                if old.role == role:
                    companion = group.supersede(old, companion_id, step)
                    del companions[old.request_id]
                    self._superseded[old.request_id] = group
                    group.superseded += (old.request_id,)
                    break
            else:
                companion = group.join(role, companion_id, step.now)
            companions[companion_id] = companion
            if journal is not None:
                journal.created(companion)
        if journal is not None:
            journal.deliver()

    def set_companion_output(self, companion_id: str, output: Any) -> None:
        """Keep the companion's output for the bundle, by reference. The first one that is not ``None`` wins."""
        companion = self._companions.get(companion_id)
        if companion is not None and companion.output is None:
            companion.output = output
        else:
            reason = IgnoredReason.UNKNOWN if companion is None else IgnoredReason.DUPLICATE
            self._ignore("set_companion_output", reason, companion_id, companion)

    def get_companion_outputs(self, parent_id: str) -> list[Any]:
        """The outputs that are not ``None``, in role-registration order. They stay until the cleanup."""
        group = self._groups.get(parent_id)
        if group is None:
            return []
        outputs = []
        for companion in group.companions:
            if companion.output is not None:
                outputs.append(companion.output)
        return outputs

    def is_companion_done(self, companion_id: str) -> bool:
        """Whether ``on_companion_completed`` was called for it."""
        companion = self._companions.get(companion_id)
        return companion is not None and companion.state in DONE

    def on_companion_completed(self, companion_id: str) -> str | None:
        """Mark it done. The parent's id if that is pending and this was the last one it waited for."""
        companion = self._companions.get(companion_id)
        if companion is None or companion.state in DONE:
            reason = IgnoredReason.UNKNOWN if companion is None else IgnoredReason.DUPLICATE
            self._ignore("on_companion_completed", reason, companion_id, companion)
            return None
        group = companion.group
        if group.request_id is None:  # to the original, too, that is no parent: its companions are never done
            self._ignore("on_companion_completed", IgnoredReason.UNKNOWN, companion_id, companion)
            return None
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("on_companion_completed", step.now)
        group.complete(companion, companion.output, step)
        if companion.output is None:
            log_warning(
                "companion %s (role %s) of %s completed without an output: the bundle is incomplete",
                companion_id, companion.role, group.request_id,
            )  # fmt: skip
        if journal is not None:
            journal.deliver()
        return group.request_id if group.state in WAITING and group.all_done() else None

    def defer_parent(self, parent_id: str, engine_outputs: Any, stage_id: int) -> None:
        """Hold the parent's own output, by reference; the last one wins, the first defer's deadline stays."""
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("defer_parent", step.now)
        group = self._groups.get(parent_id)
        if group is None and parent_id in self._companions:
            self._refuse(IgnoredReason.NOT_A_PARENT, parent_id, self._companions[parent_id])
        elif group is None and type(self._ended(parent_id)) is Tombstone:
            self._refuse(IgnoredReason.ENDED, parent_id)
        else:
            group = group or self._open(parent_id)
            group.reason = None  # if a deadline had ended its last wait, this is another one
            replaced = group.engine_outputs  # a finalizer of the host's must not run within the call
            group.defer(stage_id, engine_outputs, None, step)
            if self._limits is not None:
                self._deadlines.update(group)
            del replaced
        if journal is not None:
            journal.deliver()

    def pop_pending_parent(self, parent_id: str) -> dict[str, Any] | None:
        """Take back what was deferred: ``{"engine_outputs", "stage_id"}``; ``None`` if nothing is pending."""
        group = self._groups.get(parent_id)
        if group is None or group.state not in WAITING:
            return None
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("pop_pending_parent", step.now)
        pending = {"engine_outputs": group.engine_outputs, "stage_id": group.stage_id}
        incomplete = journal is not None and not group.all_done()
        self._hand_over(group, FailureReason.COMPANION_ABORTED if incomplete else None)
        if journal is not None:
            journal.deliver()
            _held, self._dropped = self._dropped, []
        return pending

    def cleanup_parent(self, parent_id: str) -> list[str]:
        """Forget the group. Its companions' ids in role order, then those superseded; ``[]`` if there is none."""
        group = self._groups.get(parent_id)
        if group is None:
            return []
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("cleanup_parent", step.now)
        ids = self._close(group, aborted=False)
        if journal is not None:
            journal.deliver()
            _held, self._dropped = self._dropped, []
        return ids

    def abort_parents(self, request_ids: list[str]) -> list[str]:
        """Forget these groups. The given ids as given, then their companions' by parent, each once.

        A companion's id is only passed through: its group stays.
        """
        step = self._step
        step.now, journal = self._clock(), step.journal
        if journal is not None:
            journal.begin("abort_parents", step.now)
        named = list(request_ids)
        every = dict.fromkeys(named)
        given = len(every)
        for parent_id in list(every):
            group = self._groups.get(parent_id)
            if group is not None:
                every.update(dict.fromkeys(self._close(group, aborted=True)))
        if journal is not None:
            journal.deliver()
            _held, self._dropped = self._dropped, []
        return [*named, *list(every)[given:]]

    # -- what the original lacks --------------------------------------------------------------------------

    def pop_expired_parents(
        self, timeout_s: float | None = None, now: float | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """Take back the parents that were deferred ``timeout_s`` seconds or more before ``now``.

        ``timeout_s``: default the limit; without one nothing expires. ``now``: default the clock's. The result is
        ``[(parent_id, {"engine_outputs", "stage_id", "deferred_at"}), ...]``, the longest deferred first. The
        group stays until its cleanup, which returns the companions to abort. Raises ``ValueError`` for a time
        that is not finite and a time-out that is not positive.
        """
        if timeout_s is not None:
            timeout_s = _seconds("timeout_s", timeout_s)
        elif self._limits is not None:
            timeout_s = self._limits.deferred_s
        if now is not None and not math.isfinite(now):
            raise ValueError(f"now must be finite, not {now!r}")
        step = self._step
        step.now, journal = self._clock() if now is None else now, step.journal
        if journal is not None:
            journal.begin("pop_expired_parents", step.now)
        expired: list[tuple[str, dict[str, Any]]] = []
        if timeout_s is not None:
            for group in sorted(self._overdue(timeout_s), key=lambda group: (group.since, group.seq)):
                pending = {"engine_outputs": group.engine_outputs, "stage_id": group.stage_id}
                expired.append((group.request_id, {**pending, "deferred_at": group.since}))
                group.reason = FailureReason.DEFERRED_DEADLINE
                self._hand_over(group, group.reason)
        if journal is not None:
            journal.deliver()
            _held, self._dropped = self._dropped, []
        return expired

    def next_deadline(self) -> float | None:
        """When the next deferred parent reaches the limit, in the clock's seconds; ``None``: no limit, or none."""
        return self._deadlines.next()

    def requests(self) -> list[RequestView]:
        """What is tracked, for people: groups in order of registration, a parent before its companions."""
        return view(self._groups.values(), self._clock())

    def counters(self) -> dict[str, Any]:
        """What is there and what has happened so far; ``refused`` and ``failed`` are dictionaries by code."""
        return {
            "live": len(self._groups) + len(self._companions),
            "live_parents": len(self._groups),
            "live_companions": len(self._companions),
            "deferred": sum(group.state in WAITING for group in self._groups.values()),
            "done_without_output": sum(c.state in DONE and c.output is None for c in self._companions.values()),
            "deadlines": len(self._deadlines),
            "tombstones": len(self._tombstones),
            "parents_registered": self._opened,
            "refused": dict(sorted(self._refused.items())),
            "finished": self._finished,
            "failed": dict(sorted(self._failed.items())),
            "observer_errors": 0 if self._step.journal is None else self._step.journal.errors,
        }

    # -- inside -------------------------------------------------------------------------------------------

    def _open(self, parent_id: str) -> _Tracked:
        """A new group for a parent that has none."""
        last, now = self._ended(parent_id), self._step.now
        life = 1 if last is None else last.life + 1
        self._opened += 1
        # Streaming, so that the orchestrator may defer again what it has popped.
        group = _Tracked(parent_id, life, self._opened, now, False, True, None, self._limits)
        group.superseded = ()
        if self._superseded:
            self._reclaim(parent_id)
        self._groups[parent_id] = group
        self._tombstones.forget(parent_id)
        if self._step.journal is not None:
            self._step.journal.created(group)
        return group

    def _ended(self, parent_id: str) -> Tombstone | None:
        """What is remembered of the parent's last group."""
        tombstones = self._tombstones
        last = tombstones.by_id.get(parent_id)
        if last is None or tombstones.expire_at > self._step.now:
            return last
        tombstones.expire(self._step.now)
        return tombstones.get(parent_id)

    def _reclaim(self, request_id: str) -> None:
        """The id is in use again: it is not for the group that it was superseded in to abort."""
        before = self._superseded.pop(request_id, None)
        if before is not None:
            before.superseded = tuple(other for other in before.superseded if other != request_id)

    def _hand_over(self, group: _Tracked, reason: FailureReason | None) -> None:
        """What was deferred goes back to the orchestrator. ``reason``: why its bundle is not complete."""
        group.hand_over(self._step, reason)
        if self._limits is not None:
            self._deadlines.drop(group)
        if not group.announced:  # it was only ever deferred: nothing else is known of it
            self._close(group, aborted=False)

    def _overdue(self, timeout_s: float) -> list[_Tracked]:
        now = self._step.now
        return [g for g in self._groups.values() if g.state in WAITING and g.since + timeout_s <= now]

    def _close(self, group: _Tracked, *, aborted: bool) -> list[str]:
        """End the group: finished if its bundle was complete, else failed. Its other ids."""
        step = self._step
        if group.reason is None and not aborted and group.state in CAN_FINISH and group.all_done():
            group.finish(step)
            self._finished += 1
        else:
            reason = group.reason or FailureReason.ABORTED
            group.fail(group, Cause(reason, ""), step)
            step.cause = None
            self._failed[reason.value] += 1
        ids = []
        for companion in group.companions:
            ids.append(companion.request_id)
            del self._companions[companion.request_id]
        del self._groups[group.request_id]
        if self._limits is not None:
            self._deadlines.drop(group)
        if self._tombstones.expire_at <= step.now:
            self._tombstones.expire(step.now)
        kind = Tombstone if group.announced else _OnlyDeferred
        self._tombstones.add((group.request_id,), kind(group.request_id, group.life, step.now))
        if step.journal is not None:
            self._dropped.append((group, group.companions))
        group.companions, group.by_role = (
            (),
            None,
        )  # the records refer to each other: let them go without the collector
        if group.superseded:
            ids += group.superseded
            for companion_id in group.superseded:
                del self._superseded[companion_id]
        return ids

    def _ignore(self, call: str, reason: IgnoredReason, request_id: str, record: Companion | None) -> None:
        """A call that keeps nothing."""
        step = self._step
        journal = step.journal
        if journal is not None:
            step.now = self._clock()
            journal.begin(call, step.now)
        self._refuse(reason, request_id, record)
        if journal is not None:
            journal.deliver()

    def _refuse(
        self,
        reason: IgnoredReason | RejectedReason,
        request_id: str,
        record: Companion | None = None,
        asked_by: str | None = None,
    ) -> None:
        """Nothing of the call is kept: count and audit it; a registration that is not obeyed is logged too.

        ``record``: what the call met; ``asked_by``: the parent that a refused companion would have had.
        """
        self._refused[reason.value] += 1
        rejected = isinstance(reason, RejectedReason)
        if rejected:
            under = "" if asked_by is None else f" under {text_of(asked_by)}"
            log_warning("registration of %s%s refused: %s", request_id, under, reason)
        if self._step.journal is not None:
            self._step.journal.refused(
                (Verdict.REJECTED if rejected else Verdict.IGNORED).value,
                reason.value,
                request_id=request_id,
                record=None if rejected else record,
                parent_id=asked_by,
            )


def _seconds(name: str, value: float) -> float:
    if not isinstance(value, int | float):
        raise TypeError(f"{name} is a number of seconds, as in {name}=30.0; not {value!r}")
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number of seconds greater than zero, not {value!r}")
    return float(value)
