"""Lines of a trace as a hostile client or a sloppy host would write them."""

import gzip
import io
import json
import os
import selectors
import sys
import threading

import pytest
from helpers import done, output, register
from hypothesis import given
from hypothesis import strategies as st
from interrupt import Interruption
from pydantic import ValidationError

from cfg_fsm import Limits, Registry, parse_event
from cfg_fsm.errors import BadLine
from cfg_fsm.lines import MAX_LINE, OVERLONG, LineSource
from cfg_fsm.strict import MAX_DEPTH, NotStrict, loads
from cfg_fsm.trace.reading import read_events, reason
from cfg_fsm.trace.run import ActionWriter, run_trace
from cfg_fsm.trace.summary import render

A = b'{"type":"kv_ready","request_id":"a"}'
PAYLOADS = (
    b'{"type":"parent_output_ready","parent_id":"p","engine_outputs":%b}',
    b'{"type":"parent_output_ready","parent_id":"p","engine_outputs":null,"context":%b}',
    b'{"type":"companion_output_ready","companion_id":"c","output":%b}',
)


def refusal(line):
    """Why the line is no event."""
    with pytest.raises(ValidationError) as caught:
        parse_event(line)
    return reason(caught.value, line if isinstance(line, bytes) else line.encode())


class TestNumbers:
    @pytest.mark.parametrize("shape", PAYLOADS)
    @pytest.mark.parametrize(
        "number",
        [
            b"NaN",
            b"Infinity",
            b"-Infinity",
            b"1e999",
            b"-1E+400",
            b"10e308",
            b"1" + b"0" * 400 + b".5",
            b"1" * 5000,
        ],
    )
    @pytest.mark.parametrize("around", [b"%b", b"[1.5,%b]", b'{"a":%b}', b'[[{"a":["x",{"b":%b}]}]]'])
    def test_one_that_is_not_finite_or_too_long_is_refused_wherever_it_stands(self, shape, number, around):
        assert refusal(shape % (around % number))

    @pytest.mark.parametrize("shape", PAYLOADS)
    @pytest.mark.parametrize(
        "value", [b'"NaN"', b'"1e999"', b"1e308", b"1e-999", b"1" * 400, b'{"Infinity":"1e999"}']
    )
    def test_others_are_let_in(self, shape, value):
        parse_event(shape % value)

    def test_a_text_is_read_as_bytes_are(self):
        line = (PAYLOADS[2] % b'{"a":1e999}').decode()
        assert (
            refusal(line)
            == refusal(line.encode())
            == refusal(line.encode())
            == "a number is NaN, Infinity, or beyond what a float holds"
        )

    def test_payloads_of_python_are_written_as_null(self):
        odd = {"a": [float("nan"), {"b": float("inf")}], "c": -float("inf"), "d": 1.5}
        stream = io.BytesIO()
        writer = ActionWriter(stream)
        registry = Registry()
        registry.dispatch_many([register("p", {"r": "c"}), done("c", odd)])
        for action in registry.dispatch(output("p", odd, context=odd)).actions:
            writer(action)
        found = loads(stream.getvalue())
        assert found["engine_outputs"] == {"a": [None, {"b": None}], "c": None, "d": 1.5}
        assert found["companion_outputs"] == [found["context"]] == [found["engine_outputs"]]


class TestKeys:
    @pytest.mark.parametrize(
        ("line", "key"),
        [
            (b'{"type":"requests_aborted","request_ids":["a"],"request_ids":["b"]}', "request_ids"),
            (b'{"type":"kv_ready","type":"kv_ready","request_id":"a"}', "type"),
            (b'{"type":"kv_ready","request_id":"a","request_id":"a"}', "request_id"),
            (b'{"type":"kv_ready","request_id":"a","request\\u005fid":"b"}', "request_id"),
            (b'{"type" :"kv_ready","type":"kv_ready","request_id":"a"}', "type"),
            (b'{"type"\t:"kv_ready","type"\t:"kv_ready","request_id":"a"}', "type"),
            (b'{"type":"kv_ready","request_id":":\\":","request_id":"a"}', "request_id"),
            (b'{"type":"clock_ticked","at":1,"at":2}', "at"),
            (b'{"type":"request_failed","request_id":"a","error":"x: y","error":"z"}', "error"),
            (b'{"type":"parent_registered","parent_id":"p","companions":{"r":"a","r":"b"}}', "r"),
            (b'{"type":"parent_registered","parent_id":"p","limits":{"total_s":1,"total_s":9}}', "total_s"),
            (b'{"type":"parent_registered","parent_id":"p","limits":{"total_s":1},"limits":null}', "limits"),
            *((shape % b'{"k":1,"k":2}', "k") for shape in PAYLOADS),
            *((shape % b'[{"a":"x: y","l":[{"k":1,"k":{}}]}]', "k") for shape in PAYLOADS),
            (PAYLOADS[2] % b'{"a":{"k":1},"b":{"k":1,"k":2}}', "k"),
        ],
    )
    def test_one_that_stands_twice_is_refused_in_every_object(self, line, key):
        assert refusal(line) == refusal(line.decode()) == f"{key}: key '{key}' stands twice"

    @pytest.mark.parametrize(
        "line",
        [
            b'{ "type" : "kv_ready" , "request_id" : "a" }',
            b'{"type":"kv_ready","request_id":"a:b"}',
            b'{"type":"kv_ready","request_id":"\\":\\":"}',
            b'{"type":"kv_ready","request_id":":"}',
            b'{"type":"request_failed","request_id":"a","error":"File \\"x\\": no : such"}',
            b'{"type":"parent_registered","parent_id":"p","companions":{"p":"q","type":"r"},"limits":{"total_s":1}}',
            PAYLOADS[0] % b'{"type":"type","a":{"type":1},"b":[{"a":1},{"a":1}]}',
            PAYLOADS[2] % b'[{"a : b":"\\" :"},[[{"a":{}}]],1.5,"x:"]',
        ],
    )
    def test_whatever_stands_once_in_its_object_is_let_in(self, line):
        assert parse_event(line) == parse_event(line.decode()) == parse_event(json.loads(line))

    VALUES = st.recursive(
        st.none()
        | st.booleans()
        | st.floats(allow_nan=False, allow_infinity=False)
        | st.text(max_size=4, alphabet='a": \\{'),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2, alphabet='a":'), inner, max_size=3)
        ),
        max_leaves=12,
    )

    @given(VALUES, st.sampled_from([(",", ":"), (", ", ": "), (" ,", " : ")]))
    def test_every_payload_that_json_can_tell_is_let_in(self, value, separators):
        text = json.dumps(
            {"type": "companion_output_ready", "companion_id": "c", "output": value}, separators=separators
        )
        assert parse_event(text.encode()).output == parse_event(text).output == value

    @given(VALUES, VALUES, st.text(max_size=2, alphabet='a":'))
    def test_and_none_with_a_key_that_stands_twice(self, one, other, key):
        pairs = ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for value in (one, other))
        line = b'{"type":"companion_output_ready","companion_id":"c","output":[{%b}]}' % pairs.encode()
        assert "stands twice" in refusal(line)

    @pytest.mark.parametrize("name", ["companions", "limits", "extra"])
    def test_the_refusal_is_short_however_long_the_key(self, name):
        key = b"k" * 1_000_000
        value = {"companions": b'"c"', "limits": b"1"}.get(name, b"1")
        line = b'{"type":"parent_registered","parent_id":"p","%b":{"%b":%b,"%b":%b}}'
        line %= name.encode(), key, value, key, value
        why = refusal(line)
        assert len(why) < 300
        with pytest.raises(ValidationError) as caught:
            parse_event(PAYLOADS[2] % (b'{"%b":1,"%b":2}' % (key, key)))
        assert len(str(caught.value)) < 1000


class TestDepth:
    @pytest.mark.parametrize("shape", PAYLOADS)
    @pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")])
    def test_a_payload_may_be_nested_so_deep_and_no_deeper(self, shape, begin, end):
        most = (
            (MAX_DEPTH - 1) // begin.count(b"[")
            if begin == b"["
            else (MAX_DEPTH - 1) // (2 if b"[" in begin else 1)
        )
        parse_event(shape % (begin * most + b"1" + end * most))
        for more in (most + 1, most + 100, 100_000):
            why = refusal(shape % (begin * more + b"1" + end * more))
            assert "nested" in why
            assert len(why) < 200

    def test_the_actions_of_the_deepest_can_be_written(self):
        deep = b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1)
        registry, stream = Registry(), io.BytesIO()
        registry.dispatch_many([register("p", {"r": "c"}), parse_event(PAYLOADS[2] % deep)])
        for action in registry.dispatch(parse_event(PAYLOADS[0] % deep)).actions:
            ActionWriter(stream)(action)
        assert json.loads(stream.getvalue())["companion_outputs"]

    @pytest.mark.parametrize("field", ["request_id", "at", "life", "more"])
    def test_other_fields_are_refused_without_a_recursion(self, field):
        assert refusal(b'{"type":"kv_ready","request_id":"a","%b":%b}' % (field.encode(), b"[" * 100_000))

    def test_a_text_as_loads_reads_it(self):
        assert loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
        for text in (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), b'{"a":[' * 60, b"[" * 1_000_000):
            with pytest.raises(NotStrict, match="nested more than 100 deep"):
                loads(text)
        assert len(loads(b'["' + b'[\\"{\\\\' * 200 + b'"]')) == 1


class TestWhatARefusalCosts:
    """A line that is no event costs what it is long, and not a kilobyte for each thing that is wrong with it."""

    MANY = 40_000
    LINES = [
        b'{"type":"kv_ready","request_id":"a",' + b",".join(b'"k%d":1' % n for n in range(MANY)) + b"}",
        b'{"type":"requests_aborted","request_ids":[' + b"1," * MANY + b"1]}",
        b'{"type":"requests_aborted","request_ids":[' + b'"",' * MANY + b"1]}",
        b'{"type":"parent_registered","parent_id":"p","companions":{'
        + b",".join(b'"k%d":1' % n for n in range(MANY))
        + b"}}",
        b'{"type":"parent_registered","parent_id":"p","limits":{'
        + b",".join(b'"k%d":1' % n for n in range(MANY))
        + b"}}",
    ]

    @pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
    def test_it_names_few_of_its_faults(self, line):
        with pytest.raises(ValidationError) as caught:
            parse_event(line)
        assert caught.value.error_count() < 5
        assert len(reason(caught.value, line)) < 300

    def test_the_good_ones_of_their_size_are_let_in(self):
        ids = [f"c{number}" for number in range(self.MANY)]
        aborted = json.dumps({"type": "requests_aborted", "request_ids": ids})
        assert len(parse_event(aborted).request_ids) == self.MANY
        registered = {
            "type": "parent_registered",
            "parent_id": "p",
            "companions": dict(zip(ids, ids, strict=True)),
        }
        assert len(parse_event(json.dumps(registered).encode()).companions) == self.MANY

    def test_a_role_that_stands_twice_is_found_in_one_pass(self):
        def lines_run(count):
            roles = ",".join(f'"r{number}":"c{number}"' for number in [*range(count), count - 1])
            with Interruption() as counted:
                assert "stands twice" in refusal(
                    b'{"type":"parent_registered","parent_id":"p","companions":{%b}}' % roles.encode()
                )
            return counted.lines

        assert lines_run(4000) < 2.5 * lines_run(2000)


class TestLongLines:
    def lines(self, path, most):
        with LineSource(path, max_line=most) as source:
            found = [("over" if line is OVERLONG else line) for _, line in source]
            assert source.lines == len(found)
            return found

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    @pytest.mark.parametrize("size", [10, 700_000])
    @pytest.mark.parametrize("ended", [b"", b"\n"])
    def test_they_are_passed_over_and_counted(self, tmp_path, pack, size, ended):
        path = tmp_path / "lines"
        short, exact, long = b"a" * (size // 2), b"b" * size, b"c" * (size + 1)
        path.write_bytes(pack(b"\n".join([short, long, exact, b"", long, long * 3, short, long]) + ended))
        assert self.lines(path, size) == [short, "over", exact, b"", "over", "over", short, "over"]

    def test_a_line_of_blanks_is_no_blank_line(self, tmp_path):
        path = tmp_path / "trace"
        path.write_bytes(A + b" " * MAX_LINE + b"\n" + b" " * (MAX_LINE + 1) + b"\n" + A + b" " * 10 + b"\n")
        with LineSource(path) as source:
            bad = []
            assert [number for number, _ in read_events(source, bad.append)] == [3]
            assert [error.line for error in bad] == [1, 2]
            assert bad[0].why == "the line is longer than 16 MiB"

    def test_they_are_refused_before_their_end_which_may_never_come(self):
        read, write = os.pipe()
        taken = []

        def endless():
            try:
                while True:
                    taken.append(os.write(write, b"x" * (1 << 20)))
            except BrokenPipeError:
                os.close(write)

        writer = threading.Thread(target=endless)
        writer.start()
        with pytest.raises(BadLine, match="the line is longer than 16 MiB"):
            run_trace(f"/dev/fd/{read}")
        os.close(read)
        writer.join()
        assert sum(taken) < MAX_LINE + (4 << 20)

    def test_a_small_file_that_inflates_to_one_line_is_not_taken_in(self, tmp_path, monkeypatch):
        path = tmp_path / "trace.gz"
        with gzip.open(path, "wb", 1) as file:
            for _ in range(200):
                file.write(b"x" * (1 << 20))
        assert path.stat().st_size < 4 << 20
        held = []
        inner = LineSource._data
        monkeypatch.setattr(LineSource, "_data", lambda source: (held.append(len(c)) or c for c in inner(source)))
        with LineSource(path) as source, pytest.raises(BadLine, match="longer than 16 MiB"):
            list(read_events(source))
        assert sum(held) < MAX_LINE + (4 << 20)
        assert max(held) <= 1 << 20


class TestStreams:
    def test_one_that_does_not_block_is_waited_for(self, monkeypatch):
        read, write = os.pipe()
        os.set_blocking(read, False)
        parts = [A[:9], A[9:] + b"\n", A + b"\n"]
        waits = []

        class Selector(selectors.DefaultSelector):
            def select(self, timeout=None):
                """While it waits, the other program goes on."""
                waits.append(len(parts))
                if parts:
                    os.write(write, parts.pop(0))
                else:
                    os.close(write)
                return super().select(timeout)

        monkeypatch.setattr(selectors, "DefaultSelector", Selector)
        with open(read) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            with LineSource("-") as source:
                assert len(list(read_events(source))) == 2
        assert waits == [3, 2, 1, 0]

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_a_byte_order_mark_is_passed_over(self, tmp_path, pack):
        path = tmp_path / "trace"
        path.write_bytes(pack(b"\xef\xbb\xbf" + A + b"\n"))
        assert run_trace(path).events == 1

    def test_between_two_blocks_of_inflated_data_there_is_time_for_a_signal(self, tmp_path):
        path = tmp_path / "trace.gz"
        path.write_bytes(gzip.compress(b"\n" * (8 << 20)))
        asked = []
        with LineSource(path, before_read=lambda: asked.append(1)) as source:
            assert list(read_events(source)) == []
        assert len(asked) >= 8

    def test_other_encodings_are_named_for_what_they_are(self, tmp_path):
        path = tmp_path / "trace"
        path.write_bytes(A.decode().encode("utf-16"))
        with pytest.raises(BadLine, match="not UTF-8 text"):
            run_trace(path)


def test_names_of_files_are_shown_without_what_a_terminal_obeys(tmp_path):
    path = tmp_path / "n\x1b[31m\x9b\u202e\n"
    path.write_bytes(b"x\n")
    summary = run_trace(path, skip_bad=True)
    for terminal in (False, True):
        shown = render(summary, terminal)
        assert "\x9b" not in shown
        assert "\u202e" not in shown
        assert r"n\x1b[31m\x9b\u202e\n:1:" in "".join(line.strip() for line in shown.splitlines())


def test_what_a_client_calls_itself_does_not_make_the_summary_wide(tmp_path):
    path = tmp_path / "trace"
    long = "x" * 1_000_000
    companions = {f"r{number}": f"c{number}" for number in range(5000)}
    events = [
        {"type": "parent_registered", "parent_id": long, "companions": companions},
        {"type": "parent_registered", "parent_id": long + "y", "companions": {}},
        {"type": "request_failed", "request_id": long + "y", "error": "z"},
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    summary = run_trace(path, limits=Limits(max_companions_per_parent=None))
    for terminal in (False, True):
        text = render(summary, terminal)
        assert len(text) < 6000
        assert "and 4,990 more" in " ".join(text.split()) or terminal
    assert summary.to_dict()["live"]["oldest"][0]["missing"] == companions


def test_a_name_that_is_no_text_makes_no_json_that_is_none(tmp_path):
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    with open(path, "wb") as file:
        file.write(b"x\n")
    summary = run_trace(os.fsdecode(path), skip_bad=True)
    assert r"\udcff\udcfe:1:" in summary.bad_lines["first"][0]
    assert loads(json.dumps(summary.to_dict()).encode())["bad_lines"]["count"] == 1
