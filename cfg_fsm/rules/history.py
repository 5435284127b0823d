"""The oracle: an account of the events, and what each next one must bring."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cfg_fsm.limits import Limits
from cfg_fsm.rules.account import Companion, Deadline, End, Ended, Foreseen, Life, Wait, forward_of
from cfg_fsm.twin import twin_of

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
#: The host's own word that a parent is over.
ENDS_PARENT = {"parent_finished", "forward_rejected"}


class History:
    """An account of the events, and what follows from it."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.now = 0.0
        self.lives: dict[str, Life] = {}
        """By parent id, in the order of registration."""
        self.ended: dict[str, Ended] = {}
        """Those that the registry remembers, see ``forget``."""
        self.parent_lives: dict[str, int] = {}
        """Last lives of ids that were parents and have been companions since."""
        self.waiting: dict[str, Wait] = {}
        """Those whose release waits for their report."""
        self.registered = 0

    def copy(self) -> History:
        """An independent one; payloads are shared."""
        other = History(self.limits)
        other.now = self.now
        for parent_id, life in self.lives.items():
            other.lives[parent_id] = twin = twin_of(life)
            twin.companions = [twin_of(companion) for companion in life.companions]
        other.ended = dict(self.ended)
        other.parent_lives = dict(self.parent_lives)
        other.waiting, other.registered = dict(self.waiting), self.registered
        return other

    def owner(self, request_id: str) -> Life | None:
        """The live group that the id belongs to."""
        return next((life for life in self.lives.values() if request_id in life.ids), None)

    def live_ids(self) -> list[str]:
        """Ids of all live requests, groups in order of registration."""
        return [request_id for life in self.lives.values() for request_id in life.ids]

    def forget(self, remembered: set[str]) -> None:
        """The registry remembers no more than these."""
        self.ended = {request_id: ended for request_id, ended in self.ended.items() if request_id in remembered}
        known = {*self.ended, *self.live_ids()}
        self.parent_lives = {i: number for i, number in self.parent_lives.items() if i in known}

    # -- foreseeing ---------------------------------------------------------------------------------------

    def take(self, event: Any) -> Foreseen:
        """What the event must bring; it is in the account from now on."""
        self.now = max(self.now, event.at or 0.0)
        if self.limits.tombstone_s is not None:
            self.ended = {i: e for i, e in self.ended.items() if self.now - e.at < self.limits.tombstone_s}
        foreseen: Foreseen = getattr(self, f"_{event.type}", self._about_one)(event)
        for end in foreseen.ends:
            self._end(end)
        if event.type == "replica_lost":
            lost = (event.stage_id, event.replica_id)
            foreseen = self._released(foreseen, [i for i, wait in self.waiting.items() if wait.replica == lost])
        elif event.type == "clock_ticked":
            foreseen = self._released(
                foreseen, [i for i, wait in self.waiting.items() if wait.deadline <= self.now]
            )
        return foreseen

    def _end(self, end: End) -> None:
        life = end.life
        del self.lives[life.parent_id]
        replicas = {life.parent_id: life.replica} | {c.request_id: c.replica for c in life.companions}
        for request_id in life.ids:
            self.ended[request_id] = Ended(life.parent_id, life.number, self.now, request_id in end.aborted)
            if request_id not in end.released:
                assert life.limits.confirm_s is not None
                deadline = self.now + life.limits.confirm_s
                self.waiting[request_id] = Wait(
                    life.parent_id, life.number, life.seq, deadline, replicas[request_id]
                )

    def _released(self, foreseen: Foreseen, ids: list[str]) -> Foreseen:
        """These wait no more. They are released by group, in the order of deadline, then of registration."""
        groups: dict[tuple[float, int], list[str]] = {}
        for request_id in ids:
            wait = self.waiting.pop(request_id)
            groups.setdefault((wait.deadline, wait.seq), []).append(request_id)
        late = tuple(tuple(group) for _, group in sorted(groups.items()))
        return replace(foreseen, late=late, disposition="accepted" if late else foreseen.disposition)

    def known(self, request_id: str) -> tuple[str, int] | None:
        """Parent and number of the last life of an id that has ended, if it is known."""
        ended, wait = self.ended.get(request_id), self.waiting.get(request_id)
        if ended is not None:
            return ended.parent_id, ended.number
        return None if wait is None else (wait.parent_id, wait.number)

    def _told(self, request_id: str, replica: tuple[int, int] | None = None) -> None:
        """It has ended and is told to abort: it may report."""
        ended, wait = self.ended.get(request_id), self.waiting.get(request_id)
        if ended is not None:
            self.ended[request_id] = ended._replace(may_report=True)
        if wait is not None and replica is not None:
            self.waiting[request_id] = replace(wait, replica=replica)

    def _parent_registered(self, event: Any) -> Foreseen:
        life = self.lives.get(event.parent_id)
        companions = None if event.companions is None else list(event.companions.items())
        if life is not None:
            same = (
                life.announced == companions
                and life.streaming == event.streaming
                and life.limits == self.limits.with_overrides(event.limits)
                and event.life in (None, life.number)
            )
            return Foreseen("ignored" if same else "rejected")
        if not self.admits(event):
            return Foreseen("rejected")
        number = event.life if event.life is not None else self.last_life(event.parent_id) + 1
        limits = self.limits.with_overrides(event.limits)
        life = Life(
            event.parent_id, number, companions, event.streaming, event.limits, limits, self.now, self.now,
            companions is not None, [Companion(i, role, self.now, self.now) for role, i in companions or ()],
        )  # fmt: skip
        self.registered += 1
        life.seq = self.registered
        self.lives[event.parent_id] = life
        for request_id in life.ids:
            self._live_again(request_id, event.parent_id)
        return Foreseen("accepted")

    def _companion_registered(self, event: Any) -> Foreseen:
        life = self.owner(event.parent_id)
        stray: tuple[str, ...] = ()
        if self.owner(event.companion_id) is None:
            waits = event.companion_id in self.waiting
            stray = ("abort_requests",) if waits else ("abort_requests", "release_requests")
        if life is None:
            known = self.known(event.parent_id)
            if known is None or known[0] != event.parent_id or (event.life is not None and event.life > known[1]):
                return Foreseen("rejected")
            if stray:
                self._told(event.companion_id)
            return Foreseen("rejected", strays=stray)
        if event.life not in (None, life.number):
            return Foreseen("ignored")
        if life.parent_id != event.parent_id:
            return Foreseen("rejected")
        if any((c.role, c.request_id) == (event.role, event.companion_id) for c in life.companions):
            return Foreseen("ignored")
        if life.sealed:
            if stray:
                self._told(event.companion_id)
            return Foreseen("rejected", strays=stray)
        if not self.admits(event):
            return Foreseen("rejected")
        life.companions.append(Companion(event.companion_id, event.role, self.now, self.now))
        self._live_again(event.companion_id, event.parent_id)
        return Foreseen("accepted")

    def last_life(self, request_id: str) -> int:
        """The greatest life of an id that is remembered; 0: it is not."""
        ended = self.ended.get(request_id)
        return 0 if ended is None else max(ended.number, self.parent_lives.get(request_id, 0))

    def _live_again(self, request_id: str, parent_id: str) -> None:
        ended = self.ended.pop(request_id, None)
        if request_id == parent_id:
            self.parent_lives.pop(request_id, None)
        elif ended is not None and ended.parent_id == request_id:
            self.parent_lives[request_id] = ended.number

    def admits(self, event: Any) -> bool:
        """R9, for a registration whose parent is not live or whose group is open."""
        life = self.lives.get(event.parent_id)
        if life is None:
            new = [event.parent_id, *(event.companions or {}).values()]
            limits, companions = self.limits.with_overrides(event.limits), len(new) - 1
            remembered = event.parent_id in self.ended
            if event.life is not None and remembered and event.life <= self.last_life(event.parent_id):
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
            and not set(new) & self.waiting.keys()
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
            return Foreseen("accepted", forward=forward_of(life))
        return Foreseen("accepted")

    def _about_nobody(self, event: Any, request_id: str) -> Foreseen:
        known = self.known(request_id)
        if known is None or (event.life is not None and event.life > known[1]):
            return Foreseen("ignored")
        if event.type == "request_started":
            self._told(request_id, None if event.replica_id is None else (event.stage_id, event.replica_id))
            return Foreseen("ignored", strays=("abort_requests",))
        reports = event.type in TERMINAL or (event.type == "parent_output_ready" and not event.segment)
        reports = reports or (event.type in ENDS_PARENT and known[0] == request_id)
        if not reports or event.life not in (None, known[1]):
            return Foreseen("ignored")
        if request_id in self.ended:
            self.ended[request_id] = self.ended[request_id]._replace(may_report=False)
        waited = self.waiting.pop(request_id, None)
        return Foreseen("ignored", late=() if waited is None else ((request_id,),))

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
                ended = self.known(request_id)
                if life is None and ended is not None:
                    known = ended[1]
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
        due: list[tuple[float, int, Life, Deadline]] = []
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
