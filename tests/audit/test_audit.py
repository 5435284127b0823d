"""The sinks, and reading back what they wrote."""

import gzip
import hashlib
import io
import json
import logging

import pytest
from helpers import done, kv, output, register, start

from cfg_fsm import Registry
from cfg_fsm.audit.reading import AuditFile, BrokenChain, last_hash, read_audit, verify
from cfg_fsm.audit.sinks import JsonlAudit, MemoryAudit
from cfg_fsm.engine.journal import AuditRecord
from cfg_fsm.errors import BadLine, CfgFsmError

NOON = 1_700_000_000.25
KEYS = [
    *("seq", "at", "ts", "kind", "machine", "request_id", "parent_id", "role", "life"),
    *("trigger", "source", "dest", "reason", "event", "event_seq", "prev", "hash"),
]
STEPS = [
    register("p", {"r": "c"}, at=0.5),
    start("p", 1, at=1.0),
    kv("nobody"),
    output("p", {"big": "secret"}, at=2.0),
    done("c", "hidden", at=3.0),
]


def write(path, steps=STEPS, **options):
    with JsonlAudit(path, clock=lambda: NOON, **options) as audit:
        Registry(observers=[audit]).dispatch_many(steps)
    return path.read_bytes()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "audit.jsonl"
    write(path)
    return path


class TestMemory:
    def test_it_keeps_the_last_records(self):
        memory = MemoryAudit(maxlen=3)
        Registry(observers=[memory]).dispatch_many(STEPS)
        everything = MemoryAudit(maxlen=None)
        Registry(observers=[everything.append]).dispatch_many(STEPS)
        assert len(memory) == 3
        assert memory.records == everything.records[-3:] == list(memory)
        assert all(isinstance(record, AuditRecord) for record in memory.records)
        memory.clear()
        assert memory.records == []


class TestJsonLines:
    def test_each_record_is_a_line_with_the_keys_in_order(self, log):
        memory = MemoryAudit()
        Registry(observers=[memory]).dispatch_many(STEPS)
        lines = log.read_text().splitlines()
        assert len(lines) == len(memory)
        for line, record in zip(lines, memory.records, strict=True):
            data = json.loads(line)
            assert list(data) == KEYS
            assert {key: data[key] for key in record._fields} == record._asdict()
            assert data["ts"] == "2023-11-14T22:13:20.250000Z"

    def test_no_payload_is_in_it(self, log):
        text = log.read_text()
        assert "secret" not in text
        assert "hidden" not in text
        assert '"output":{"type":"str","size":6}' in text

    def test_the_chain_is_what_its_description_says(self, log):
        prev = "0" * 64
        for line in log.read_bytes().splitlines():
            body, _, rest = line.partition(b',"hash":"')
            assert json.loads(body + b"}")["prev"] == prev
            prev = hashlib.sha256(body).hexdigest()
            assert rest == prev.encode() + b'"}'
        assert verify(log) == 13

    def test_the_same_events_give_the_same_bytes(self, tmp_path):
        assert write(tmp_path / "one") == write(tmp_path / "two") == write(tmp_path / "two", append=False)

    def test_without_a_clock_the_time_is_that_of_the_event(self, tmp_path):
        events = [register("p", {}, at=17.793), kv("p"), kv("p", at=86_400.1), kv("p", at=1e300)]
        with JsonlAudit(tmp_path / "log", clock=None) as audit:
            Registry(observers=[audit]).dispatch_many(events)
        assert list(dict.fromkeys(line.ts for line in read_audit(tmp_path / "log"))) == [
            "1970-01-01T00:00:17.793000Z",
            "1970-01-02T00:00:00.100000Z",
            "9999-12-31T23:59:59.000000Z",
        ]

    def test_the_clock_is_the_time_of_day(self, tmp_path):
        times = iter([1.5, 1.999999, 2.0, 1_700_000_000.0])
        with JsonlAudit(tmp_path / "log", clock=lambda: next(times)) as audit:
            Registry(observers=[audit]).dispatch_many([register("p", {}), kv("p")])
        assert [line.ts for line in read_audit(tmp_path / "log")] == [
            "1970-01-01T00:00:01.500000Z",
            "1970-01-01T00:00:01.999999Z",
            "1970-01-01T00:00:02.000000Z",
        ]

    @pytest.mark.parametrize("stream", [io.BytesIO, io.StringIO])
    def test_a_stream_is_written_and_left_open(self, log, stream):
        target = stream()
        with JsonlAudit(target, clock=lambda: NOON) as audit:
            Registry(observers=[audit]).dispatch_many(STEPS)
            audit.flush()
        written = target.getvalue()
        assert (written if isinstance(written, bytes) else written.encode()) == log.read_bytes()

    def test_the_default_clock_is_the_systems(self, tmp_path):
        with JsonlAudit(tmp_path / "log") as audit:
            Registry(observers=[audit]).dispatch(kv("x"))
        assert all(line.ts > "2020" and line.ts.endswith("Z") for line in read_audit(tmp_path / "log"))

    def test_gzip_is_not_written(self, tmp_path):
        with pytest.raises(CfgFsmError, match="written plain"):
            JsonlAudit(tmp_path / "audit.jsonl.gz")

    def test_a_directory_that_is_not_there(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            JsonlAudit(tmp_path / "nowhere" / "audit.jsonl")

    def test_a_record_the_disk_refuses_is_not_in_the_chain(self, tmp_path, caplog):
        class Disk(io.BytesIO):
            full = False

            def write(self, data):
                if self.full:
                    raise OSError(28, "No space left on device")
                return super().write(data)

        disk = Disk()
        audit = JsonlAudit(disk, clock=lambda: NOON)
        registry = Registry(observers=[audit])
        registry.dispatch(register("p", {}))
        disk.full = True
        with caplog.at_level(logging.ERROR, "cfg_fsm"):
            registry.dispatch(start("p"))
        disk.full = False
        registry.dispatch(kv("p"))
        assert registry.counters()["observer_errors"] == 2
        assert "No space left" in caplog.text
        path = tmp_path / "log"
        path.write_bytes(disk.getvalue())
        assert verify(path) == 3
        assert [line.seq for line in read_audit(path)] == [1, 2, 5]


class TestAppending:
    def test_the_chain_goes_on(self, log):
        write(log)
        assert verify(log) == 26
        lines = list(read_audit(log))
        assert lines[13].seq == 1
        assert lines[13].prev == lines[12].hash

    def test_an_empty_file_begins_one(self, tmp_path):
        (tmp_path / "log").touch()
        write(tmp_path / "log")
        assert verify(tmp_path / "log") == 13

    @pytest.mark.parametrize(
        ("damage", "line", "why"),
        [
            (lambda data: data[:-1], 13, "no line end"),
            (lambda data: data[:-30], 13, "no line end"),
            (lambda data: data + b"{", 14, "no line end"),
            (lambda data: data + b"\n", 14, "not a whole audit line"),
            (lambda data: data[:-30] + b"\n", 13, "not a whole audit line"),
            (lambda data: data.replace(b'"seq":13', b'"seq":14'), 13, "hash does not match"),
            (lambda data: b"hello\n", 1, "not a whole audit line"),
            (lambda data: b"\n", 1, "not a whole audit line"),
        ],
        ids=[
            "no line end",
            "torn",
            "one more begun",
            "blank",
            "torn with line end",
            "changed",
            "other",
            "only blank",
        ],
    )
    def test_a_damaged_end_is_an_error_and_stays_as_it_is(self, log, damage, line, why):
        damaged = damage(log.read_bytes())
        log.write_bytes(damaged)
        with pytest.raises(BadLine, match=why) as caught:
            JsonlAudit(log)
        assert (caught.value.path, caught.value.line) == (str(log), line)
        assert log.read_bytes() == damaged

    def test_a_last_line_longer_than_a_block(self, tmp_path):
        path = tmp_path / "log"
        write(path, [register("p", {}), start("x" * 300_000)])
        assert last_hash(path) == list(read_audit(path))[-1].hash
        write(path, [start("y" * 300_000)])
        assert verify(path) == 6

    def test_last_hash_of_nothing(self, tmp_path):
        assert last_hash(tmp_path / "nothing") == "0" * 64


class TestReading:
    def test_plain_and_gzip_and_again(self, log, tmp_path):
        packed = tmp_path / "audit.jsonl.gz"
        packed.write_bytes(gzip.compress(log.read_bytes()))
        plain = list(read_audit(log))
        assert list(plain[0].as_dict()) == KEYS
        assert list(read_audit(packed)) == plain
        again = AuditFile(log)
        assert list(again) == list(again) == plain
        assert verify(packed) == 13

    @pytest.mark.parametrize(
        ("change", "why"),
        [
            (lambda line: b"not json", "this is not JSON: a value is expected at column 1"),
            (lambda line: b"\xff\xff", "not UTF-8"),
            (lambda line: b"[1]", "a JSON object is expected"),
            (lambda line: b"{}", "it lacks at, dest, event, event_seq, hash"),
            (lambda line: line.replace(b'{"seq"', b'{"more":1,"seq"'), "unknown more"),
            (lambda line: line.replace(b'"seq":3', b'"seq":"3"'), "seq is of the wrong type"),
            (lambda line: line[:-9], "not JSON"),
            (lambda line: b"", "not JSON"),
        ],
    )
    def test_a_bad_line_says_where_and_why(self, log, change, why):
        lines = log.read_bytes().split(b"\n")
        lines[2] = change(lines[2])
        log.write_bytes(b"\n".join(lines))
        records = read_audit(log)
        assert [next(records).seq, next(records).seq] == [1, 2]
        with pytest.raises(BadLine, match=why) as caught:
            next(records)
        assert (caught.value.path, caught.value.line) == (str(log), 3)

    def test_a_log_cut_off_in_a_line(self, log):
        log.write_bytes(log.read_bytes()[:-20])
        with pytest.raises(BadLine, match="ends in the middle of this line") as caught:
            list(read_audit(log))
        assert caught.value.line == 13

    def test_the_chain_is_checked_if_asked(self, log):
        broken = []
        assert len(list(read_audit(log, on_broken=broken.append))) == 13
        assert broken == []
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:2] + lines[5:7] + lines[9:]))
        assert len(list(read_audit(log, on_broken=broken.append))) == 8
        assert [(error.line, type(error)) for error in broken] == [(3, BrokenChain)]

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError):
            list(read_audit(tmp_path / "nothing"))


class TestVerify:
    def lines(self, log):
        return log.read_bytes().splitlines(keepends=True)

    @pytest.mark.parametrize(
        ("change", "line"),
        [
            (lambda lines: [*lines[:4], lines[4].replace(b'"at":1.0', b'"at":1.5'), *lines[5:]], 5),
            (lambda lines: [*lines[:4], *lines[5:]], 5),
            (lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]], 5),
            (lambda lines: [*lines[:4], lines[3], *lines[4:]], 5),
            (lambda lines: lines[1:], 1),
            (lambda lines: [*lines[:-1], lines[-1][:-10]], 13),
            (lambda lines: [*lines[:-1], lines[-1][:-1]], 13),
            (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4),
        ],
        ids=["changed", "removed", "swapped", "doubled", "first removed", "torn", "no line end", "blank"],
    )
    def test_what_was_done_to_a_log_shows(self, log, change, line):
        log.write_bytes(b"".join(change(self.lines(log))))
        with pytest.raises(BadLine) as caught:
            verify(log)
        assert caught.value.line == line
        assert isinstance(caught.value, BrokenChain)

    def test_what_is_no_log(self, tmp_path):
        (tmp_path / "x").write_text("{}\n")
        with pytest.raises(BadLine, match=":1: not an audit record") as caught:
            verify(tmp_path / "x")
        assert not isinstance(caught.value, BrokenChain)

    def test_an_empty_log_is_whole(self, tmp_path):
        (tmp_path / "log").touch()
        assert verify(tmp_path / "log") == 0
