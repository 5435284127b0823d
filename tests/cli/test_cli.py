"""The command line, as its users meet it."""

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from paths import DATA
from typer.testing import CliRunner

import cfg_fsm
from cfg_fsm import Limits, diagrams
from cfg_fsm.audit.reading import read_audit, verify
from cfg_fsm.cli import app
from cfg_fsm.cli.course import interruptible
from cfg_fsm.cli.limits import parse_limits
from cfg_fsm.errors import MissingExtra
from cfg_fsm.lines import LineSource
from cfg_fsm.trace.run import run_trace
from cfg_fsm.trace.summary import render

SAMPLE = resources.files("cfg_fsm") / "samples" / "omni-small.events.jsonl"
LARGE = DATA / "omni-large.events.jsonl.gz"
FULL = Path("/dev/full")

P = b'{"type":"parent_registered","parent_id":"p","companions":{"r":"c"},"at":1.0}\n'
O = b'{"type":"parent_output_ready","parent_id":"p","engine_outputs":null,"at":2.0}\n'  # noqa: E741
C = b'{"type":"companion_output_ready","companion_id":"c","output":null,"at":9.0}\n'
F = b'{"type":"parent_finished","parent_id":"p","at":10.0}\n'


def cfg(*args, stdin=None):
    """Run the command in this process."""
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, prog_name="cfg-fsm")


def process(*args, **options):
    """Run the command in a process of its own."""
    env = {**os.environ, "PYTHONPATH": str(Path(cfg_fsm.__file__).parents[1]), "PYTHONUNBUFFERED": ""}
    for name in ("stdin", "stdout", "stderr"):
        options.setdefault(name, subprocess.PIPE)
    return subprocess.Popen([sys.executable, "-m", "cfg_fsm", *map(str, args)], env=env, **options)


def fails(code, *args, stdin=None):
    """The command ends with ``code``; what it said on standard error, on one line."""
    result = cfg(*args, stdin=stdin)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return " ".join(result.stderr.split())


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_bytes(P + O + C + F)
    return path


class TestHelp:
    def test_of_the_whole(self):
        result = cfg("--help")
        assert result.exit_code == 0
        for word in (
            "run",
            "diagram",
            "explain",
            "verify",
            "--version",
            "cfg-fsm run --sample",
            "Exit codes",
            "a broken chain",
            "130",
        ):
            assert word in result.stdout

    @pytest.mark.parametrize(
        ("command", "words"),
        [
            (
                "run",
                [
                    "[TRACE]",
                    "--limits",
                    "deferred_s=30",
                    "tombstone_s",
                    "--skip-bad",
                    "overwritten",
                    "--drain",
                    "--fixed-ts",
                ],
            ),
            ("diagram", ["parent, companion or coupling", "mermaid", "svg", "--output"]),
            ("explain", ["ID", "--audit", "what it is waiting for", "If the chain of the log is broken"]),
            ("verify", ["FILE", "Check the chain", "cut off at the end do not show"]),
        ],
    )
    def test_of_each_command(self, command, words):
        result = cfg(command, "-h")
        assert result.exit_code == 0
        for word in [*words, "Example", "Exit codes"]:
            assert word in " ".join(result.stdout.split())

    def test_nothing_asked_shows_it(self):
        assert "Commands:" in cfg().output

    def test_version(self):
        assert cfg("--version").stdout == f"cfg-fsm {cfg_fsm.__version__}\n"

    @pytest.mark.parametrize("args", [["bogus"], ["run", "--bogus"], ["explain"], ["explain", "x"]])
    def test_wrong_usage(self, args):
        assert "Usage:" in fails(2, *args)


class TestRun:
    def test_the_sample(self):
        result = cfg("run", "--sample")
        assert result.exit_code == 0
        assert result.stderr == ""
        assert "\x1b" not in result.stdout
        lines = [line.split() for line in result.stdout.splitlines()]
        for line in ("registered 60", "forwarded 58", "finished 58", "failed 2", "live 0", "at once 43"):
            assert line.split() in lines
        assert ["replica_lost", "1", "chatcmpl-1f229dd06aa8b9e0"] in lines
        assert ["nothing_ended", "2", "180"] in lines
        assert ["wait", "max", "0.994", "s", "chatcmpl-1b35411b72723b9c"] in lines
        assert "498 events, 0 clock ticks played, in" in result.stdout

    def test_out_makes_a_directory(self, tmp_path, trace):
        out = tmp_path / "new" / "out"
        result = cfg("run", trace, "--out", out, "--limits", "total_s=100")
        assert result.exit_code == 0
        assert sorted(path.name for path in out.iterdir()) == ["actions.jsonl", "audit.jsonl", "summary.json"]
        actions = [json.loads(line) for line in (out / "actions.jsonl").read_text().splitlines()]
        assert [action["type"] for action in actions] == ["forward_parent", "release_requests"]
        assert verify(out / "audit.jsonl") == len(list(read_audit(out / "audit.jsonl")))
        summary = json.loads((out / "summary.json").read_text())
        assert summary["parents"]["finished"] == 1
        assert summary["stopped"] is None
        assert f"written: {out}/actions.jsonl, {out}/audit.jsonl, {out}/summary.json" in result.stdout

    def test_files_named_apart_from_the_directory(self, tmp_path, trace):
        cfg("run", trace, "--out", tmp_path / "out", "--actions", tmp_path / "a", "--audit", tmp_path / "b")
        assert [path.name for path in (tmp_path / "out").iterdir()] == ["summary.json"]
        assert (tmp_path / "a").read_bytes().count(b"\n") == 2
        assert verify(tmp_path / "b") > 0

    def test_json(self, trace):
        result = cfg("run", trace, "--json")
        summary = json.loads(result.stdout)
        expected = run_trace(trace).to_dict()
        for name in ("seconds", "events_per_second"):
            del summary[name], expected[name]
        assert summary == {**expected, "stopped": None}

    @pytest.mark.parametrize("pack", [bytes, gzip.compress])
    def test_standard_input(self, pack):
        result = cfg("run", "-", "--json", stdin=pack(P + O))
        assert json.loads(result.stdout)["live"]["oldest"][0]["missing"] == {"r": "c"}

    def test_live_requests_are_shown(self):
        result = cfg("run", "-", "--limits", "start_s=9", stdin=P + O + b'{"type":"clock_ticked","at":5.0}\n')
        assert "3 events, 0 clock ticks played, in" in result.stdout
        lines = [line.split() for line in result.stdout.splitlines()]
        assert "Still live (1 parent and 1 companion), the oldest" in result.stdout
        assert ["p", "deferred", "3.000", "s", "r", "(c)"] in lines

    def test_an_unsealed_group_waits_for_sealing(self):
        result = cfg("run", "-", stdin=b'{"type":"parent_registered","parent_id":"a\\u001b[31m"}\n')
        assert "sealing" in result.stdout
        assert r"a\x1b[31m" in result.stdout

    def test_actions_to_standard_output_move_the_summary(self, trace):
        result = cfg("run", trace, "--actions", "-")
        assert [json.loads(line)["type"] for line in result.stdout.splitlines()] == [
            "forward_parent",
            "release_requests",
        ]
        assert "4 events, 0 clock ticks played, in" in result.stderr

    def test_audit_to_standard_output(self, trace, tmp_path):
        result = cfg("run", trace, "--audit", "-")
        (tmp_path / "audit").write_text(result.stdout)
        assert verify(tmp_path / "audit") > 0
        assert "4 events" in result.stderr

    def test_limits_and_drain(self, trace, tmp_path):
        result = cfg("run", trace, "--limits", "deferred_s=3", "--json")
        summary = json.loads(result.stdout)
        assert summary["failures"]["deferred_deadline"] == {"count": 1, "example": "p"}
        assert summary["ticks"] == 1
        (tmp_path / "short").write_bytes(P + O)
        summary = json.loads(cfg("run", tmp_path / "short", "--limits", "deferred_s=3", "--json").stdout)
        assert summary["parents"]["live"] == 1
        summary = json.loads(
            cfg("run", tmp_path / "short", "--limits", "deferred_s=3", "--json", "--drain").stdout
        )
        assert summary["parents"]["live"] == 0

    def test_files_that_are_there_are_overwritten(self, trace, tmp_path):
        for _ in range(2):
            cfg("run", trace, "--out", tmp_path / "out")
        assert (tmp_path / "out" / "actions.jsonl").read_bytes().count(b"\n") == 2
        once = verify(tmp_path / "out" / "audit.jsonl")
        assert cfg("run", trace, "--out", tmp_path / "out", "--append").exit_code == 0
        assert verify(tmp_path / "out" / "audit.jsonl") == 2 * once
        assert (tmp_path / "out" / "actions.jsonl").read_bytes().count(b"\n") == 2

    def test_what_an_older_run_left_in_the_directory_is_removed(self, trace, tmp_path):
        out = tmp_path / "out"
        for args in (["--actions", tmp_path / "a"], ["--audit", tmp_path / "a"]):
            cfg("run", trace, "--out", out)
            cfg("run", trace, "--out", out, *args)
            assert args[0][2:] + ".jsonl" not in [path.name for path in out.iterdir()]
        cfg("run", trace, "--out", out)
        (out / "other").write_text("kept")
        broken = tmp_path / "broken.jsonl.gz"
        broken.write_bytes(b"no gzip")
        assert cfg("run", broken, "--out", out).exit_code == 2
        assert (out / "other").read_text() == "kept"
        assert (out / "actions.jsonl").read_bytes() == (out / "audit.jsonl").read_bytes() == b""
        assert json.loads((out / "summary.json").read_text())["events"] == 0

    def test_but_not_what_this_run_writes_or_reads_there(self, trace, tmp_path):
        out = tmp_path / "out"
        out.mkdir()
        with (
            open(out / "actions.jsonl", "wb") as stdout,
            process("run", trace, "--out", out, "--actions", "-", stdout=stdout) as job,
        ):
            assert b"4 events" in job.stderr.read()
        assert (out / "actions.jsonl").read_bytes().count(b"\n") == 2
        (tmp_path / "link").symlink_to(out / "audit.jsonl")
        cfg("run", trace, "--out", out, "--audit", tmp_path / "link")
        assert verify(out / "audit.jsonl") > 0
        trace.rename(out / "actions.jsonl")
        args = ("run", out / "actions.jsonl", "--out", out, "--actions", tmp_path / "a")
        assert "this is the trace" in fails(2, *args)
        assert (out / "actions.jsonl").read_bytes() == P + O + C + F

    def test_the_time_of_the_events_gives_the_same_audit_each_time(self, trace, tmp_path):
        for name in ("one", "two"):
            assert cfg("run", trace, "--fixed-ts", "--audit", tmp_path / name).exit_code == 0
        assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
        first, *_, last = read_audit(tmp_path / "one")
        assert (first.ts, last.ts) == ("1970-01-01T00:00:01.000000Z", "1970-01-01T00:00:10.000000Z")

    def test_aborts_are_told_apart_from_failures(self):
        stdin = P + b'{"type":"requests_aborted","request_ids":["p"],"at":2.0}\n'
        lines = cfg("run", "-", stdin=stdin).stdout.splitlines()
        assert "Failures and aborts" in lines
        assert "  aborted by the client        1  p" in lines
        stdin = P + b'{"type":"request_failed","request_id":"p","error":"x"}\n'
        assert "Failures" in cfg("run", "-", stdin=stdin).stdout.splitlines()

    def test_an_audit_that_must_not_be_appended_to(self, trace, tmp_path):
        (tmp_path / "audit").write_text("torn")
        (tmp_path / "actions").write_text("kept")
        args = ("run", trace, "--append", "--audit", tmp_path / "audit", "--actions", tmp_path / "actions")
        assert f"{tmp_path}/audit:1: the last line has no line end" in fails(2, *args)
        assert (tmp_path / "audit").read_text() == "torn"
        assert (tmp_path / "actions").read_text() == "kept"


class TestLimits:
    @pytest.mark.parametrize(
        ("texts", "expected"),
        [
            ([], Limits()),
            (["deferred_s=30,silent_s=5"], Limits(deferred_s=30, silent_s=5)),
            (
                [" deferred_s = 1e1 , max_requests=7 ", "tombstones=0"],
                Limits(deferred_s=10, max_requests=7, tombstones=0),
            ),
            (["tombstone_s=none"], Limits(tombstone_s=None)),
            (['{"deferred_s": 0.5, "start_s": null}'], Limits(deferred_s=0.5)),
        ],
    )
    def test_ways_to_give_them(self, texts, expected):
        assert parse_limits(texts) == expected

    def test_a_file(self, tmp_path):
        (tmp_path / "limits.json").write_text('{"total_s": 9}')
        assert parse_limits([f"@{tmp_path}/limits.json", "start_s=1"]) == Limits(total_s=9, start_s=1)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (
                "defered_s=3",
                "there is no limit 'defered_s'; did you mean 'deferred_s'? the names are: confirm_s, deferred_s",
            ),
            ("zzz=3", "there is no limit 'zzz'; the names are: confirm_s"),
            ("", "it is empty"),
            ("deferred_s", "'deferred_s' is not NAME=VALUE, as in deferred_s=30"),
            ("deferred_s=soon", "deferred_s: must be a number"),
            ("deferred_s=0", "deferred_s: must be greater than 0"),
            ("deferred_s=-1,max_requests=1.5", "greater than 0; max_requests: must be a whole number"),
            ("deferred_s=NaN", "deferred_s: must be a finite number"),
            ("deferred_s=true", "deferred_s: must be a number"),
            ("deferred_s=1,deferred_s=2", "deferred_s is given twice"),
            ("{", "'--limits': the JSON object: this is not JSON: expecting property name"),
            ('{"deferred_s": "3"}', "deferred_s: must be a number"),
        ],
    )
    def test_wrong_ones(self, text, why):
        assert why in fails(2, "run", "--sample", "--limits", text)

    def test_wrong_files(self, tmp_path):
        assert "nothing: No such file" in fails(2, "run", "--sample", "--limits", f"@{tmp_path}/nothing")
        (tmp_path / "list").write_text("[1]")
        assert "list must hold one object" in fails(2, "run", "--sample", "--limits", f"@{tmp_path}/list")

    def test_given_twice(self):
        args = ("run", "--sample", "--limits", "total_s=1", "--limits", '{"total_s":2}')
        assert "total_s is given twice" in fails(2, *args)


class TestBadInput:
    BAD = P + b"\n" + O + b'{"type":"parent_finnished"}\n' + C + F

    def test_the_run_stops_there_and_what_was_done_stands(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(self.BAD)
        result = cfg("run", path, "--out", tmp_path / "out")
        assert result.exit_code == 2
        why = f"{path}:4: type: no event is called 'parent_finnished'; did you mean 'parent_finished'?"
        assert result.stderr == f"cfg-fsm: {why} (--skip-bad goes on after such a line)\n"
        assert "2 events, 0 clock ticks played" in result.stdout
        summary = json.loads((tmp_path / "out" / "summary.json").read_text())
        assert summary["stopped"].startswith(why)
        assert summary["parents"]["live"] == 1
        assert {record.event_seq for record in read_audit(tmp_path / "out" / "audit.jsonl")} == {1, 2}
        assert verify(tmp_path / "out" / "audit.jsonl") > 0

    def test_or_counts_and_goes_on(self, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes(self.BAD)
        result = cfg("run", path, "--skip-bad")
        assert result.exit_code == 0
        assert "Skipped lines (1), the first" in result.stdout
        assert f"  {path}:4: type: no event is called" in result.stdout
        assert "4 events" in result.stdout

    def test_nothing_is_summed_up_if_nothing_was_done(self, tmp_path):
        result = cfg("run", "-", "--out", tmp_path / "out", stdin=b"x\n")
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("cfg-fsm: <stdin>:1: ")
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"]
        assert json.loads(cfg("run", "-", "--json", stdin=b"x\n").stdout)["stopped"]
        assert "Skipped lines (1)" in cfg("run", "-", "--skip-bad", stdin=b"x\n").stdout

    def test_standard_input_has_a_name(self):
        assert "<stdin>:1: this is not JSON: a value is expected at column 1" in fails(2, "run", "-", stdin=b"x\n")

    def test_gzip_that_is_cut_off_cannot_be_skipped(self, tmp_path):
        path = tmp_path / "trace.jsonl.gz"
        path.write_bytes(gzip.compress(P + O)[:-3])
        said = fails(2, "run", path, "--skip-bad")
        assert said == f"cfg-fsm: {path}:3: the gzip data is cut off here"

    def test_no_trace_or_two(self):
        assert "give a TRACE (- for standard input), or --sample" in fails(2, "run")
        assert "or --sample, not both" in fails(2, "run", "x", "--sample")

    def test_append_to_what(self):
        assert "'--append': it needs --audit or --out" in fails(2, "run", "--sample", "--append")
        assert "'--fixed-ts': it needs --audit" in fails(2, "run", "--sample", "--fixed-ts")


class TestFilesThatCannotBeUsed:
    def test_a_trace(self, tmp_path):
        assert fails(2, "run", tmp_path / "x") == f"cfg-fsm: {tmp_path}/x: No such file or directory"
        assert fails(2, "run", tmp_path) == f"cfg-fsm: {tmp_path}: Is a directory"

    def test_outputs(self, tmp_path, trace):
        nowhere = tmp_path / "nowhere" / "x"
        assert fails(2, "run", trace, "--actions", nowhere) == f"cfg-fsm: {nowhere}: No such file or directory"
        assert fails(2, "run", trace, "--audit", nowhere) == f"cfg-fsm: {nowhere}: No such file or directory"
        assert "written plain" in fails(2, "run", trace, "--audit", tmp_path / "x.gz")
        assert fails(2, "run", trace, "--actions", tmp_path) == f"cfg-fsm: {tmp_path}: Is a directory"
        assert fails(2, "run", trace, "--out", trace / "x") == f"cfg-fsm: {trace}/x: Not a directory"

    def test_a_trace_that_is_not_there_overwrites_nothing(self, tmp_path):
        (tmp_path / "actions").write_text("kept")
        fails(2, "run", tmp_path / "x", "--actions", tmp_path / "actions", "--out", tmp_path / "out")
        assert (tmp_path / "actions").read_text() == "kept"
        assert not (tmp_path / "out").exists()

    def test_the_trace_is_not_overwritten(self, trace, tmp_path):
        (tmp_path / "link").symlink_to(trace)
        for name in (trace, tmp_path / "link"):
            assert "this is the trace" in fails(2, "run", trace, "--actions", name)
        assert trace.read_bytes() == P + O + C + F

    def test_two_outputs_in_one_place(self, trace, tmp_path):
        for name in (tmp_path / "x", "-"):
            assert "cannot go to the same place" in fails(2, "run", trace, "--actions", name, "--audit", name)

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    @pytest.mark.parametrize("output", ["--actions", "--audit"])
    def test_a_full_disk_stops_the_run(self, output, caplog):
        result = cfg("run", LARGE, output, FULL)
        assert result.exit_code == 2
        assert result.stderr == "cfg-fsm: /dev/full: No space left on device\n"
        assert "clock ticks" in result.stdout
        assert caplog.text == ""

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    @pytest.mark.parametrize(
        "args",
        [["run", "--sample"], ["run", "--sample", "--actions", "-"], ["--help"], ["--version"], ["diagram"]],
    )
    def test_a_full_disk_behind_standard_output(self, args):
        with FULL.open("wb") as full:
            done = process(*args, stdout=full)
            _, said = done.communicate()
        assert done.returncode == 2
        assert said.endswith(b"cfg-fsm: <stdout>: No space left on device\n")
        assert said.count(b"cfg-fsm: ") == 1

    def test_a_defect_of_the_program_is_no_user_error(self, monkeypatch, trace):
        def broken(*_):
            raise RuntimeError("a defect")

        monkeypatch.setattr("cfg_fsm.trace.run.Run.feed", broken)
        assert isinstance(cfg("run", trace).exception, RuntimeError)


class TestPipes:
    def test_a_reader_that_has_enough(self):
        with process("run", LARGE, "--actions", "-") as job:
            assert json.loads(job.stdout.readline())["type"] == "forward_parent"
            job.stdout.close()
            assert job.stderr.read() == b""
            assert job.wait() == 0

    @pytest.mark.parametrize("output", ["--actions", "--audit"])
    def test_what_was_done_until_then_stands(self, output, trace, tmp_path):
        out = tmp_path / "out"
        cfg("run", trace, "--out", out)
        with process("run", LARGE, output, "-", "--out", out, "--limits", "total_s=0.5") as job:
            job.stdout.readline()
            job.stdout.close()
            assert job.stderr.read() == b""
            assert job.wait() == 0
        summary = json.loads((out / "summary.json").read_text())
        assert summary["stopped"] == "the reader of standard output went away"
        (other,) = (path for path in out.iterdir() if path.name != "summary.json")
        assert other.name != output[2:] + ".jsonl"
        if output == "--actions":
            assert verify(other) > 0
            kinds = [record.kind for record in read_audit(other)]
            assert kinds.count("event") == summary["events"] + summary["ticks"]
        else:
            assert other.read_bytes().count(b"\n") == sum(summary["actions"].values())

    @pytest.mark.parametrize("late", [False, True])
    def test_a_bad_line_counts_if_it_was_reached_before(self, late, tmp_path):
        path = tmp_path / "trace.jsonl"
        path.write_bytes((gzip.decompress(LARGE.read_bytes()) if late else P + O + C) + b"x\n")
        read, write = os.pipe()
        os.close(read)
        for args in (["--actions", "-", "--out", tmp_path / "out"], ["--out", tmp_path / "out"]):
            with process("run", path, *args, stdout=write) as job:
                said = job.stderr.read()
                assert job.wait() == (0 if late and "-" in args else 2)
            assert (b"not JSON" in said) == (job.returncode == 2)
            stopped = json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"]
            assert ("not JSON" in stopped) == (job.returncode == 2)
        os.close(write)

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    def test_a_full_disk_is_an_error_all_the_same(self):
        read, write = os.pipe()
        os.close(read)
        with process("run", LARGE, "--actions", "-", "--audit", FULL, stdout=write) as job:
            os.close(write)
            assert job.stderr.read().endswith(b"cfg-fsm: /dev/full: No space left on device\n")
            assert job.wait() == 2

    @pytest.mark.parametrize("args", [["--help"], ["run", "--sample"], ["diagram", "coupling"], ["--version"]])
    def test_nobody_reads(self, args):
        read, write = os.pipe()
        os.close(read)
        with process(*args, stdout=write) as job:
            os.close(write)
            assert job.stderr.read() == b""
            assert job.wait() == 0

    def test_answers_come_as_soon_as_the_events(self, tmp_path):
        with process("run", "-", "--actions", "-", "--audit", tmp_path / "audit") as job:
            job.stdin.write(P + O + C)
            job.stdin.flush()
            assert json.loads(job.stdout.readline())["type"] == "forward_parent"
            job.stdin.write(F)
            job.stdin.flush()
            assert json.loads(job.stdout.readline())["type"] == "release_requests"
            job.stdin.close()
            assert b"4 events" in job.stderr.read()
            assert job.wait() == 0

    def test_ctrl_c_ends_it_and_leaves_the_files_whole(self, tmp_path):
        with process("run", "-", "--actions", "-", "--out", tmp_path / "out") as job:
            job.stdin.write(P + O + C)
            job.stdin.flush()
            job.stdout.readline()
            job.send_signal(signal.SIGINT)
            said = job.stderr.read()
            assert job.wait() == 130
        assert said.endswith(b"cfg-fsm: interrupted\n")
        assert b"3 events" in said
        assert verify(tmp_path / "out" / "audit.jsonl") > 0
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"] == "interrupted"

    def test_ctrl_c_waits_for_the_end_of_a_step(self, trace):
        def interrupted():
            with LineSource(trace) as source, interruptible(source) as check:
                check()
                signal.raise_signal(signal.SIGINT)
                reached.append("the end of the step")
                check()
                reached.append("the next read")

        reached = []
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == ["the end of the step"]

    @pytest.mark.parametrize("reading", [True, False])
    def test_ctrl_c_at_once_while_a_read_waits_or_when_pressed_again(self, trace, reading):
        def interrupted():
            with LineSource(trace) as source, interruptible(source):
                if not reading:
                    signal.raise_signal(signal.SIGINT)
                source.reading = reading
                signal.raise_signal(signal.SIGINT)
                reached.append("further")

        reached = []
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert reached == []

    def test_ctrl_c_in_the_last_step(self, trace):
        def interrupted():
            with LineSource(trace) as source, interruptible(source):
                signal.raise_signal(signal.SIGINT)

        before = signal.getsignal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert signal.getsignal(signal.SIGINT) is before


class TestTerminal:
    def run(self, *args, **options):
        """What a terminal gets to see as standard output and standard error."""
        main, worker = pty.openpty()
        with process(*args, **{"stdout": worker, "stderr": worker, **options}) as job:
            os.close(worker)
            if job.stdin is not None:
                job.stdin.close()
            seen = b""
            try:
                while data := os.read(main, 65536):
                    seen += data
            except OSError:  # how a terminal ends on Linux
                pass
            finally:
                os.close(main)
        return job.returncode, seen.decode()

    def test_a_bar_for_long_input(self, tmp_path):
        with open(tmp_path / "events", "wb") as file:
            file.write(P + F)
        with open(tmp_path / "events", "rb") as stdin:
            code, seen = self.run("run", "-", stdin=stdin)
        assert code == 0
        assert "\x1b[2K" in seen  # a line that is drawn anew
        assert "registered" in seen

    def test_none_for_short_input_or_when_actions_go_there(self):
        for args in (["--sample"], ["-", "--actions", "-"]):
            _, seen = self.run("run", *args)
            assert "\x1b[2K" not in seen

    def test_a_picture_does_not_go_there(self):
        code, seen = self.run("diagram", "--format", "png")
        assert code == 2
        assert "a PNG does not go to a terminal; give -o FILE" in " ".join(seen.split())

    def test_tables(self):
        text = render(run_trace(SAMPLE), terminal=True)
        assert "chatcmpl-1f229dd06aa8b9e0" in text
        assert "Failures" in text
        assert text.endswith("events/s")


class TestDiagram:
    def test_mermaid_of_the_parent_unless_told_otherwise(self):
        assert cfg("diagram").stdout == diagrams.text("parent", "mermaid")

    @pytest.mark.parametrize("name", diagrams.NAMES)
    @pytest.mark.parametrize("format", ["dot", "mermaid"])
    def test_texts(self, name, format):
        assert cfg("diagram", name, "--format", format).stdout == diagrams.text(name, format)

    def test_a_file_and_the_format_of_its_ending(self, tmp_path):
        for name, format in (("x.dot", "dot"), ("x.mmd", "mermaid"), ("X.GV", "dot")):
            result = cfg("diagram", "coupling", "-o", tmp_path / name)
            assert (result.exit_code, result.output) == (0, "")
            assert (tmp_path / name).read_text() == diagrams.text("coupling", format)
        cfg("diagram", "companion", "-o", tmp_path / "y.svg", "--format", "dot")
        assert (tmp_path / "y.svg").read_text() == diagrams.text("companion", "dot")

    @pytest.mark.parametrize("name", ["x.pdf", "x"])
    def test_an_ending_that_is_not_known(self, name, tmp_path):
        said = fails(2, "diagram", "-o", tmp_path / name)
        assert f"the ending of '{name}' names no format" in said
        assert ".mmd, .mermaid, .dot, .gv, .svg, .png" in said
        assert not (tmp_path / name).exists()
        cfg("diagram", "-o", tmp_path / name, "--format", "dot")
        assert (tmp_path / name).read_text() == cfg("diagram", "-o", "-", "--format", "dot").stdout
        assert cfg("diagram", "-o", "-").stdout == diagrams.text("parent", "mermaid")

    @pytest.mark.parametrize("format", ["svg", "png"])
    def test_pictures(self, format, tmp_path, monkeypatch):
        monkeypatch.setattr(diagrams, "image", lambda name, format: f"{name} as {format}\xff".encode("latin-1"))
        assert cfg("diagram", "companion", "-o", tmp_path / f"x.{format}").exit_code == 0
        assert (tmp_path / f"x.{format}").read_bytes() == f"companion as {format}\xff".encode("latin-1")
        assert cfg("diagram", "--format", format).stdout_bytes == f"parent as {format}\xff".encode("latin-1")

    def test_without_graphviz(self, monkeypatch):
        def image(name, format):
            raise MissingExtra("drawing SVG", extra="render")

        monkeypatch.setattr(diagrams, "image", image)
        assert "pip install 'cfg_fsm[render]'" in fails(2, "diagram", "--format", "svg")

    def test_wrong_names(self, tmp_path):
        assert "'parent', 'companion', 'coupling'" in fails(2, "diagram", "child")
        assert "'mermaid', 'dot', 'svg', 'png'" in fails(2, "diagram", "--format", "pdf")
        assert "nowhere/x.dot: No such file" in fails(2, "diagram", "-o", tmp_path / "nowhere" / "x.dot")


class TestExplain:
    @pytest.fixture
    def audit(self, tmp_path, trace):
        cfg("run", trace, "--audit", tmp_path / "audit.jsonl")
        return tmp_path / "audit.jsonl"

    def test_a_parent_or_a_companion(self, audit):
        for request_id in ("p", "c"):
            result = cfg("explain", request_id, "--audit", audit)
            assert result.exit_code == 0
            assert result.stdout.startswith("parent p, life 1: from 1.000 s")
            assert result.stderr == ""
            assert result.stdout.splitlines()[-1] == (
                "Result: ended at +9.000 s: finished; its bundle was forwarded at +8.000 s; waited 7.000 s for r."
            )

    def test_from_gzip_or_standard_input(self, audit, tmp_path):
        (tmp_path / "audit.gz").write_bytes(gzip.compress(audit.read_bytes()))
        story = cfg("explain", "p", "--audit", audit).stdout
        assert cfg("explain", "p", "--audit", tmp_path / "audit.gz").stdout == story
        assert cfg("explain", "p", "--audit", "-", stdin=audit.read_bytes()).stdout == story

    def test_an_id_that_is_not_there(self, tmp_path):
        cfg("run", "--sample", "--audit", tmp_path / "audit")
        said = fails(1, "explain", "1f229dd06aa8b9e0", "--audit", tmp_path / "audit")
        assert said == (
            "cfg-fsm: no request '1f229dd06aa8b9e0' in this audit; "
            "did you mean 'chatcmpl-1f229dd06aa8b9e0' or 'chatcmpl-1f229dd06aa8b9e0__cfg_text'?"
        )

    def test_a_log_with_a_bad_line_is_told_up_to_there(self, audit):
        lines = audit.read_bytes().splitlines(keepends=True)
        audit.write_bytes(b"".join(lines[:5]) + lines[5][:40])
        result = cfg("explain", "p", "--audit", audit)
        assert result.exit_code == 2
        assert "Result: open when the log ends" in result.stdout
        assert f"{audit}:6: this is not JSON" in result.stderr
        assert "up to there" in result.stderr
        said = fails(2, "explain", "x", "--audit", audit)
        assert f"{audit}:6: this is not JSON" in said
        assert "no request 'x' in this audit" in said

    def test_a_broken_chain_is_a_warning(self, audit):
        story = cfg("explain", "p", "--audit", audit).stdout
        lines = audit.read_bytes().splitlines(keepends=True)
        lines[1] = lines[1].replace(b'"seq":2', b'"seq":3')
        lines[5] = lines[5].replace(b'"seq":6', b'"seq":7')
        warning = f"warning: {audit}:2: the chain is broken: hash does not match the text of the line; from there"
        for changed in (b"".join(lines), b"".join(lines)[:-1]):
            audit.write_bytes(changed)
            for stdin, name in ((None, audit), (changed, "-")):
                result = cfg("explain", "p", "--audit", name, stdin=stdin)
                assert (result.exit_code, result.stdout) == (0, story)
                assert warning.replace(str(audit), "<stdin>" if stdin else str(audit)) in result.stderr
                assert result.stderr.count("\n") == 1
        said = fails(1, "explain", "x", "--audit", audit)
        assert warning in said
        assert "no request 'x'" in said

    def test_what_is_no_audit(self, trace, tmp_path):
        assert "not an audit record" in fails(2, "explain", "p", "--audit", trace)
        assert (
            fails(2, "explain", "p", "--audit", tmp_path / "x")
            == f"cfg-fsm: {tmp_path}/x: No such file or directory"
        )
        assert "Is a directory" in fails(2, "explain", "p", "--audit", tmp_path)


class TestVerify:
    @pytest.fixture
    def audit(self, tmp_path, trace):
        cfg("run", trace, "--audit", tmp_path / "audit.jsonl")
        return tmp_path / "audit.jsonl"

    def test_a_whole_chain(self, audit, tmp_path):
        count = verify(audit)
        for name in (audit, "-"):
            result = cfg("verify", name, stdin=audit.read_bytes())
            assert (result.exit_code, result.output) == (0, f"{count} records, the chain is whole\n")
        (tmp_path / "short.gz").write_bytes(gzip.compress(audit.read_bytes().splitlines(keepends=True)[0]))
        assert cfg("verify", tmp_path / "short.gz").stdout == "1 record, the chain is whole\n"

    @pytest.mark.parametrize(
        ("change", "line", "why"),
        [
            (lambda lines: [lines[0].replace(b'"at":1.0', b'"at":1.5'), *lines[1:]], 1, "hash does not match"),
            (lambda lines: lines[1:], 1, "prev is not the hash of nothing, as in the first line of a log"),
            (lambda lines: [*lines[:3], *lines[4:]], 4, "prev is not the hash of the line before"),
            (lambda lines: [*lines[:3], b"\n", *lines[3:]], 4, "not a whole audit line"),
            (lambda lines: [lines[0][:40]], 1, "not a whole audit line"),
            (lambda lines: [lines[0], lines[1][:-1]], 2, "the last line has no line end"),
        ],
    )
    def test_a_broken_one(self, audit, change, line, why):
        audit.write_bytes(b"".join(change(audit.read_bytes().splitlines(keepends=True))))
        said = fails(1, "verify", audit)
        assert said.startswith(f"cfg-fsm: {audit}:{line}: ")
        assert why in said

    def test_what_is_no_audit(self, trace, tmp_path):
        assert fails(2, "verify", trace) == f"cfg-fsm: {trace}:1: not an audit record"
        assert fails(2, "verify", tmp_path / "x") == f"cfg-fsm: {tmp_path}/x: No such file or directory"
        (tmp_path / "x.gz").write_bytes(gzip.compress(b'{"seq":')[:-3])
        assert "cut off here" in fails(2, "verify", tmp_path / "x.gz")


def test_the_tables_of_a_terminal_are_not_loaded_for_a_pipe():
    code = "import sys, cfg_fsm.cli; sys.exit('rich' in sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(Path(cfg_fsm.__file__).parents[1])}
    assert subprocess.run([sys.executable, "-c", code], env=env, check=False).returncode == 0
