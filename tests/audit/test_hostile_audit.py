"""Audit logs that somebody has tampered with, the chain rebuilt: a story or a clear error, and nothing else."""

import gzip
import json
from contextlib import suppress
from hashlib import sha256

import pytest
from helpers import abort, beat, done, error, finish, join, kv, lose, output, register, reject, seal, start, tick

from cfg_fsm import CfgCompanionTracker, Limits, Registry
from cfg_fsm.actions import ACTION_TYPES
from cfg_fsm.audit import shapes
from cfg_fsm.audit.conform import check
from cfg_fsm.audit.explain import NotInAudit, explain
from cfg_fsm.audit.reading import KEYS, MAX_LINE, ZEROS, AuditFile, AuditLine, read_audit, verify
from cfg_fsm.audit.sinks import JsonlAudit
from cfg_fsm.errors import BadLine
from cfg_fsm.lines import LineSource

#: Together they bring every kind of record, every event and every action.
EVENTS = [
    register("p", {"a": "pa", "b": "pb"}, limits=Limits(deferred_s=5), streaming=True, at=1.0),
    start("p", 0, at=1.0),
    start("pa", 1, at=1.5),
    beat("pa", at=1.6),
    kv("pa", at=1.7),
    output("p", {"big": 1}, segment=True, at=2.0),
    done("pa", at=2.5),
    done("pb", finish="length", at=3.0),
    reject("p", at=3.5),
    register("q", at=4.0),
    join("q", "a", "qa", at=4.0),
    seal("q", at=4.1),
    output("q", at=4.2),
    done("qa", at=4.3),
    finish("q", at=4.4),
    register("q", {"a": "pa"}, life=7, at=4.5),
    output("q", at=4.6),
    error("pa", status_code=500, error_type="T", stage_id=2, at=4.7),
    start("pa", at=4.8),
    register("s", {"a": "sa"}, limits=Limits(total_s=2), at=5.0),
    register("s", {"a": "other"}, at=5.0),
    tick(7.0),
    register("t", {"a": "ta"}, at=8.0),
    start("ta", 9, at=8.0),
    lose(9, error="gone", at=8.5),
    register("u", {"a": "ua"}, at=9.0),
    abort("u", "nobody", at=9.1),
    done("stranger", at=9.2),
]
IDS = ("p", "pa", "q", "s", "sa", "t", "u", "nobody")
ODD = [
    None, True, 0, -1, 10**25, 1.5, -1e308, "", "x", "parent", "p", "fail", "fail_parent",
    "\x1b[31m\x9b2J\u202e\n\u2028", [], [1], {}, {"type": "kv_ready"}, {"a": "b"}, {"a": {}},
]  # fmt: skip


def lines_of(make):
    """The lines of the log that ``make`` fills."""

    class Stream:
        name = "log"

        def __init__(self):
            self.lines = []

        def write(self, line):
            self.lines.append(json.loads(line))

        def flush(self):
            pass

    stream = Stream()
    make(JsonlAudit(stream, clock=lambda: 1.0))
    return stream.lines


def of_registry(audit):
    Registry(Limits(silent_s=100), observers=[audit]).dispatch_many(EVENTS)


def of_tracker(audit):
    now = [1.0]
    tracker = CfgCompanionTracker(observers=[audit], clock=lambda: now[0], deferred_limit_s=3.0)
    tracker.register_companion("p", "a", "pa")
    tracker.register_companion("p", "a", "pa2")
    tracker.register_companion("p", "b", "pb")
    tracker.set_companion_output("pa2", "x")
    tracker.on_companion_completed("pa2")
    tracker.defer_parent("p", "out", 0)
    now[0] = 9.0
    tracker.pop_expired_parents()
    tracker.cleanup_parent("p")
    tracker.register_companion("q", "a", "qa")
    tracker.abort_parents(["q"])


def chained(records):
    """The records as the bytes of a log whose chain is whole."""
    prev, written = ZEROS, []
    for record in records:
        body = {name: value for name, value in record.items() if name not in ("prev", "hash")}
        if "prev" in record:
            body["prev"] = prev if len(str(record["prev"])) == 64 else record["prev"]
        text = json.dumps(body, separators=(",", ":")).encode()[:-1]
        prev = sha256(text).hexdigest()
        written.append(b'%b,"hash":"%b"}\n' % (text, prev.encode()) if "hash" in record else text + b"}\n")
    return b"".join(written)


def places(value, path=()):
    """The path of every field, at any depth."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield (*path, key)
        yield from places(below, (*path, key))


def changed(record, path, value, drop=False):
    """A copy of the record with one field changed, or taken out."""
    copy = json.loads(json.dumps(record))
    at = copy
    for key in path[:-1]:
        at = at[key]
    if drop:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return copy


def kinds(records):
    """The number of one record of each kind."""
    found = {}
    for number, record in enumerate(records):
        body = record["event"]
        what = body["type"] if isinstance(body, dict) else body
        shape = (record["kind"], record["machine"], record["trigger"], what, record["life"] is None)
        found.setdefault(shape, number)
    return sorted(found.values())


def refusal(record):
    """Why the record is not let in; ``None`` if it is."""
    try:
        shapes.check(record)
    except ValueError as why:
        return str(why)
    return None


def told(records):
    """The stories that the records tell, as they are read from a file."""
    read = [AuditLine(**record) for record in records]
    stories = []
    for request_id in IDS:
        with suppress(NotInAudit):
            stories += explain(read, request_id)
    list(check(read))
    assert all(line.isprintable() for line in stories)
    return stories


@pytest.mark.parametrize("make", [of_registry, of_tracker])
def test_a_record_with_one_field_changed_is_told_or_refused(make):
    records = lines_of(make)
    refused = taken = 0
    for number in kinds(records):
        for place in places(records[number]):
            for value in [*ODD, "drop"]:
                record = changed(records[number], place, value, value == "drop")
                why = refusal(record)
                if why is not None:
                    assert why.startswith("not an audit record: ")
                    assert len(why) < 1000
                    refused += 1
                else:
                    told([*records[max(0, number - 15) : number], record, *records[number + 1 : number + 8]])
                    taken += 1
    assert min(refused, taken) > 500


@pytest.mark.parametrize("make", [of_registry, of_tracker])
def test_a_log_with_its_chain_rebuilt_is_read_as_any_other(make, tmp_path):
    records = lines_of(make)
    path = tmp_path / "audit.jsonl"
    path.write_bytes(chained(records))
    assert verify(path) == len(records)
    assert [record.as_dict() | {"hash": ""} for record in read_audit(path)] == [
        record | {"hash": ""} for record in records
    ]
    bad = {**records[5], "event": {}}
    path.write_bytes(chained([*records[:5], bad, *records[6:]]))
    assert verify(path) == len(records)
    with pytest.raises(BadLine, match=":6: not an audit record: event is of the wrong type where kind is"):
        explain(AuditFile(path), "p")


@pytest.mark.parametrize(
    "body", [{}, "x", {"type": "kv_ready"}, {"type": "x"}, [], None, {"type": "clock_ticked", "x": 1}]
)
@pytest.mark.parametrize("kind", ["event", "action"])
def test_the_body_of_an_event_or_action_is_checked(kind, body, tmp_path):
    records = lines_of(of_registry)
    number = next(n for n, record in enumerate(records) if record["kind"] == kind)
    (tmp_path / "log").write_bytes(chained([*records[:number], {**records[number], "event": body}]))
    with pytest.raises(BadLine, match=rf"log:{number + 1}: not an audit record: "):
        list(read_audit(tmp_path / "log"))


def test_the_shapes_are_those_of_records_and_actions():
    assert tuple(shapes.FIELDS) == KEYS
    assert {action.type: set(action.__dataclass_fields__) - {"type"} for action in ACTION_TYPES} == {
        name: set(fields) for name, fields in shapes.ACTIONS.items()
    }
    found = lines_of(of_registry) + lines_of(of_tracker)
    assert {record["kind"] for record in found} == set(shapes.NEEDED)
    assert {record["trigger"] for record in found if record["kind"] == "action"} == set(shapes.ACTIONS)
    for record in found:
        shapes.check(record)


# -- the text of a line -----------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(chained(lines_of(of_registry)))
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda line: line.replace(b'"seq":1,', b'"seq":1,"seq":1,'), "key 'seq' stands twice"),
        (lambda line: line.replace(b'"a":"pa"', b'"a":"pa","a":"px"'), "key 'a' stands twice"),
        (lambda line: line.replace(b'"a":"pa"', b'"a":"pa","\\u0061":"px"'), "key 'a' stands twice"),
        (lambda line: line.replace(b'"at":1.0', b'"at":NaN'), "NaN is no number"),
        (lambda line: line.replace(b'"at":1.0', b'"at":-Infinity'), "-Infinity is no number"),
        (lambda line: line.replace(b'"at":1.0', b'"at":1e999'), "beyond what a float holds"),
        (lambda line: line.replace(b'"at":1.0', b'"at":' + b"1" * 5000), "too many digits"),
        (lambda line: line.replace(b'"at":1.0', b'"at":' + b"1" * 400), "at is of the wrong type"),
        (lambda line: line.replace(b'"at":1.0', b'"at":' + b"[" * 101 + b"]" * 101), "nested more than 100 deep"),
        (lambda line: line.replace(b'"at":1.0', b'"at":' + b"[" * 100_000), "nested more than 100 deep"),
        (lambda line: line.replace(b'"at":1.0', b'"at":' + b'{"a":' * 100_000), "nested more than 100 deep"),
        (lambda line: line.replace(b'"ts":"', b'"ts":"\xff'), "not UTF-8"),
        (lambda line: line.decode().encode("utf-16"), "not UTF-8"),
        (lambda line: line.replace(b'"kind"', b'"' + b"k" * 100_000 + b'"'), r"unknown kkk.*\.\.\."),
    ],
)
def test_a_line_is_read_strictly(log, change, why):
    first, *rest = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(change(first) + b"".join(rest))
    with pytest.raises(BadLine, match=f"log:1: .*{why}") as caught:
        list(read_audit(log))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("packed", [False, True])
def test_a_line_without_an_end_is_refused_before_it_is_taken_in(log, packed, monkeypatch):
    """Bytes beyond the limit are passed over: of a log that goes on and on, no more than that is kept."""
    held = []
    inner = LineSource.batches

    def batches(source):
        for batch in inner(source):
            held.append(max(map(len, batch)))
            yield batch

    monkeypatch.setattr(LineSource, "batches", batches)
    data = log.read_bytes() + b"x" * (3 * MAX_LINE)
    log.write_bytes(gzip.compress(data, 1) if packed else data)
    for read in (lambda: list(read_audit(log)), lambda: verify(log)):
        with pytest.raises(BadLine, match=f"the line is longer than {MAX_LINE >> 20} MiB"):
            read()
    assert max(held) < MAX_LINE


def test_a_last_line_without_an_end_is_not_taken_in_to_append_to_it(log):
    log.write_bytes(log.read_bytes() + b"x" * (3 * MAX_LINE))
    for data in (b"", b"\n"):
        with open(log, "ab") as file:
            file.write(data)
        with pytest.raises(BadLine, match=f"the line is longer than {MAX_LINE >> 20} MiB"):
            JsonlAudit(log)


def test_brackets_in_a_text_are_not_depth(log):
    first, *rest = log.read_bytes().splitlines(keepends=True)
    text = b'"ts":"' + b'[{\\"[\\\\' * 500
    log.write_bytes(first.replace(b'"ts":"', text) + b"".join(rest))
    assert next(read_audit(log)).ts.startswith('[{"[\\[{')


# -- reading twice ----------------------------------------------------------------------------------------------


def test_a_log_that_cannot_be_read_again_is_kept(log, tmp_path):
    import os
    import threading

    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    data = log.read_bytes() + b"damage\n"
    writer = threading.Thread(target=lambda: pipe.write_bytes(data))
    writer.start()
    once = AuditFile(pipe)
    found = []
    for _ in range(2):
        with pytest.raises(BadLine, match="not JSON"):
            found.append([]) or found[-1].extend(once)
    writer.join()
    assert found[0] == found[1] == list(read_audit(log))


# -- cost -------------------------------------------------------------------------------------------------------


def steps_of(work):
    """How many lines of Python the work takes: a measure that no other program disturbs."""
    import sys

    count = 0

    def trace(frame, what, _):
        nonlocal count
        count += what == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize(
    "then",
    [
        lambda ids: [abort("p")],
        lambda ids: [beat(one) for one in ids],
        lambda ids: [output("p"), *map(done, ids)],
        lambda ids: [*map(start, ids), *map(done, reversed(ids)), output("p"), finish("p")],
    ],
    ids=["aborted", "signs of life", "deferred", "finished"],
)
def test_the_story_of_a_large_group_takes_time_in_proportion(then):
    def story(count):
        records = []
        ids = [f"c{number}" for number in range(count)]
        registry = Registry(Limits(max_companions_per_parent=count), observers=[records.append])
        registry.dispatch_many([register("p", {f"r{n}": one for n, one in enumerate(ids)}), *then(ids)])
        return steps_of(lambda: explain(records, "p"))

    assert story(800) < 2.5 * story(400)


def test_names_without_end_do_not_widen_every_line(log):
    records = []
    registry = Registry(observers=[records.append])
    registry.dispatch_many(
        [register("p", {"r" * 100_000: "c"}, streaming=True), *[start("p"), output("p")] * 50, done("c")]
    )
    assert sum(map(len, explain(records, "p"))) < 100 * 100_000
    with pytest.raises(NotInAudit) as caught:
        explain(records, "x" * 100_000)
    assert len(str(caught.value)) < 1000
