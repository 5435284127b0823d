"""The story of a request, told from its audit."""

from importlib import resources
from textwrap import dedent

import pytest
from helpers import (
    Host,
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

from cfg_fsm import Limits, Registry
from cfg_fsm.audit.explain import NotInAudit, explain
from cfg_fsm.audit.reading import AuditFile
from cfg_fsm.audit.sinks import JsonlAudit, MemoryAudit
from cfg_fsm.integrations.vllm_omni.tracker import CfgCompanionTracker
from cfg_fsm.trace.run import run_trace


def records_of(events, **limits):
    host = Host(**limits)
    host.send(*events)
    return host.records


def story(request_id, events, *, skip=0, upto=None, **limits):
    return explain(records_of(events, **limits)[skip:upto], request_id)


def result(lines):
    """The result at the end, on one line."""
    last = max(number for number, line in enumerate(lines) if line.startswith("Result: "))
    return " ".join(line.strip() for line in lines[last:])


GUIDED = [
    register("p", {"text": "c1", "img": "c2"}, at=10.0),
    start("p", 0, at=10.5),
    start("c1", 1, at=10.5),
    join("p", "img", "c2", at=10.75),
    start("c2", 1, stage=3, at=11.0),
]


def test_a_request_that_went_well():
    events = [
        *GUIDED,
        kv("c2", at=11.5),
        done("c1", at=12.0),
        output("p", at=13.0),
        done("c2", finish="length", at=14.5),
        done("c2", at=14.75),
        finish("p", at=20.0),
        output("p", at=21.0),
    ]
    expected = [
        "parent p, life 1: from 10.000 s of the host's clock",
        "  companion text = c1",
        "  companion img = c2",
        " +0.000 s  parent  was registered with text, img",
        " +0.500 s  parent  started on replica 0 of stage 0",
        " +0.500 s  text    started on replica 1 of stage 0",
        " +0.750 s  img     was registered in role img; ignored (duplicate)",
        " +1.000 s  img     started on replica 1 of stage 3",
        " +1.500 s  img     has its KV cache ready (a sign of life, not an output)",
        " +2.000 s  text    has its output",
        " +3.000 s  parent  has its own output of stage 0; deferred, waiting for img (c2)",
        " +4.500 s  img     has its output (finish reason length); the bundle is complete; "
        "told the host to: forward the bundle",
        " +4.750 s  img     has its output; ignored (already_done)",
        "+10.000 s  parent  is finished downstream; told the host to: release parent, text, img",
        "+11.000 s  parent  has its own output of stage 0; ignored (ended)",
        "Result: ended at +10.000 s: finished; its bundle was forwarded at +4.500 s; waited 1.500 s for img.",
    ]
    assert story("p", events) == expected
    for number, asked in ((1, "c1"), (2, "c2")):
        marked = list(expected)
        marked[number] += " (the one asked for)"
        assert story(asked, events) == marked


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (
            [error("c1", "out of memory", at=12.0, status_code=503)],
            """
            +2.000 s  text    reported a failure
                              the parent failed, companion_failed: companion c1 (role text) failed: out of memory;
                                img failed with it
                              told the host to: fail the parent with status 503; abort parent, img; release parent, text, img
            Result: ended at +2.000 s: failed, companion_failed: companion c1 (role text) failed: out of memory.
            """,  # noqa: E501
        ),
        (
            [error("p", "bad\nprompt.", at=12.0)],
            r"""
            +2.000 s  parent  reported a failure
                              the parent failed, error: bad\nprompt.; text, img failed with it
                              told the host to: fail the parent; abort text, img; release parent, text, img
            Result: ended at +2.000 s: failed, error: bad\nprompt.
            """,
        ),
        (
            [done("c2", finish="error", at=12.0)],
            """
            +2.000 s  img     ended with finish reason error
                              the parent failed, companion_failed: companion c2 (role img) ended with finish reason error;
                                text failed with it
                              told the host to: fail the parent; abort parent, text; release parent, text, img
            Result: ended at +2.000 s: failed, companion_failed: companion c2 (role img) ended with finish reason error.
            """,  # noqa: E501
        ),
        (
            [register("q", {}, at=12.0), abort("q", "p", "c1", "zzz", at=12.0)],
            """
            +2.000 s  client  aborted parent, text
                              text, img failed with it
                              told the host to: acknowledge the abort (parent ended, text ended); abort parent, text, img;
                                release parent, text, img
            Result: ended at +2.000 s: aborted by the client.
            """,  # noqa: E501
        ),
        (
            [lose(1, at=12.0, error="dead")],
            """
            +2.000 s  text    replica 1 of stage 0 was lost
                              the parent failed, replica_lost: companion c1 (role text) ran on replica 1 of stage 0, which was lost:
                                dead; img failed with it
                              told the host to: fail the parent; abort parent, img; release parent, text, img
            Result: ended at +2.000 s: failed, replica_lost: companion c1 (role text) ran on replica 1 of stage 0, which was lost:
                      dead.
            """,  # noqa: E501
        ),
        (
            [output("p", stage=2, at=11.0), done("c1", at=12.0), tick(16.0)],
            """
            +6.000 s  parent  a deadline came
                              the parent failed, deferred_deadline: the bundle was not complete within deferred_s = 5 s of the
                                parent's output; no output yet of img (c2); img failed with it
                              told the host to: fail the parent with status 504; abort parent, img; release parent, text, img
            Result: ended at +6.000 s: failed, deferred_deadline: the bundle was not complete within deferred_s = 5 s of the
                      parent's output; no output yet of img (c2); waited 5.000 s for text, img.
            """,  # noqa: E501
        ),
        (
            [output("p", at=11.0), done("c1", at=11.0), done("c2", at=11.5), reject("p", "no room", at=12.0)],
            """
            +2.000 s  parent  could not be handed to the next stage
                              the parent failed, forward_rejected: the bundle could not be handed to the next stage: no room
                              told the host to: fail the parent; abort parent; release parent, text, img
            Result: ended at +2.000 s: failed, forward_rejected: the bundle could not be handed to the next stage: no room;
                      its bundle was forwarded at +1.500 s; waited 0.500 s for text, img.
            """,  # noqa: E501
        ),
    ],
    ids=["companion failed", "parent failed", "finish reason", "abort", "replica lost", "deadline", "rejected"],
)
def test_how_a_request_failed(events, told):
    expected = dedent(told).strip().splitlines()
    assert story("p", [*GUIDED, *events], deferred_s=5)[-len(expected) :] == expected


def test_lines_are_not_longer_than_they_must_be():
    roles = {f"role{n}": f"companion-{n}" for n in range(20)}
    events = [register("p", roles), output("p"), *(start(name) for name in roles.values()), error("p", "x" * 200)]
    lines = story("p", events, deferred_s=5)
    assert [line.strip() for line in lines if len(line) > 120] == [f"{'x' * 200};", f"{'x' * 200};"]
    assert all(len(line) <= 120 for line in story("p", events[:-1]))
    asked = story("p" * 150, [register("p" * 150, {"r" * 150: "c"})])
    assert [line.split()[0][:3] for line in asked if len(line) > 120] == ["par", "com", "rrr", "rrr"]


def test_what_a_bundle_waited_for():
    sealed = [register("p", at=1.0), output("p", at=2.0), join("p", "r", "c", at=3.0), done("c", at=4.0)]
    said = story("c", [*sealed, seal("p", at=5.0), finish("p", at=6.0)])[-1]
    assert said.endswith("; its bundle was forwarded at +4.000 s; waited 3.000 s for the sealing, r.")
    at_once = [register("p", {"r": "c"}, streaming=True), output("p", segment=True), done("c", at=1.0)]
    for more, waited in (([], True), ([output("p", at=2.0)], False)):
        assert ("; waited 1.000 s for r." in story("p", [*at_once, *more, finish("p")])[-1]) is waited


def test_late_events_come_after_the_end():
    lines = story(
        "c1", [*GUIDED, error("p", at=11.0), start("c1", 2, at=12.0), error("c2", "late", at=13.0), abort("c1")]
    )
    assert lines[-4:] == [
        "+2.000 s  text    started on replica 2 of stage 0; ignored (ended); told the host to: abort text",
        "+3.000 s  img     reported a failure: late; ignored (ended)",
        "+3.000 s  client  aborted text; ignored (nothing_ended); "
        "told the host to: acknowledge the abort (text already_ended)",
        "Result: ended at +1.000 s: failed, error: boom.",
    ]


@pytest.mark.parametrize(
    ("events", "verdict"),
    [
        (
            [register("p", {"r": "c"}, at=1.0)],
            "Result: open when the log ends (+0.000 s): the parent is registered since +0.000 s; waiting for its "
            "own output; no output yet of r (c: not started, registered since +0.000 s).",
        ),
        (
            [
                register("p", {"r": "c", "s": "d"}, at=1.0),
                start("c", 4, stage=2, at=2.0),
                beat("c", at=3.0),
                start("p", at=3.5),
                done("d", at=4.0),
                output("p", at=5.0),
                kv("other", at=9.0),
            ],
            "Result: open when the log ends (+8.000 s): the parent is deferred since +4.000 s; "
            "no output yet of r (c: running on replica 4 of stage 2, silent since +2.000 s).",
        ),
        (
            [register("p", at=1.0), join("p", "r", "c"), done("c"), start("p", 1), output("p", at=2.0)],
            "Result: open when the log ends (+1.000 s): the parent is deferred since +1.000 s on replica 1 of "
            "stage 0; the set of companions is not sealed.",
        ),
        (
            [register("p", at=1.0), seal("p"), output("p", at=2.0)],
            "Result: open when the log ends (+1.000 s): forwarded since +1.000 s, waiting for the downstream "
            "stages to finish.",
        ),
    ],
    ids=["not started", "silent", "not sealed", "forwarded"],
)
def test_what_an_open_request_is_waiting_for(events, verdict):
    assert result(story("p", events)) == verdict


def test_steps_of_registration():
    lines = story(
        "p",
        [
            register("p", streaming=True, limits=Limits(deferred_s=2.5, max_companions_per_parent=3)),
            join("p", "r", "c"),
            join("p", "r", "other"),
            output("p", segment=True),
            seal("p"),
            seal("p"),
            register("p", {"x": "y"}),
        ],
    )
    assert lines[2:4] == [
        "+0.000 s  parent  was registered, companions not named yet, streaming, limits deferred_s=2.5,",
        "                    max_companions_per_parent=3",
    ]
    assert [line.split("  ", 1)[1].strip() for line in lines[4:11]] == [
        "r       was registered in role r",
        "other   was registered in role r; rejected (role_in_use)",
        "parent  has its own output of stage 0 (a segment)",
        "deferred, waiting for r (c); the set of companions is not sealed",
        "parent  has its set of companions sealed",
        "parent  has its set of companions sealed; ignored (already_sealed)",
        "parent  was registered with x; rejected (different_registration)",
    ]
    assert "was registered without companions" in story("q", [register("q", {})])[1]


def test_signs_of_life_that_follow_each_other_share_a_line():
    beats = [beat("c", at=float(n)) for n in range(2, 8)]
    lines = story(
        "p", [register("p", {"r": "c"}, at=1.0), start("c", at=1.5), *beats, kv("c", at=8.0), beat("c", at=9.0)]
    )
    assert lines[4:7] == [
        "+1.000 s  r       gave a sign of life (6 times, the last at +6.000 s)",
        "+7.000 s  r       has its KV cache ready (a sign of life, not an output)",
        "+8.000 s  r       gave a sign of life",
    ]


def test_every_life_of_the_group_is_told():
    events = [
        register("p", {"r": "c"}, at=1.0),
        output("p"),
        done("c"),
        finish("p", at=2.0),
        register("q", {"s": "c"}, at=3.0),
        error("q", at=4.0),
        register("p", {}, at=5.0),
    ]
    lines = story("c", events)
    assert [line for line in lines if line.startswith("parent")] == [
        "parent p, life 1: from 1.000 s of the host's clock",
        "parent q, life 1: from 3.000 s of the host's clock",
        "parent p, life 2: from 5.000 s of the host's clock",
    ]
    assert [line.split(":")[1] for line in lines if line.startswith("Result: ")] == [
        " ended at +1.000 s",
        " ended at +1.000 s",
        " open when the log ends (+0.000 s)",
    ]
    assert lines.count("") == 2
    assert not any("life 1" in line and "p," in line for line in story("q", events))


class TestCutOff:
    def test_the_beginning_is_missing(self):
        events = [*GUIDED, output("p", at=13.0), done("c1", at=14.0)]
        skip = next(record.seq for record in records_of(events) if record.event_seq == 3) - 1
        lines = story("p", events, skip=skip)
        assert lines[0] == "parent p, life 1: from 10.500 s of the host's clock"
        assert "  (its registration is not in this log)" in lines
        assert result(lines) == (
            "Result: open when the log ends (+3.500 s): the parent is deferred since +2.500 s; "
            "no output yet of img (c2: running on replica 1 of stage 3, silent since +0.500 s); "
            "its registration is not in this log, so there may be more companions."
        )

    def test_wherever_it_is_cut_the_story_can_be_told(self):
        events = [
            *GUIDED,
            beat("c1"),
            output("p"),
            done("c1"),
            done("c2"),
            abort("p"),
            kv("c2"),
            abort("c1"),
            register("p", {}, life=7),
            tick(99.0),
        ]
        count = len(records_of(events))
        for skip in range(count):
            for upto in range(skip + 1, count + 1):
                try:
                    lines = story("c1", events, skip=skip, upto=upto, total_s=60)
                except NotInAudit:
                    continue
                assert lines[-1].startswith(("Result: ", " " * 10))

    def test_in_the_middle_of_a_step(self):
        lines = story("p", [register("p", {"r": "c"}), error("c")], skip=5)
        assert lines[-4:-1] == [
            "+0.000 s  parent  request failed",
            "                  the parent failed, companion_failed: companion c (role r) failed: boom",
            "                  told the host to: fail the parent; abort parent; release parent, r",
        ]

    def test_without_a_group(self):
        assert story("x", [register("p", {}), start("x", 1), abort("x")]) == [
            "request x: from 0.000 s of the host's clock",
            "+0.000 s  x       started on replica 1 of stage 0; ignored (unknown)",
            "+0.000 s  client  aborted x; ignored (nothing_ended); told the host to: "
            "acknowledge the abort (x unknown)",
            "Result: it was not registered.",
        ]
        assert (
            story("x", [register("p", {}), start("x")], skip=2)[-1]
            == "Result: its registration is not in this log."
        )

    def test_a_registration_that_was_rejected(self):
        lines = story("x", [register("p", {}), join("x", "r", "c")])
        assert lines[1:] == [
            "+0.000 s  c  was registered in role r; rejected (unknown_parent)",
            "Result: it was not registered.",
        ]


def test_an_audit_whose_host_calls_a_tracker_has_no_events_and_is_told_all_the_same():
    memory, now = MemoryAudit(), [0.0]
    tracker = CfgCompanionTracker(clock=lambda: now[0], deferred_limit_s=10, observers=[memory])
    tracker.register_parent("p")
    tracker.register_companion("p", "neg", "c")
    tracker.defer_parent("p", None, 0)
    now[0] = 10.0
    tracker.pop_expired_parents()
    tracker.cleanup_parent("p")
    assert explain(memory, "p") == [
        "parent p, life 1: from 0.000 s of the host's clock",
        "  companion neg = c",
        " +0.000 s  parent  register parent",
        " +0.000 s  neg     register companion",
        " +0.000 s  parent  defer parent; deferred, waiting for neg (c)",
        "+10.000 s  parent  pop expired parents; handed back (deferred_deadline) without neg (c)",
        "+10.000 s  parent  cleanup parent",
        "                   neg failed with it",
        "Result: ended at +10.000 s: failed, deferred_deadline; it was handed back at +10.000 s without neg (c);",
        "          waited 10.000 s for neg.",
    ]


def test_a_life_that_begins_again_under_the_same_number():
    records = records_of([register("p", {}, at=1.0), error("p", at=2.0)])
    again = [record._replace(seq=record.seq + 50, event_seq=record.event_seq + 50) for record in records]
    lines = explain(records + again, "p")
    assert len([line for line in lines if line.startswith("parent p, life 1")]) == 2


class TestUnknown:
    EVENTS = [register("chatcmpl-123", {"cfg_text": "chatcmpl-123__cfg_text"}), register("other", {})]

    @pytest.mark.parametrize(
        ("asked", "close"),
        [
            ("chatcmpl-12", ["chatcmpl-123", "chatcmpl-123__cfg_text"]),
            ("123__cfg_text", ["chatcmpl-123__cfg_text"]),
            ("xchatcmpl-123", ["chatcmpl-123"]),
            ("chatcmpl-133", ["chatcmpl-123"]),
            ("quite different", []),
        ],
    )
    def test_close_ids_are_offered(self, asked, close):
        with pytest.raises(NotInAudit) as caught:
            story(asked, self.EVENTS)
        assert (caught.value.request_id, caught.value.close) == (asked, close)
        assert str(caught.value).startswith(f"no request '{asked}' in this audit")
        assert ("did you mean" in str(caught.value)) == bool(close)


class TestSources:
    def test_a_file_and_memory_tell_the_same(self, tmp_path):
        memory = MemoryAudit(None)
        path = tmp_path / "audit.jsonl"
        with JsonlAudit(path, clock=lambda: 0.0) as audit:
            Registry(observers=[memory, audit]).dispatch_many(GUIDED)
        told = explain(AuditFile(path), "c1")
        assert told[0] == "parent p, life 1: from 10.000 s of the host's clock, logged 1970-01-01T00:00:00.000000Z"
        assert told[1:] == explain(memory.records, "c1")[1:] == explain(iter(memory.records), "c1")[1:]

    def test_a_second_run_in_the_same_file_is_another_life(self, tmp_path):
        path = tmp_path / "audit.jsonl"
        for last in (error("p", at=12.0), kv("x", at=12.0)):
            with JsonlAudit(path) as audit:
                Registry(observers=[audit]).dispatch_many([*GUIDED, last])
        lines = explain(AuditFile(path), "p")
        assert len([line for line in lines if line.startswith("parent p, life 1")]) == 2
        assert [line.split(" ")[1] for line in lines if line.startswith("Result: ")] == ["ended", "open"]


def test_every_request_of_the_sample_has_a_story():
    memory = MemoryAudit(None)
    run_trace(str(resources.files("cfg_fsm") / "samples" / "omni-small.events.jsonl"), observers=[memory])
    ids = {record.request_id for record in memory.records if record.kind == "created"}
    assert len(ids) > 100
    for request_id in ids:
        lines = explain(memory.records, request_id)
        assert result(lines).startswith("Result: ended at +")
        assert all("\n" not in line and len(line) <= 120 for line in lines)
