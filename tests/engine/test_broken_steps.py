"""A step is all or nothing: what breaks it off, anywhere, neither loses an action nor leaves half of it behind."""

import logging
from contextlib import suppress

import pytest
from budget import each
from helpers import (
    abort,
    beat,
    done,
    error,
    finish,
    join,
    lose,
    output,
    register,
    reject,
    seal,
    start,
    tick,
)
from interrupt import Interruption

from cfg_fsm import Limits, Registry
from cfg_fsm.audit.sinks import MemoryAudit
from cfg_fsm.errors import ReentrantDispatch

LIMITS = Limits(deferred_s=5, silent_s=6, start_s=7, total_s=9, confirm_s=3)
#: What happened before, and the event whose step is broken off.
STORIES = {
    "register": ([], register("p", {"x": "a", "y": "b"}, at=1.0)),
    "register unsealed": ([], register("p", None, at=1.0)),
    "reuse": ([register("p", {"x": "a"}), finish("p")], register("p", {"x": "a"}, at=1.0)),
    "reuse as companion": ([register("p", {"x": "a"}), finish("p")], register("q", {"x": "p"}, at=1.0)),
    "join": ([register("p", None)], join("p", "x", "a", at=1.0)),
    "stranger": ([register("p", {})], join("p", "x", "a", at=1.0)),
    "seal forwards": ([register("p", None), output("p")], seal("p", at=1.0)),
    "start": ([register("p", {"x": "a"})], start("a", 0, at=1.0)),
    "rebind": ([register("p", {"x": "a"}), start("a", 0)], start("a", 1, at=1.0)),
    "beat": ([register("p", {"x": "a"}), start("a", 0)], beat("a", at=1.0)),
    "output waits": ([register("p", {"x": "a"})], output("p", at=1.0)),
    "output forwards": ([register("p", {"x": "a"}), done("a")], output("p", at=1.0)),
    "output again": (
        [register("p", {"x": "a"}, streaming=True), done("a"), output("p")],
        output("p", "P2", at=1.0),
    ),
    "done waits": ([register("p", {"x": "a", "y": "b"}), output("p")], done("a", at=1.0)),
    "done forwards": ([register("p", {"x": "a", "y": "b"}), output("p"), done("a")], done("b", at=1.0)),
    "bad finish": ([register("p", {"x": "a", "y": "b"}), start("b", 0)], done("a", finish="error", at=1.0)),
    "error": (
        [register("p", {"x": "a", "y": "b"}), start("p", 0), start("b", 0), output("p")],
        error("a", at=1.0),
    ),
    "parent error": ([register("p", {"x": "a", "y": "b"}), start("p", 0)], error("p", at=1.0)),
    "abort": (
        [register("p", {"x": "a", "y": "b"}), register("q", {"z": "c"}), done("a")],
        abort("p", "nobody", "c", "a", at=1.0),
    ),
    "abort nothing": ([register("p", {}), finish("p")], abort("p", "x", at=1.0)),
    "lost": (
        [
            register("p", {"x": "a", "y": "b"}),
            register("q", {"z": "c"}),
            start("a", 0),
            start("c", 0),
            start("q", 0),
        ],
        lose(0, at=1.0),
    ),
    "lost nobody": ([register("p", {})], lose(0, at=1.0)),
    "lost waits": ([register("p", {"x": "a"}), start("a", 0), start("p", 1), error("p")], lose(0, at=1.0)),
    "rejected": ([register("p", {}), output("p")], reject("p", at=1.0)),
    "finish": ([register("p", {"x": "a"}), output("p"), done("a")], finish("p", at=1.0)),
    "finish early": ([register("p", {"x": "a"}), start("a", 0)], finish("p", at=1.0)),
    "late": ([register("p", {"x": "a"}), error("p")], done("a", at=1.0)),
    "late start": ([register("p", {"x": "a"}), error("p")], start("a", 2, at=1.0)),
    "tick": ([register("p", {"x": "a"}), register("q", {"z": "c"}), output("p")], tick(20.0)),
    "tick releases": ([register("p", {"x": "a"}), register("q", {"z": "c"}), error("p"), abort("q")], tick(20.0)),
    "unknown": ([], done("a", at=1.0)),
}


class Watched:
    """A registry after some events, with two observers of different kinds."""

    def __init__(self, before):
        self.memory, self.plain = MemoryAudit(None), []
        self.registry = Registry(LIMITS, observers=[self.memory, self.plain.append])
        self.before = before
        for event in before:
            self.registry.dispatch(event)

    def holds(self):
        """All that it holds; the counters of what was broken off apart."""
        held = self.registry.snapshot()
        counters = {k: v for k, v in held.counters.items() if k not in ("interrupted_steps", "observer_errors")}
        return (
            held.now, dict(held.requests), dict(held.tombstones), held.deadlines, dict(held.told),
            held.next_deadline, counters, list(held.requests), list(held.tombstones),
        )  # fmt: skip

    @property
    def errors(self):
        return self.registry.counters()["observer_errors"]

    def took(self):
        return self.registry.counters()["events"] > len(self.before)


def shapes(actions):
    return [action.to_dict() for action in actions]


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("what", [KeyboardInterrupt, RecursionError], ids=lambda what: what.__name__)
@pytest.mark.parametrize("again", [0, 5], ids=lambda again: f"again-{again}")
def test_wherever_a_step_is_broken_off_it_comes_to_its_end(name, what, again):
    before, event = STORIES[name]
    once, twice = Watched(before), Watched(before)
    with Interruption() as count:
        answer = once.registry.dispatch(event)
    twice.registry.dispatch(event)
    repeated = twice.registry.dispatch(event)
    for at in each(range(1, count.lines + 1)):
        broken = Watched(before)
        returned = ()
        # An error of the kind that an observer may raise is counted and does not come out of there.
        with suppress(what), Interruption(at, what, again) as interruption:
            returned = broken.registry.dispatch(event).actions
        where = interruption.where
        took = broken.took()
        owed = returned + broken.registry.recover()
        if took:
            assert shapes(owed) == shapes(answer.actions), where
            assert broken.holds() == once.holds(), where
            if not broken.errors:  # else an observer was interrupted, and that is counted
                assert broken.memory.records == once.memory.records, where
                assert broken.plain == once.plain, where
        else:
            assert owed == ()
        # The host does not know whether it was taken, and dispatches it again.
        second, expected = broken.registry.dispatch(event), repeated if took else answer
        assert (second.disposition, shapes(second.actions)) == (expected.disposition, shapes(expected.actions)), (
            where
        )
        assert broken.holds() == (twice if took else once).holds(), where


def test_what_a_broken_step_says_comes_with_the_next_answer_if_the_host_does_not_ask():
    registry = Registry()
    registry.dispatch(register("p", {"x": "a"}))
    registry.dispatch(output("p"))
    with pytest.raises(KeyboardInterrupt), Interruption(20):
        registry.dispatch(done("a"))
    answer = registry.dispatch(done("a"))
    assert (answer.disposition, answer.reason) == ("ignored", "already_done")
    assert [action.type for action in answer.actions] == ["forward_parent"]
    assert registry.recover() == ()
    assert registry.counters()["interrupted_steps"] == 1


def test_an_observer_that_is_interrupted_loses_no_record_of_the_others_and_no_answer():
    seen, last = [], []

    def interrupted(record):
        seen.append(record)
        if record.kind == "created" and record.request_id == "p":
            raise KeyboardInterrupt

    registry = Registry(observers=[interrupted, last.append])
    with pytest.raises(KeyboardInterrupt):
        registry.dispatch(register("p", {"x": "a"}))
    assert len(seen) == len(last) == 3
    assert registry.counters()["observer_errors"] == 1
    assert [view.request_id for view in registry.requests()] == ["p", "a"]


class Broken(logging.Handler):
    def emit(self, record):
        raise RuntimeError("the disk of the log is full")


def test_a_handler_of_the_log_that_raises_does_not_come_out_of_dispatch():
    logger, handler = logging.getLogger("cfg_fsm"), Broken()
    logger.addHandler(handler)
    try:
        registry = Registry(observers=[lambda record: 1 / 0])
        assert registry.dispatch(register("p", {})).disposition == "accepted"
    finally:
        logger.removeHandler(handler)
    assert registry.counters()["observer_errors"] == 2


def test_an_engine_that_is_defect_gives_the_step_up_and_stays_of_use(monkeypatch):
    from cfg_fsm.engine import routes

    registry = Registry()
    registry.dispatch(register("p", {}))

    def defect(*_):
        raise KeyError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(routes.Named, "refuse", defect)
        with pytest.raises(KeyError):
            registry.dispatch(done("nobody"))
    assert registry.dispatch(done("nobody")).reason == "unknown"


class Dispatches:
    """In a circle of references, so that the collector finds it: it dispatches when it goes."""

    def __init__(self, registry, log):
        self.registry, self.log, self.circle = registry, log, self

    def __del__(self):
        try:
            self.log.append(self.registry.dispatch(finish("q")).disposition)
        except ReentrantDispatch:
            self.log.append("refused")


@pytest.mark.parametrize("call", ["requests", "snapshot", "counters", "replica_lost", "abort"])
def test_a_finalizer_that_dispatches_in_the_middle_is_refused_or_served_afterwards(call):
    """Wherever the collector runs: between any two lines of the call."""
    import gc

    def prepared():
        registry = Registry()
        for parent in ("p", "q", "r"):
            registry.dispatch(register(parent, {"x": parent + "a"}))
            registry.dispatch(start(parent, 0))
        return registry

    calls = {
        "requests": lambda registry: registry.requests(),
        "snapshot": lambda registry: registry.snapshot(),
        "counters": lambda registry: registry.counters(),
        "replica_lost": lambda registry: registry.dispatch(lose(0)),
        "abort": lambda registry: registry.dispatch(abort("p", "q", "r")),
    }
    with Interruption() as count:
        calls[call](prepared())
    for at in each(range(1, count.lines + 1)):
        registry, log = prepared(), []
        Dispatches(registry, log)
        with Interruption(at, gc.collect):
            calls[call](registry)
        gc.collect()
        assert log
        assert set(log) <= {"refused", "accepted", "ignored"}
        registry.dispatch_many([finish("p"), finish("q"), finish("r")])
        assert registry.counters()["live"] == 0
