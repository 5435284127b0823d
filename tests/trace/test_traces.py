"""Reading events as lines."""

import gzip
import io
import os
import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cfg_fsm import parse_event
from cfg_fsm.errors import BadLine
from cfg_fsm.lines import DamagedFile, LineSource, printable
from cfg_fsm.trace.reading import read_events, reason

A = b'{"type":"kv_ready","request_id":"a"}'
B = b'{"type":"parent_finished","parent_id":"b"}'


def events(path, **options):
    with LineSource(path) as source:
        return list(read_events(source, **options))


def found(path):
    return [(number, event.type) for number, event in events(path)]


@pytest.fixture
def stdin(monkeypatch):
    def put(data):
        stream = io.TextIOWrapper(io.BytesIO(data))
        monkeypatch.setattr(sys, "stdin", stream)

    return put


TWO = [(1, "kv_ready"), (2, "parent_finished")]


class TestSources:
    def test_a_plain_file(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(A + b"\n" + B + b"\n")
        assert found(path) == TWO

    @pytest.mark.parametrize("name", ["trace.jsonl.gz", "trace.jsonl"])
    def test_gzip_by_name_or_by_its_first_bytes(self, tmp_path, name):
        path = tmp_path / name
        path.write_bytes(gzip.compress(A + b"\n") + gzip.compress(B + b"\n") + b"\0" * 10)
        assert found(path) == TWO

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_standard_input(self, stdin, pack):
        stdin(pack(A + b"\n" + B + b"\n"))
        assert found("-") == TWO

    def test_standard_input_that_is_closed(self, monkeypatch):
        monkeypatch.setattr(sys, "stdin", None)
        with pytest.raises(OSError, match="standard input is closed"):
            LineSource("-")

    def test_blank_lines_carriage_returns_and_a_byte_order_mark(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(b"\xef\xbb\xbf" + A + b"\r\n\r\n  \n\n" + B)
        assert found(path) == [(1, "kv_ready"), (5, "parent_finished")]

    def test_an_empty_file(self, tmp_path):
        for name, data in (("plain", b""), ("packed.gz", gzip.compress(b"")), ("packed", b"")):
            (tmp_path / name).write_bytes(data)
            assert found(tmp_path / name) == []

    def test_lines_longer_than_what_is_read_at_once(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        long = b'{"type":"kv_ready","request_id":"' + b"x" * 1_000_000 + b'"}'
        path.write_bytes(b"\n".join([A, long, B, long]))
        assert [(number, len(event.model_dump_json()) > 1_000_000) for number, event in events(path)] == [
            (1, False),
            (2, True),
            (3, False),
            (4, True),
        ]

    @given(st.lists(st.binary(max_size=8).filter(lambda line: b"\n" not in line)), st.booleans(), st.booleans())
    def test_lines_are_those_of_the_file(self, tmp_path_factory, lines, ended, packed):
        data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
        if data.startswith((b"\xef\xbb\xbf", b"\x1f\x8b")):
            return
        path = tmp_path_factory.mktemp("lines") / "file"
        path.write_bytes(gzip.compress(data) if packed else data)
        expected = data.split(b"\n")
        if not expected[-1]:
            expected.pop()
        with LineSource(path) as source:
            assert list(source) == list(enumerate(expected, 1))
            assert source.torn == (bool(data) and not data.endswith(b"\n"))
            assert source.lines == len(expected)
            assert source.position == path.stat().st_size

    def test_it_says_when_it_is_about_to_read(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes((A + b"\n") * 20_000)
        seen = []
        with LineSource(path) as source:
            source.before_read = lambda: seen.append((source.lines, source.position, source.reading))
            assert len(list(read_events(source))) == 20_000
        assert source.size == path.stat().st_size
        assert seen[0] == (0, 0, True)
        assert seen[-1] == (20_000, source.size, True)
        assert seen == sorted(seen)
        assert not source.reading

    def test_a_pipe_is_read_as_it_comes(self, tmp_path):
        path = tmp_path / "pipe"
        os.mkfifo(path)
        keep = os.open(path, os.O_RDWR)
        try:
            os.write(keep, A + b"\n")
            with LineSource(path) as source:
                assert source.size is None
                assert next(read_events(source))[0] == 1  # though nobody has closed the pipe
        finally:
            os.close(keep)


class TestDamage:
    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            LineSource(tmp_path / "nothing")
        assert caught.value.filename == str(tmp_path / "nothing")

    def test_a_directory(self, tmp_path):
        with pytest.raises(IsADirectoryError):
            LineSource(tmp_path)

    def test_a_disk_that_fails_names_the_file(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.touch()

        def fail(_):
            raise OSError(5, "Input/output error")

        with LineSource(path) as source:
            source._read = fail
            with pytest.raises(OSError, match="Input/output") as caught:
                list(source)
        assert caught.value.filename == str(path)

    def test_gzip_that_is_cut_off(self, tmp_path):
        path = tmp_path / "trace.jsonl.gz"
        path.write_bytes(gzip.compress((A + b"\n") * 3)[:-9])
        with LineSource(path) as source:
            stream = read_events(source, on_bad=pytest.fail)
            assert [next(stream)[0] for _ in range(3)] == [1, 2, 3]
            with pytest.raises(DamagedFile, match=r"trace\.jsonl\.gz:4: the gzip data is cut off here"):
                next(stream)

    def test_gzip_that_is_damaged(self, tmp_path):
        path = tmp_path / "trace.jsonl.gz"
        packed = bytearray(gzip.compress(A + b"\n"))
        packed[-6] ^= 0xFF  # in the checksum
        path.write_bytes(packed)
        with pytest.raises(DamagedFile, match=r":\d: the gzip data is damaged here") as caught:
            events(path)
        assert isinstance(caught.value.__cause__, zlib.error)

    def test_something_else_behind_gzip(self, tmp_path):
        path = tmp_path / "trace.jsonl.gz"
        path.write_bytes(gzip.compress(A + b"\n") + b"more")
        with pytest.raises(DamagedFile, match="damaged"):
            events(path)

    def test_a_name_that_lies(self, tmp_path):
        path = tmp_path / "trace.jsonl.gz"
        path.write_bytes(A + b"\n")
        with pytest.raises(DamagedFile, match=r":1: not gzip data, though the name ends in \.gz"):
            events(path)


BAD = {
    b"nonsense": "this is not JSON: an unknown word at column 2",
    b'{"type":"kv_ready"': "this is not JSON: it ends in the middle of an object at column 18",
    b"[]": "an event must be an object",
    b"{}": "type: it is missing",
    b'{"type":"kv_redy","request_id":"a"}': "type: no event is called 'kv_redy'; did you mean 'kv_ready'?",
    b'{"type":"zzz"}': "type: no event is called 'zzz'; known: parent_registered, companion_registered, ",
    b'{"type":"kv_ready"}': "kv_ready.request_id: it is missing",
    b'{"type":"kv_ready","request_id":""}': "kv_ready.request_id: must not be empty",
    b'{"type":"kv_ready","request_id":"a","at":-1}': "kv_ready.at: must be greater than or equal to 0",
    b'{"type":"kv_ready","request_id":"a","b":1,"c":1,"d":1,"e":1,"f":1}': "kv_ready.d: there is no such "
    "field; and 2 more",
    b'{"type":"parent_registered","parent_id":"a","companions":{"r":"x","r":"y"}}': "r: key 'r' stands twice",
    b'{"type":"kv_ready","request_id":"a","\\u001b[2J\\n":1}': r"kv_ready.\x1b[2J\n: there is no",
    b'{"type":"kv_ready","request_id":"a","' + b"k" * 500 + b'":1}': "kkk...: there is no",
    b'{"type":"kv_ready","request_id":"\xff"}': "not UTF-8 text (byte 34 of the line)",
    b"\xff\xfe{\0": "not UTF-8 text (byte 1 of the line)",
}


class TestBadLines:
    @pytest.mark.parametrize(("line", "why"), BAD.items(), ids=range(len(BAD)))
    def test_file_line_and_reason(self, tmp_path, line, why):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(A + b"\n\n" + line + b"\n" + B + b"\n")
        with LineSource(path) as source:
            stream = read_events(source)
            assert next(stream)[0] == 1
            with pytest.raises(BadLine) as caught:
                next(stream)
        error = caught.value
        assert (error.path, error.line) == (str(path), 3)
        assert why in error.why
        assert str(error) == f"{path}:3: {error.why}"
        assert error.why.isprintable()
        assert len(error.why) < 400

    def test_they_can_be_skipped(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(b"\n".join([A, *BAD, B]) + b"\n")
        bad = []
        good = events(path, on_bad=bad.append)
        assert [number for number, _ in good] == [1, len(BAD) + 2]
        assert [error.line for error in bad] == list(range(2, len(BAD) + 2))

    def test_values_are_not_repeated(self):
        line = b'{"type":"request_failed","request_id":["SECRET"],"error":{"SECRET":1},"stage_id":"SECRET"}'
        with pytest.raises(ValidationError) as caught:
            parse_event(line)
        assert "SECRET" not in reason(caught.value, line)

    def test_a_line_that_is_cut_off(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(A + b"\n" + B[:-5])
        with pytest.raises(BadLine, match=r":2: this is not JSON.*\(the file ends in the middle of this line\)"):
            events(path)


def test_printable():
    assert printable("plain é") == "plain é"
    assert printable("a\nb\x1b[31m") == r"a\nb\x1b[31m"
