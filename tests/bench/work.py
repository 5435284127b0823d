"""What is measured: each function gives one or several rows of the table."""

from __future__ import annotations

import gc
import gzip
import itertools
import json
import random
import tempfile
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cfg_fsm import CfgCompanionTracker, Limits, Registry, events
from cfg_fsm.audit.sinks import MemoryAudit
from cfg_fsm.trace.run import ActionWriter, run_trace
from tests.bench import lives
from tests.bench.measure import Ratio, paired, seconds, summary
from tests.bench.original import original_class

DATA = Path(__file__).parent.parent / "data"


class Scale:
    """How much is done; ``quick`` does less of everything."""

    def __init__(self, quick: bool) -> None:
        self.pairs = 15 if quick else 61
        self.lives = 300 if quick else 500
        self.slow_lives = 20 if quick else 50
        self.slow_pairs = 7 if quick else 21
        self.many = 100_000 if quick else 1_000_000
        self.churn = 50_000 if quick else 1_000_000
        self.large = 16_000
        self.groups = 20_000 if quick else 100_000


def _lives(work: Callable[[Any, Iterator[tuple[str, str, str]], int], None], peer: Any, count: int) -> Any:
    ids = lives.names()
    return lambda: work(peer, ids, count)


def against_the_real_tracker(scale: Scale) -> dict[str, Ratio]:
    """The drop-in and the events against plain dictionaries, on the life of one parent."""
    real = _lives(lives.on_tracker, original_class()(), scale.lives)
    audit = MemoryAudit(maxlen=10_000)
    return {
        "tracker": paired(_lives(lives.on_tracker, CfgCompanionTracker(), scale.lives), real, scale.pairs),
        "tracker_audit": paired(
            _lives(lives.on_tracker, CfgCompanionTracker(observers=[audit]), scale.lives),
            real,
            scale.pairs,
        ),
        "events": paired(_lives(lives.on_events, Registry(), scale.lives), real, scale.pairs),
        "events_audit": paired(
            _lives(lives.on_events, Registry(observers=[MemoryAudit(maxlen=10_000)]), scale.lives),
            _lives(lives.on_events, Registry(), scale.lives),
            scale.pairs,
        ),
    }


def against_stock_machines(scale: Scale) -> dict[str, Ratio]:
    """Stock machines, on the same life as the events."""
    mine = _lives(lives.on_events, Registry(), scale.lives)
    more = scale.lives / scale.slow_lives
    rows = {}
    for name, peer in {
        "transitions_each": lives.transitions_machine_each(),
        "transitions_shared": lives.transitions_shared_machine(),
        "statemachine": lives.python_statemachine(),
    }.items():
        ids = lives.names()
        rows[name] = paired(lambda p=peer, i=ids: p.live(i, scale.slow_lives), mine, scale.slow_pairs, more)  # type: ignore[misc]
    return rows


def recorded_run(scale: Scale) -> dict[str, Ratio]:
    """The large recorded run: the orchestrator's calls on both trackers, and its events as JSON lines."""
    calls = [json.loads(line) for line in _lines("omni-large.calls.jsonl.gz")]
    prepared = [(call["method"], call["args"], call["kwargs"]) for call in calls]
    real_class = original_class()

    def replay(tracker_class: Callable[[], Any]) -> None:
        tracker = tracker_class()
        methods = {name: getattr(tracker, name) for name in {method for method, _, _ in prepared}}
        for method, args, kwargs in prepared:
            methods[method](*args, **kwargs)

    lines = _lines("omni-large.events.jsonl.gz")
    with tempfile.TemporaryDirectory() as folder:
        trace, actions = Path(folder, "events.jsonl"), Path(folder, "actions.jsonl")
        trace.write_bytes(b"\n".join(lines) + b"\n")

        def loads() -> None:
            for line in lines:
                json.loads(line)

        def run() -> None:
            with actions.open("wb") as stream:
                run_trace(trace, on_action=ActionWriter(stream))

        pairs = max(5, scale.pairs // 4)
        return {
            "recorded_calls": paired(lambda: replay(CfgCompanionTracker), lambda: replay(real_class), pairs),
            "json_run": paired(run, loads, pairs),
        }


def _lines(name: str) -> list[bytes]:
    return gzip.decompress((DATA / name).read_bytes()).splitlines()


def live_groups(scale: Scale) -> dict[str, Ratio]:
    """Cost per event with very many live groups against few: the oldest group ends as a new one begins."""
    sides = [_Window(1_000), _Window(scale.many)]
    count = 2_000
    ratio = paired(lambda: sides[1].turn(count), lambda: sides[0].turn(count), scale.pairs)
    return {"many_live": ratio}


class _Window:
    """A registry with ``size`` live groups, first in, first out."""

    def __init__(self, size: int, limits: Limits | None = None) -> None:
        self.registry = Registry(limits)
        self.ids = lives.names()
        self.live: deque[tuple[str, str, str]] = deque()
        gc.disable()
        self._begin(size)
        gc.enable()

    def _begin(self, count: int) -> None:
        dispatch = self.registry.dispatch
        for parent, text, image in itertools.islice(self.ids, count):
            dispatch(events.ParentRegistered(parent_id=parent, companions={"cfg_text": text, "cfg_img": image}))
            dispatch(events.CompanionOutputReady(companion_id=text, output=lives.OUTPUT))
            self.live.append((parent, text, image))

    def turn(self, count: int) -> None:
        """``count`` groups begin, as many of the oldest end."""
        dispatch = self.registry.dispatch
        for _ in range(count):
            self._begin(1)
            parent, _text, image = self.live.popleft()
            dispatch(events.ParentOutputReady(parent_id=parent, engine_outputs=lives.OUTPUT))
            dispatch(events.CompanionOutputReady(companion_id=image, output=lives.OUTPUT))
            dispatch(events.ParentFinished(parent_id=parent))


def ticks(scale: Scale) -> dict[str, Ratio]:
    """A tick with nothing due, with very many armed deadlines against few."""
    limits = Limits(total_s=1_000_000.0)
    few, many = _Window(1_000, limits).registry, _Window(scale.many, limits).registry
    tick = events.ClockTicked(at=1.0)

    def run(registry: Registry) -> None:
        for _ in range(20_000):
            registry.dispatch(tick)

    return {"tick": paired(lambda: run(many), lambda: run(few), scale.pairs)}


def large_group(scale: Scale) -> dict[str, Ratio]:
    """What a companion costs in a group of very many against one of a quarter: the worst of four ways to come."""
    growths = [
        paired(make(scale.large), make(scale.large // 4), 5, 0.25)
        for make in (_starts, _late_outputs, _outputs_in_role_order, _joins)
    ]
    return {"large_group": max(growths, key=lambda ratio: ratio.value)}


def _large(count: int, *, announced: bool, **times: float) -> tuple[Registry, dict[str, str]]:
    roles = {f"r{number}": f"c{number}" for number in range(count)}
    registry = Registry(Limits(max_companions_per_parent=None, **times))
    registry.dispatch(events.ParentRegistered(parent_id="p", companions=roles if announced else None, at=0.0))
    return registry, roles


def _starts(count: int) -> Callable[[], object]:
    """Companions start under limits in time, and the host asks each time when to wake up."""
    made = [events.RequestStarted(request_id=f"c{number}", at=1.0 + number / count) for number in range(count)]

    def run() -> None:
        registry, _ = _large(count, announced=True, start_s=50.0, silent_s=60.0)
        for event in made:
            registry.dispatch(event)
            registry.next_deadline()

    return run


def _late_outputs(count: int) -> Callable[[], object]:
    """Outputs that come when the client has aborted the group."""
    outputs = [events.CompanionOutputReady(companion_id=f"c{number}", output=None) for number in range(count)]

    def run() -> None:
        registry, _ = _large(count, announced=True)
        registry.dispatch_many([events.RequestsAborted(request_ids=["p"]), *outputs])

    return run


def _outputs_in_role_order(count: int) -> Callable[[], object]:
    """Outputs while the parent is deferred."""
    outputs = [events.CompanionOutputReady(companion_id=f"c{number}", output=None) for number in range(count)]

    def run() -> None:
        registry, _ = _large(count, announced=True)
        registry.dispatch_many([events.ParentOutputReady(parent_id="p", engine_outputs=None), *outputs])

    return run


def _joins(count: int) -> Callable[[], object]:
    """Companions that join one by one."""

    def run() -> None:
        registry, roles = _large(count, announced=False)
        for role, name in roles.items():
            registry.dispatch(events.CompanionRegistered(parent_id="p", role=role, companion_id=name))

    return run


def bytes_per_parent(scale: Scale) -> dict[str, Ratio]:
    """Bytes of one live parent with two companions, all registered, one output there, the parent deferred."""

    def traced(make: Callable[[], Any], count: int = 20_000) -> float:
        ids = list(itertools.islice(lives.names(), count))
        gc.collect()
        tracemalloc.start()
        keep = make()
        for parent, text, image in ids:
            keep.register_companion(parent, "cfg_text", text)
            keep.register_companion(parent, "cfg_img", image)
            keep.set_companion_output(text, lives.OUTPUT)
            keep.on_companion_completed(text)
            keep.defer_parent(parent, lives.OUTPUT, 0)
        used = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return used / count

    real, mine = traced(original_class()), traced(CfgCompanionTracker)
    print(f"  bytes per live parent: {mine:.0f} here, {real:.0f} in the real tracker", flush=True)
    return {"bytes": summary([mine / real])}


def churn(scale: Scale) -> dict[str, Ratio]:
    """Memory after very many lives in a window of 1,000, the collector disabled, against before."""
    window = _Window(1_000)
    window.turn(40_000)  # the tombstones are full from here on
    gc.collect()
    gc.disable()
    try:
        tracemalloc.start()
        window.turn(30_000)
        before = tracemalloc.get_traced_memory()[0]
        window.turn(scale.churn)
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
    finally:
        gc.enable()
    return {"churn": summary([after / before])}


def growth(scale: Scale) -> dict[str, Ratio]:
    """Groups registered, completed in random order, finished: the last tenth of the events against the first."""
    registry = Registry(Limits(tombstones=0))
    sizes = _sizes(registry)
    order = list(itertools.islice(lives.names(), scale.groups))
    rng = random.Random(7)
    tenths: list[float] = []

    def phase(steps: list[Callable[[tuple[str, str, str]], list[Any]]]) -> None:
        made = [event for ids in order for step in steps for event in step(ids)]
        tenth = len(made) // 10
        parts = [made[i * tenth : (i + 1) * tenth] for i in range(10)]
        gc.collect()
        times = [seconds(lambda part=part: registry.dispatch_many(part)) for part in parts]  # type: ignore[misc]
        registry.dispatch_many(made[10 * tenth :])
        tenths.append(times[-1] / times[0])

    phase([lambda i: [events.ParentRegistered(parent_id=i[0], companions={"t": i[1], "i": i[2]})]])
    rng.shuffle(order)
    phase([lambda i: [events.CompanionOutputReady(companion_id=i[1], output=None)]])
    rng.shuffle(order)
    phase(
        [
            lambda i: [events.ParentOutputReady(parent_id=i[0], engine_outputs=None)],
            lambda i: [events.CompanionOutputReady(companion_id=i[2], output=None)],
        ]
    )
    rng.shuffle(order)
    phase([lambda i: [events.ParentFinished(parent_id=i[0])]])
    if _sizes(registry) != sizes:
        raise AssertionError(f"containers did not return to their sizes: {_sizes(registry)}, not {sizes}")
    print("  all containers are back to their sizes before", flush=True)
    return {"growth": summary([max(tenths)])}


def _sizes(registry: Registry) -> dict[str, int]:
    counters = registry.counters()
    return {
        name: counters[name] for name in ("live", "live_parents", "live_companions", "deadlines", "tombstones")
    }


ALL: tuple[Callable[[Scale], dict[str, Ratio]], ...] = (
    against_the_real_tracker,
    against_stock_machines,
    recorded_run,
    bytes_per_parent,
    growth,
    large_group,
    live_groups,
    ticks,
    churn,
)
