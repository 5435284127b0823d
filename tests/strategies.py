"""Events that a test can make up: any at all, and those of groups that mean to go well."""

from helpers import (
    Payload,
    abort,
    beat,
    done,
    error,
    finish,
    join,
    kv,
    lose,
    output,
    register,
    reject,
    seal,
    start,
    tick,
)
from hypothesis import strategies as st

from cfg_fsm import Limits

# ---------------------------------------------------------------------------
# Any events, about ids from a small pool, so that they collide and come back
# ---------------------------------------------------------------------------

PARENTS, COMPANIONS, ROLES = ["p", "q", "r"], ["a", "b", "c", "d"], ["neg", "img", "txt"]
KINDS = [
    "register", "register", "register", "join", "join", "seal", "start", "start", "start", "start", "sign", "sign",
    "output", "output", "output", "done", "done", "done", "done", "done", "error", "abort", "lose", "reject",
    "finish", "tick", "tick",
]  # fmt: skip
#: How time goes on with an event; ``None``: the event does not say. It may seem to go back.
GAPS = [None, None, None, None, 0.0, 0.5, 1.0, 2.0, 4.0, -3.0]
OWN_LIMITS = [
    None, None, None, None, Limits(), Limits(total_s=2, start_s=6), Limits(silent_s=1, max_requests=1),
    Limits(confirm_s=3), Limits(confirm_s=0.5, total_s=6),
]  # fmt: skip


def maybe(*values):
    return st.sampled_from([None, None, *values])


LIMITS = st.builds(
    Limits,
    confirm_s=maybe(1.0, 8.0),
    deferred_s=maybe(1.0, 5.0),
    silent_s=maybe(2.0, 4.0),
    start_s=maybe(1.0, 4.0),
    total_s=maybe(4.0, 20.0),
    max_requests=st.sampled_from([None, None, None, None, 3, 6]),
    max_companions_per_parent=st.sampled_from([None, None, None, None, 1, 2]),
    tombstones=st.sampled_from([65_536, 65_536, 65_536, 4, 0]),
    tombstone_s=st.sampled_from([600.0, 600.0, 4.0, None]),
)

BOUNDED = st.builds(
    Limits,
    total_s=st.sampled_from([4.0, 30.0]),
    deferred_s=maybe(5.0),
    start_s=maybe(3.0),
    silent_s=maybe(2.0),
    confirm_s=maybe(1.0, 50.0),
)


class Chaos:
    """Makes up the next event: of any kind, about anyone, more often about those who live."""

    def __init__(self, choose, registry):
        self.one_of, self.registry = choose, registry

    def live(self, machine):
        return [view.request_id for view in self.registry.requests() if view.machine == machine]

    def parent(self):
        live = self.live("parent")
        return self.one_of([*live, *live, *live, *live, *PARENTS, "a"])

    def companion(self):
        live = self.live("companion")
        return self.one_of([*live, *live, *live, *live, *COMPANIONS, "p"])

    def anyone(self):
        live = self.live("parent") + self.live("companion")
        return self.one_of([*live, *live, *live, *PARENTS, *COMPANIONS, "x"])

    def life(self):
        return self.one_of([None] * 12 + [0, 1, 1, 2, 2, 3])

    def payload(self):
        return self.one_of([Payload("one"), Payload("two"), None])

    def event(self):
        kind, at = self.one_of(KINDS), self.one_of(GAPS)
        if at is not None or kind == "tick":
            at = max(0.0, self.registry.now + (at or 0.0))
        if kind == "tick":
            return tick(at)
        return getattr(self, f"_{kind}")(at=at, life=self.life())

    def _register(self, **fields):
        companions = None
        if self.one_of([True, True, False]):
            companions, free = {}, list(COMPANIONS)
            for role in ROLES[self.one_of([0, 0, 1]) :][: self.one_of([0, 1, 1, 2, 2, 3])]:
                companion = self.one_of([*free, *free, *free, "a", "p"])
                companions[role] = companion
                free = [other for other in free if other != companion]
        streaming, limits = self.one_of([True, False]), self.one_of(OWN_LIMITS)
        return register(
            self.one_of([*PARENTS, *PARENTS, "a"]), companions, streaming=streaming, limits=limits, **fields
        )

    def _join(self, **fields):
        return join(self.parent(), self.one_of(ROLES), self.companion(), **fields)

    def _seal(self, **fields):
        return seal(self.parent(), **fields)

    def _start(self, **fields):
        return start(self.anyone(), self.one_of([None, 0, 0, 1]), stage=self.one_of([0, 0, 1]), **fields)

    def _sign(self, **fields):
        return self.one_of([beat, kv])(self.anyone(), **fields)

    def _output(self, **fields):
        stage, segment = self.one_of([0, 0, 1]), self.one_of([True, False])
        return output(
            self.parent(), self.payload(), stage=stage, segment=segment, context=self.payload(), **fields
        )

    def _done(self, **fields):
        how = self.one_of(["stop"] * 6 + ["length", "abort", "error"])
        return done(self.companion(), self.payload(), how, **fields)

    def _error(self, **fields):
        return error(self.anyone(), stage_id=self.one_of([None, 0, 2]), **fields)

    def _abort(self, **fields):
        return abort(*(self.anyone() for _ in range(self.one_of([1, 2, 3, 0, 5]))), **fields)

    def _lose(self, **fields):
        return lose(self.one_of([0, 1]), stage=self.one_of([0, 0, 1]), **fields)

    def _reject(self, **fields):
        return reject(self.parent(), **fields)

    def _finish(self, **fields):
        return finish(self.parent(), **fields)


SEEDS = st.integers(0, 2**64 - 1)


def wander(choose, steps, registry, dispatch):
    """Dispatch made-up events; all of them. If that breaks a rule, say which events led there."""
    chaos, events = Chaos(choose, registry), []
    for _ in range(steps):
        events.append(chaos.event())
        try:
            dispatch(events[-1])
        except AssertionError as broken:
            raise AssertionError("\n".join([str(broken), "after", *map(repr, events)])) from broken
    return events


def timed(events, gaps):
    """The events with a time each: the sum of the gaps so far."""
    now = 0.0
    for event, gap in zip(events, gaps, strict=True):
        if gap is not None or event.type == "clock_ticked":
            at = max(0.0, now + (gap or 0.0))
            now = max(now, at)
            event = event.model_copy(update={"at": at})
        yield event


# ---------------------------------------------------------------------------
# Groups that mean to go well, and do not
# ---------------------------------------------------------------------------


@st.composite
def plans(draw, parent, companions):
    """The events of one group, from registration to its finish, as they would come if nothing went wrong."""
    roles = dict(zip(["neg", "img", "txt"], companions, strict=False))
    streaming = draw(st.booleans())
    if draw(st.booleans()):
        head = [register(parent, roles, streaming=streaming)]
        body = [join(parent, role, companion) for role, companion in roles.items()]
    else:
        head = [register(parent, None, streaming=streaming)]
        head += [join(parent, role, companion) for role, companion in roles.items()]
        body = [seal(parent)]
    for number, companion in enumerate(companions):
        body += [start(companion, number % 2), beat(companion), kv(companion), done(companion, Payload(companion))]
    body += [start(parent, 0), output(parent, Payload("P1"), segment=streaming, context=Payload("X"))]
    if draw(st.booleans()):
        body = draw(st.permutations(body))
    tail = [output(parent, Payload("P2"))] if streaming else []
    return [*head, *body, *tail, finish(parent)]


BETWEEN = [
    tick(0), tick(0), tick(0), abort("p"), abort("a"), abort("b", "q"), abort("a", "q", "p"), lose(0), lose(1),
    error("p"), error("a"), error("b"), done("a", finish="abort"), done("b", finish="error"), reject("p"),
    start("a", 1),
]  # fmt: skip


@st.composite
def mishaps(draw):
    """Several such groups at once or one after the other, with events lost, doubled, late and swapped, and with
    ticks, aborts, failures and losses in between."""
    queues = [
        draw(plans("p", ["a", "b"])),
        draw(plans("q", draw(st.sampled_from([[], ["c"], ["c", "d"], ["b"]])))),
        draw(plans("p", draw(st.sampled_from([["a"], ["a", "b"], ["d"]])))),
    ]
    queues = queues[: draw(st.integers(1, 3))]
    if draw(st.booleans()):
        queues = [[event for queue in queues for event in queue]]
    events, late = [], []
    while queues:
        queue = draw(st.sampled_from(queues))
        event = queue.pop(0)
        if not queue:
            queues.remove(queue)
        fate = draw(st.sampled_from(["well"] * 14 + ["lost", "twice", "late", "swapped", "between", "between"]))
        if fate == "late":
            late.append(event)
        elif fate == "swapped" and events:
            events.insert(-1, event)
        elif fate != "lost":
            events.append(event)
        if fate == "twice":
            events.append(event)
        if fate == "between":
            events.append(draw(st.sampled_from(BETWEEN)))
    events += late
    return list(timed(events, [draw(st.sampled_from(GAPS)) for _ in events]))
