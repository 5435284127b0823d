"""Running a trace: the recorded ones against what the real orchestrator did, the clock, the summary."""

import gzip
import io
import json
from collections import defaultdict
from dataclasses import replace
from importlib import resources

import pytest
from helpers import abort, beat, done, error, finish, join, kv, lose, output, register, seal, start, tick, told
from hypothesis import given
from hypothesis import strategies as st
from paths import DATA

from cfg_fsm import Limits, Registry, parse_event
from cfg_fsm.audit.sinks import JsonlAudit
from cfg_fsm.errors import BadLine
from cfg_fsm.trace.run import ActionWriter, Run, run_trace
from cfg_fsm.trace.summary import render

TRACES = {
    "small": (
        resources.files("cfg_fsm") / "samples" / "omni-small.events.jsonl",
        DATA / "omni-small.outcomes.jsonl",
    ),
    "large": (DATA / "omni-large.events.jsonl.gz", DATA / "omni-large.outcomes.jsonl.gz"),
}


def lines_of(path):
    data = path.read_bytes()
    return (gzip.decompress(data) if path.name.endswith(".gz") else data).splitlines()


def numbered(events):
    return list(enumerate(events, 1))


def run(events, **limits):
    """A run over the events, and the actions it gave."""
    actions = []
    job = Run(Registry(Limits(**limits)), actions.append)
    job.feed(numbered(events))
    return job, actions


# ---------------------------------------------------------------------------
# The recorded traces
# ---------------------------------------------------------------------------


class Recorded:
    """A recorded run of the real orchestrator, and the same events run here."""

    def __init__(self, name):
        trace, outcomes = TRACES[name]
        self.events = [parse_event(line) for line in lines_of(trace)]
        self.parents = {event.parent_id for event in self.events if event.type == "parent_registered"}
        (self.lost_at,) = (event.at for event in self.events if event.type == "replica_lost")
        self.outcomes = {}
        for line in lines_of(outcomes):
            one = json.loads(line)
            assert one["request_id"] not in self.outcomes
            self.outcomes[one["request_id"]] = one["outcomes"]
        self.actions = []
        self.summary = run_trace(trace, on_action=self.actions.append)

    def at_fault(self, request_id):
        """Whether the original failed a request that needed no failure. Its faults are two, both at the instant
        at which the replica is lost: a fatal error under a companion's id, and a fatal error for a parent that
        was forwarded before."""
        *before, last = self.outcomes[request_id]
        if not (last.get("fatal") and last["at"] == self.lost_at and "fail" in last):
            return False
        return request_id not in self.parents or [key for one in before for key in one if key != "at"] == [
            "forward"
        ]


@pytest.fixture(scope="module", params=TRACES)
def recorded(request):
    return Recorded(request.param)


class TestAgreesWithTheOrchestrator:
    def test_the_same_parents_are_forwarded_once_with_the_same_bundles(self, recorded):
        theirs = {
            request_id: [one["forward"] for one in outcomes if "forward" in one]
            for request_id, outcomes in recorded.outcomes.items()
        }
        ours = defaultdict(list)
        for action in recorded.actions:
            if action.type == "forward_parent":
                bundle = [action.parent_id, *action.companion_request_ids.values()]
                ours[action.parent_id].append(bundle)
                assert [
                    payload["request_id"] for payload in (action.engine_outputs, *action.companion_outputs)
                ] == bundle
        assert ours == {request_id: forwards for request_id, forwards in theirs.items() if forwards}

    def test_they_are_forwarded_at_the_same_time(self, recorded):
        registry = Registry()
        ours = []
        for event in recorded.events:
            for action in registry.dispatch(event).actions:
                if action.type == "forward_parent":
                    ours.append((registry.now, action.parent_id))
        theirs = [
            (one["at"], request_id)
            for request_id, outcomes in recorded.outcomes.items()
            for one in outcomes
            if "forward" in one
        ]
        assert sorted(ours) == sorted(theirs)

    def test_the_same_parents_fail_except_where_the_original_is_at_fault(self, recorded):
        theirs = {id for id, outcomes in recorded.outcomes.items() if any("fail" in one for one in outcomes)}
        faults = {request_id for request_id in theirs if recorded.at_fault(request_id)}
        ours = [action.parent_id for action in recorded.actions if action.type == "fail_parent"]
        assert len(ours) == len(set(ours))
        assert set(ours) == theirs - faults
        assert set(ours) <= recorded.parents

    def test_how_often_the_original_is_at_fault(self, recorded):
        faults = {request_id for request_id in recorded.outcomes if recorded.at_fault(request_id)}
        under_companion_ids = faults - recorded.parents
        assert (len(under_companion_ids), len(faults & recorded.parents)) == (
            (0, 2) if len(recorded.parents) == 60 else (4, 7)
        )
        assert under_companion_ids == recorded.outcomes.keys() - recorded.parents

    def test_parents_that_the_original_failed_without_need_finish_here(self, recorded):
        theirs = {id for id, outcomes in recorded.outcomes.items() if any("finished" in one for one in outcomes)}
        faults = {request_id for request_id in recorded.outcomes if recorded.at_fault(request_id)}
        failed = {action.parent_id for action in recorded.actions if action.type == "fail_parent"}
        assert recorded.summary.parents["finished"] == len(theirs) + len(faults & recorded.parents)
        assert not failed & theirs

    def test_every_parent_ends(self, recorded):
        parents = recorded.summary.parents
        assert parents["registered"] == len(recorded.parents)
        assert parents["live"] == 0
        assert parents["finished"] + parents["failed"] + parents["aborted"] == parents["registered"]
        assert parents["forwarded"] == sum("forward" in one for o in recorded.outcomes.values() for one in o)
        assert recorded.summary.events == len(recorded.events)
        assert recorded.summary.ticks == 0
        released = [
            id for action in recorded.actions if action.type == "release_requests" for id in action.request_ids
        ]
        assert len(released) == len(set(released))

    def test_with_generous_limits_nothing_is_different(self, recorded):
        actions = []
        limits = Limits(deferred_s=60, silent_s=60, start_s=60, total_s=600)
        job = Run(Registry(limits), actions.append)
        job.feed(numbered(recorded.events))
        job.drain()
        assert actions == recorded.actions


@pytest.mark.parametrize("name", TRACES)
def test_the_same_trace_gives_the_same_bytes(name, tmp_path):
    def once(directory):
        directory.mkdir()
        limits = Limits(deferred_s=1.5, silent_s=1, total_s=8)  # tight: deadlines are in it too
        with (
            open(directory / "actions", "wb") as actions,
            JsonlAudit(directory / "audit", clock=lambda: 1e9) as audit,
        ):
            run_trace(
                TRACES[name][0], limits=limits, observers=[audit], on_action=ActionWriter(actions), drain=True
            )
        return [(directory / file).read_bytes() for file in ("actions", "audit")]

    one, two = once(tmp_path / "one"), once(tmp_path / "two")
    assert one == two
    assert b'"reason":"silent"' in one[0]


# ---------------------------------------------------------------------------
# The clock
# ---------------------------------------------------------------------------

WAITS = [register("p", {"r": "c"}, at=1.0), start("p", at=1.0), output("p", at=2.0)]


class TestClock:
    def test_a_deadline_before_the_next_event_comes_first(self):
        job, actions = run([*WAITS, done("c", at=7.5)], deferred_s=5)
        assert [action.type for action in actions] == ["fail_parent", "abort_requests", "release_requests"]
        summary = job.summary()
        assert summary.ticks == 1
        assert summary.events == 4
        assert summary.ignored == {"ended": {"count": 1, "line": 4}}
        assert job.registry.now == 7.5

    def test_an_event_at_the_time_of_a_deadline_goes_first(self):
        job, actions = run([*WAITS, done("c", at=7.0)], deferred_s=5)
        assert [action.type for action in actions] == ["forward_parent"]
        assert job.summary().ticks == 0

    def test_events_without_a_time_do_not_move_it(self):
        _, actions = run([*WAITS, kv("c"), done("c")], deferred_s=5)
        assert [action.type for action in actions] == ["forward_parent"]

    def test_several_deadlines_come_one_by_one(self):
        events = [register(f"p{n}", {"r": f"c{n}"}, at=float(n)) for n in range(4)]
        job, actions = run([*events, kv("x", at=11.5)], total_s=10)
        failed = [action.parent_id for action in actions if action.type == "fail_parent"]
        assert failed == ["p0", "p1"]
        assert job.summary().ticks == 2

    def test_limits_that_a_parent_brings(self):
        events = [register("p", {}, at=1.0, limits=Limits(total_s=2)), register("q", {}, at=1.0), tick(9.0)]
        job, actions = run(events)
        assert [action.parent_id for action in actions if action.type == "fail_parent"] == ["p"]
        assert job.summary().ticks == 1
        job, actions = run(events, total_s=5)
        assert [action.parent_id for action in actions if action.type == "fail_parent"] == ["p", "q"]
        assert job.summary().ticks == 2

    def test_drain_lets_all_deadlines_come(self):
        job, actions = run(WAITS, deferred_s=5, total_s=100)
        assert actions == []
        assert job.summary().parents["live"] == 1
        job.drain()
        assert [action.reason for action in actions if action.type == "fail_parent"] == ["deferred_deadline"]
        summary = job.summary()
        assert (summary.parents["live"], summary.parents["failed"], summary.ticks) == (0, 1, 1)
        assert job.registry.now == 7.0

    def test_drain_without_limits_does_nothing(self):
        job, actions = run(WAITS)
        job.drain()
        assert actions == []
        assert job.summary().ticks == 0

    PARENTS = st.sampled_from(["p", "q"])
    REQUESTS = st.sampled_from(["p", "q", "p/a", "p/b", "q/a"])
    OWN = st.none() | st.builds(Limits, total_s=st.integers(1, 9), silent_s=st.none() | st.integers(1, 3))
    EVENTS = st.one_of(
        st.builds(
            lambda parent, some, own: register(
                parent, some and {"a": f"{parent}/a"}, limits=own, life=None, streaming=False
            ),
            PARENTS,
            st.none() | st.just({}) | st.just({"a": 1}),
            OWN,
        ),
        st.builds(lambda parent: join(parent, "b", f"{parent}/b"), PARENTS),
        st.builds(seal, PARENTS),
        st.builds(start, REQUESTS),
        st.builds(beat, REQUESTS),
        st.builds(done, REQUESTS),
        st.builds(output, PARENTS),
        st.builds(finish, PARENTS),
        st.builds(abort, REQUESTS),
    )

    @given(
        st.lists(st.tuples(EVENTS, st.none() | st.integers(0, 4)), max_size=40),
        st.builds(
            Limits,
            **{name: st.none() | st.integers(1, 6) for name in ("deferred_s", "silent_s", "start_s", "total_s")},
        ),
    )
    def test_it_ticks_just_as_if_it_had_asked_before_each_event(self, steps, limits):
        now = 0.0
        events = []
        for event, pause in steps:
            now += pause or 0
            events.append(event.model_copy(update={"at": None if pause is None else now}))
        actions, ticks = [], 0
        plain = Registry(limits)
        for event in events:
            while event.at is not None and (due := plain.next_deadline()) is not None and due < event.at:
                actions += plain.dispatch(tick(due)).actions
                ticks += 1
            actions += plain.dispatch(event).actions
        got = []
        job = Run(Registry(limits), got.append)
        job.feed(numbered(events))
        assert got == actions
        assert job.summary().ticks == ticks


# ---------------------------------------------------------------------------
# The summary
# ---------------------------------------------------------------------------


class TestSummary:
    def test_outcomes_reasons_and_examples(self):
        events = [
            *(
                register(name, {"r": f"{name}/r"})
                for name in ("done", "failed", "gone", "gone too", "lost", "live")
            ),
            start("lost", 3),
            output("done"),
            done("done/r"),
            finish("done"),
            error("failed/r"),
            abort("gone", "gone too"),
            lose(3),
            kv("failed"),
            kv("failed"),
            register("live", {"r": "other"}),
            kv("nobody"),
        ]
        job, actions = run(events)
        summary = job.summary()
        assert summary.parents == {
            "registered": 6,
            "forwarded": 1,
            "finished": 1,
            "failed": 2,
            "aborted": 2,
            "live": 1,
        }
        assert sum(one["count"] for one in summary.failures.values()) == summary.parents["failed"]
        assert summary.aborts == {"count": 2, "example": "gone"}
        assert summary.failures == {
            "companion_failed": {"count": 1, "example": "failed"},
            "replica_lost": {"count": 1, "example": "lost"},
        }
        assert summary.ignored == {"ended": {"count": 2, "line": 14}, "unknown": {"count": 1, "line": 17}}
        assert summary.rejected == {"different_registration": {"count": 1, "line": 16}}
        assert summary.actions == {
            "acknowledge_abort": 1,
            "forward_parent": 1,
            "fail_parent": 2,
            "abort_requests": 4,
            "release_requests": 5,
        }
        assert sum(summary.actions.values()) == len(actions)
        assert summary.live == {
            "parents": 1,
            "companions": 1,
            "oldest": [
                {
                    "request_id": "live",
                    "state": "registered",
                    "age_s": 0.0,
                    "missing": {"r": "live/r"},
                    "sealed": True,
                }
            ],
        }
        assert summary.events == len(events)

    def test_a_companions_abort_is_a_failure_and_no_example_of_an_abort(self):
        job, _ = run(
            [
                register("p", {"r": "c"}),
                register("q", {"r": "d"}),
                abort("c", "nobody"),
                abort("q"),
                abort("q"),
            ]
        )
        assert job.summary().aborts == {"count": 1, "example": "q"}
        assert job.summary().failures == {"companion_aborted": {"count": 1, "example": "p"}}

    def test_join_wait(self):
        events = [register("now", {}, at=0.0), output("now", at=0.0)]
        for n in range(1, 11):
            events += [
                register(f"p{n}", {"r": f"c{n}"}),
                output(f"p{n}", at=100.0 * n),
                done(f"c{n}", at=101.0 * n),
            ]
        events += [register("ends", {"r": "c"}), output("ends"), error("ends")]
        job, _ = run(events)
        assert job.summary().join_wait == {
            "forwards": 11,
            "at_once": 1,
            "waited": 10,
            "p50_s": 5.0,
            "p90_s": 9.0,
            "p99_s": 10.0,
            "max_s": 10.0,
            "slowest": "p10",
        }
        assert not job._waiting

    def test_join_wait_of_none(self):
        job, _ = run([])
        assert job.summary().join_wait == {
            "forwards": 0,
            "at_once": 0,
            "waited": 0,
            "p50_s": None,
            "p90_s": None,
            "p99_s": None,
            "max_s": None,
            "slowest": None,
        }

    def test_a_newer_output_does_not_begin_the_wait_anew(self):
        job, _ = run([register("p", at=0.0), output("p", at=1.0), output("p", at=3.0), seal("p", at=4.0)])
        assert job.summary().join_wait["max_s"] == 3.0

    def test_a_streaming_parent_is_forwarded_often_and_counted_once(self):
        segments = [output("p", at=float(n), segment=True) for n in range(3)]
        job, _ = run([register("p", {}, streaming=True), *segments, finish("p"), register("p", {}), output("p")])
        summary = job.summary()
        assert summary.parents["registered"] == summary.parents["forwarded"] == 2
        assert summary.join_wait["forwards"] == summary.join_wait["at_once"] == 4

    def test_the_live_parents_longest_in_their_state_are_shown(self):
        job, _ = run([register(f"p{n}", at=float(n)) for n in range(9)])
        live = job.summary().live
        assert live["parents"] == 9
        assert [one["request_id"] for one in live["oldest"]] == ["p0", "p1", "p2", "p3", "p4"]
        assert live["oldest"][0] == {
            "request_id": "p0",
            "state": "registered",
            "age_s": 8.0,
            "missing": {},
            "sealed": False,
        }

    def test_the_speed_is_measured_with_the_given_clock(self):
        times = iter([10.0, 12.0, 20.0, 21.0])
        job = Run(Registry(), clock=lambda: next(times))
        job.feed(numbered([kv("x")] * 6))
        job.drain()
        summary = job.summary()
        assert (summary.seconds, summary.events_per_second) == (3.0, 2.0)

    @pytest.mark.parametrize(
        ("took", "count", "text"),
        [
            (0.0034567, 1, "1 event, 1 clock tick played, in 3.46 ms: 289 events/s"),
            (0.25, 2, "2 events, 0 clock ticks played, in 250 ms: 8.00 events/s"),
            (0.0009, 1234, "1,234 events, 0 clock ticks played, in 0.900 ms: 1,370,000 events/s"),
            (80.0, 2, "2 events, 0 clock ticks played, in 80.00 s: 0.0250 events/s"),
            (0.0, 0, "0 events, 0 clock ticks played, in 0 ms: 0 events/s"),
        ],
    )
    def test_the_speed_in_words(self, took, count, text):
        times = iter([0.0, took])
        job = Run(Registry(Limits(total_s=1)), clock=lambda: next(times))
        job.feed([])
        summary = replace(job.summary(), events=count, ticks=text.count("1 clock"))
        rate = count / took if took else 0.0
        assert render(replace(summary, events_per_second=rate), terminal=False).splitlines()[-1] == text

    def test_a_dictionary_of_it_is_rounded_to_microseconds(self):
        job, _ = run([register("p", {"r": "c"}), output("p", at=0.1), done("c", at=0.3), register("q", at=0.7)])
        job.feed([(9, kv("x", at=1.0000001))])
        data = job.summary().to_dict()
        assert data["join_wait"]["max_s"] == 0.2 != job.summary().join_wait["max_s"]
        assert [one["age_s"] for one in data["live"]["oldest"]] == [0.7, 0.3]
        assert data["seconds"] == round(job.summary().seconds, 6)

    def test_it_is_plain_data(self):
        job, _ = run([*WAITS, kv("x"), register("p", {}), error("p")], deferred_s=3)
        data = job.summary().to_dict()
        assert json.loads(json.dumps(data)) == data
        assert list(data)[:4] == ["parents", "failures", "aborts", "ignored"]

    def test_records_that_an_observer_failed_to_take_are_counted(self, caplog):
        def refuse(_):
            raise RuntimeError("no")

        job = Run(Registry(observers=[refuse]))
        job.feed(numbered([kv("x")]))
        assert job.summary().audit_errors == 2
        assert "RuntimeError" in caplog.text

    def test_a_run_begins_with_a_fresh_registry(self):
        registry = Registry()
        registry.dispatch(kv("x"))
        with pytest.raises(ValueError, match="has not dispatched anything"):
            Run(registry)

    def test_when_the_host_fails_what_was_done_is_summed_up(self):
        def fail(action):
            raise OSError(28, "No space left on device")

        job = Run(Registry(), fail)
        with pytest.raises(OSError, match="No space"):
            job.feed(numbered([register("p", {}), error("p"), kv("x")]))
        summary = job.summary()
        assert summary.events == 2
        assert summary.failures == {"error": {"count": 1, "example": "p"}}


# ---------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------


class TestRunTrace:
    TRACE = b"\n".join(
        [
            b'{"type":"parent_registered","parent_id":"p","companions":{},"at":1.0}',
            b"nonsense",
            b"",
            b'{"type":"parent_output_ready","parent_id":"p","engine_outputs":{"a":[1.5,"\xc3\xa9",null]},"at":2.0}',
            *[b"{}"] * 9,
        ]
    )

    def test_a_bad_line_stops_it(self, tmp_path):
        path = tmp_path / "trace"
        path.write_bytes(self.TRACE)
        actions = []
        with pytest.raises(BadLine, match=r"trace:2: this is not JSON"):
            run_trace(path, on_action=actions.append)
        assert actions == []

    def test_or_is_counted(self, tmp_path):
        path = tmp_path / "trace"
        path.write_bytes(self.TRACE)
        summary = run_trace(path, skip_bad=True, limits=Limits(total_s=5), drain=True)
        assert summary.events == 2
        assert summary.ticks == 1
        assert summary.bad_lines["count"] == 10
        assert [line.split(":")[1] for line in summary.bad_lines["first"]] == ["2", "5", "6", "7", "8"]

    def test_actions_are_written_in_their_json_shape(self, tmp_path):
        path = tmp_path / "trace"
        path.write_bytes(self.TRACE)
        stream = io.BytesIO()
        run_trace(path, skip_bad=True, on_action=ActionWriter(stream), limits=Limits(total_s=5), drain=True)
        lines = stream.getvalue().splitlines()
        assert lines[0] == (
            b'{"type":"forward_parent","parent_id":"p","life":1,"stage_id":0,'
            b'"engine_outputs":{"a":[1.5,"\xc3\xa9",null]},"companion_request_ids":{},"companion_outputs":[],'
            b'"context":null}'
        )
        assert [json.loads(line)["type"] for line in lines[1:]] == [
            "fail_parent",
            "abort_requests",
            "release_requests",
        ]
        assert list(json.loads(lines[1])) == [
            "type",
            "parent_id",
            "life",
            "stage_id",
            "reason",
            "error",
            "companion_id",
            "error_type",
            "status_code",
        ]

    def test_written_actions_are_those_of_to_dict(self):
        registry = Registry()
        stream = io.BytesIO()
        writer = ActionWriter(stream)
        expected = []
        for event in [register("p", {"r": "c"}), output("p", [10**30, 1e300]), done("c", "x"), abort("p", "?")]:
            for action in registry.dispatch(event).actions:
                writer(action)
                expected.append(action.to_dict())
        assert [json.loads(line) for line in stream.getvalue().splitlines()] == expected
        assert len(expected) == 4

    def test_an_error_of_the_disk_names_the_file(self):
        class Full(io.BytesIO):
            def write(self, data):
                raise OSError(28, "No space left on device")

        (action,) = Registry().dispatch(abort("x")).actions
        assert told(Registry().dispatch(abort("x"))) == ["acknowledge x=unknown"]
        with pytest.raises(OSError, match="No space") as caught:
            ActionWriter(Full(), "out.jsonl")(action)
        assert caught.value.filename == "out.jsonl"
