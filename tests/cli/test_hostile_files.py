"""A file is a file, whatever it is called: what is read is not overwritten, and nothing is written twice."""

import json
import os
import resource
import subprocess
import threading
from pathlib import Path

import pytest
from paths import DATA
from processes import ENV, run, shell
from typer.testing import CliRunner

from cfg_fsm.audit.reading import read_audit, verify
from cfg_fsm.cli import app

LARGE = DATA / "omni-large.events.jsonl.gz"
FULL = Path("/dev/full")
TRACE = (
    b'{"type":"parent_registered","parent_id":"p","companions":{"r":"c"},"at":1.0}\n'
    b'{"type":"parent_output_ready","parent_id":"p","engine_outputs":null,"at":2.0}\n'
    b'{"type":"companion_output_ready","companion_id":"c","output":null,"at":9.0}\n'
    b'{"type":"parent_finished","parent_id":"p","at":10.0}\n'
)


def cfg(*args, stdin=None):
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, prog_name="cfg-fsm")


def said(result):
    return (result.stderr if isinstance(result.stderr, str) else result.stderr.decode()).strip()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a trace, limits and an audit."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace").write_bytes(TRACE)
    (tmp_path / "limits").write_text('{"total_s": 60}')
    assert cfg("run", "trace", "--audit", "audit").exit_code == 0
    return tmp_path


class TestWhatIsRead:
    @pytest.mark.parametrize("name", ["trace", "./trace", "soft", "hard", "/dev/fd/0", "/proc/self/fd/0"])
    @pytest.mark.parametrize("option", ["--actions", "--audit"])
    def test_the_trace_on_standard_input_is_not_overwritten(self, folder, name, option):
        (folder / "soft").symlink_to("trace")
        (folder / "hard").hardlink_to(folder / "trace")
        with open("trace", "rb") as stdin:
            done = run("run", "-", option, name, stdin=stdin)
        assert done.returncode == 2
        assert said(done) == f"cfg-fsm: {name}: this is the trace; it would be overwritten"
        assert (folder / "trace").read_bytes() == TRACE

    @pytest.mark.parametrize("option", ["--actions", "--audit", "--out"])
    @pytest.mark.parametrize("append", [[], ["--append"]])
    def test_nor_are_the_limits(self, folder, option, append):
        (folder / "out").mkdir()
        (folder / "out" / "audit.jsonl").hardlink_to(folder / "limits")
        name = "out" if option == "--out" else "limits"
        extra = append if option != "--actions" else []
        done = cfg("run", "trace", "--limits", "@out/audit.jsonl", option, name, *extra)
        assert done.exit_code == 2
        assert "these are the limits; they would be overwritten" in said(done)
        assert (folder / "limits").read_text() == '{"total_s": 60}'
        assert os.listdir("out") == ["audit.jsonl"]

    def test_nor_what_explore_reads(self, folder):
        done = cfg("explore", "--limits", "@limits", "--export", "./limits")
        assert done.exit_code == 2
        assert said(done) == "cfg-fsm: limits: these are the limits; they would be overwritten"

    @pytest.mark.parametrize(
        ("name", "args", "what"),
        [
            ("trace", ["run", "trace"], "this is the trace"),
            ("trace", ["run", "trace", "--actions", "-"], "this is the trace"),
            ("limits", ["run", "trace", "--limits", "@limits"], "these are the limits"),
            ("audit", ["explain", "p", "--audit", "audit"], "this is the audit"),
            ("audit", ["verify", "audit"], "this is the audit"),
        ],
    )
    def test_standard_output_is_not_added_to_what_is_read(self, folder, name, args, what):
        before = (folder / name).read_bytes()
        done = shell(f">> {name}", *args)
        assert done.returncode == 2
        assert said(done).startswith(f"cfg-fsm: {name}: {what}; ")
        assert said(done).endswith("would be written to, since standard output goes there")
        assert (folder / name).read_bytes() == before

    @pytest.mark.parametrize("trace", ["-", "/dev/stdin", "limits"])
    def test_the_limits_are_no_trace(self, folder, trace):
        with open("limits", "rb") as stdin:
            done = run("run", trace, "--limits", "@/dev/stdin", stdin=stdin)
        assert done.returncode == 2
        assert said(done) == "cfg-fsm: /dev/stdin: this is the trace; there are no limits in it"


class TestWhatIsWritten:
    @pytest.mark.parametrize(
        ("redirection", "args"),
        [
            ("> out", ["--actions", "-", "--audit", "out"]),
            ("> out", ["--actions", "/dev/stdout", "--audit", "-"]),
            ("", ["--actions", "/proc/self/fd/1", "--audit", "-"]),
            ("", ["--actions", "out", "--audit", "./out"]),
            ("", ["--actions", "new/../out", "--audit", "link/out"]),
            ("> new/summary.json", ["--out", "new"]),
            ("> new/summary.json", ["--out", "new", "--json"]),
            ("", ["--out", "new", "--actions", "new/summary.json"]),
            ("", ["--out", "new", "--actions", "new/audit.jsonl"]),
        ],
    )
    def test_two_outputs_do_not_go_to_one_place(self, folder, redirection, args):
        (folder / "new").mkdir()
        (folder / "link").symlink_to(".")
        done = shell(redirection, "run", "trace", *args)
        assert done.returncode == 2
        assert "two outputs of the command cannot go to the same place" in said(done)
        assert (folder / "trace").read_bytes() == TRACE
        kept = [path for path in ("out", "new/summary.json") if path not in redirection]
        assert not any(map(os.path.exists, kept)), "what was made for nothing is taken back"

    def test_the_null_device_takes_everything(self, folder):
        done = cfg("run", "trace", "--actions", os.devnull, "--audit", os.devnull)
        assert done.exit_code == 0
        assert "4 events" in done.stdout

    @pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "out"])
    def test_standard_output_by_another_name_is_standard_output(self, folder, name):
        done = shell("> out", "run", "trace", "--actions", name)
        assert done.returncode == 0
        assert b"4 events" in done.stderr
        lines = (folder / "out").read_bytes().splitlines()
        assert [json.loads(line)["type"] for line in lines] == ["forward_parent", "release_requests"]

    def test_and_what_it_has_already_is_kept(self, folder):
        (folder / "out").write_text("kept\n")
        shell(">> out", "run", "trace", "--actions", "/dev/stdout")
        shell(">> out", "diagram", "--format", "dot", "-o", "/dev/stdout")
        text = (folder / "out").read_text()
        assert text.startswith('kept\n{"type":"forward_parent"')
        assert text.endswith("}\n")

    def test_an_audit_goes_on_where_standard_output_is_appended(self, folder):
        once = verify("audit")
        for name in ("-", "/dev/stdout", "audit"):
            assert shell(">> audit", "run", "trace", "--append", "--audit", name).returncode == 0
        assert verify("audit") == 4 * once
        assert (folder / "audit").read_bytes().count(b'"seq":1,') == 4

    def test_nothing_is_mixed_into_what_is_said(self, folder):
        done = shell("2> said", "run", "trace", "--audit", "said")
        assert done.returncode == 2
        assert (
            folder / "said"
        ).read_text() == "cfg-fsm: said: <stderr> goes there, and what is said would be mixed into it\n"

    def test_a_file_may_be_called_as_a_stream_is(self, folder):
        assert cfg("diagram", "-o", "./-", "--format", "dot").output == ""
        assert (folder / "-").read_text().startswith("digraph")
        assert cfg("run", "trace", "--actions", "<stdout>").exit_code == 0
        assert (folder / "<stdout>").read_bytes().count(b"\n") == 2

    def test_a_name_that_is_empty_is_no_folder(self, folder):
        before = sorted(os.listdir("."))
        assert "it is empty; give a directory" in said(cfg("run", "trace", "--out", ""))
        assert cfg("run", "trace", "--actions", "").exit_code == 2
        assert sorted(os.listdir(".")) == before

    def test_if_one_cannot_be_opened_the_others_are_as_they_were(self, folder):
        (folder / "kept").write_text("kept")
        args = ["run", "trace", "--audit", "kept", "--actions", "nowhere/x"]
        assert said(cfg(*args)) == "cfg-fsm: nowhere/x: No such file or directory"
        assert (folder / "kept").read_text() == "kept"
        args = ["run", "trace", "--audit", "new", "--actions", "nowhere/x"]
        assert cfg(*args).exit_code == 2
        assert not (folder / "new").exists()


class TestReadingTwice:
    def test_a_log_out_of_a_pipe_is_told_as_one_out_of_a_file(self, folder):
        os.mkfifo("pipe")
        story = cfg("explain", "p", "--audit", "audit").stdout
        assert "Result: " in story
        data = (folder / "audit").read_bytes()
        for name, stdin in (("pipe", None), ("/dev/stdin", data), ("-", data)):
            if name == "pipe":
                threading.Thread(target=(folder / "pipe").write_bytes, args=(data,)).start()
            assert run("explain", "p", "--audit", name, input=stdin).stdout.decode() == story

    def test_and_so_are_its_breaks_and_its_damage(self, folder):
        lines = (folder / "audit").read_bytes().splitlines(keepends=True)
        data = b"".join([lines[0].replace(b'"at":1.0', b'"at":1.5'), *lines[1:5], b"damage\n"])
        (folder / "audit").write_bytes(data)
        of_file, of_pipe = run("explain", "p", "--audit", "audit"), run("explain", "p", "--audit", "-", input=data)
        assert of_file.returncode == of_pipe.returncode == 2
        assert of_file.stdout == of_pipe.stdout != b""
        assert of_file.stderr.replace(b"audit:", b"<stdin>:") == of_pipe.stderr

    def test_one_that_was_begun_elsewhere_is_read_from_there(self, folder):
        with open("audit", "rb") as stdin:
            os.lseek(stdin.fileno(), len(stdin.readline()), os.SEEK_SET)
            done = run("verify", "-", stdin=stdin)
        assert done.returncode == 1
        assert b"<stdin>:1: the chain is broken: prev is not the hash of nothing" in done.stderr


# -- a disk that is full ----------------------------------------------------------------------------------------


def counts(out):
    """How many actions the audit has, and how many the file of actions."""
    actions = (out / "actions.jsonl").read_bytes().splitlines()
    assert all(map(json.loads, actions))
    return sum(record.kind == "action" for record in read_audit(out / "audit.jsonl")), len(actions)


class TestFullDisk:
    @pytest.mark.parametrize("size", [1000, 20_000, 70_001, 300_000, 1_234_567])
    def test_actions_and_audit_end_with_the_same_step(self, folder, size):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = run("run", LARGE, "--out", "out", preexec_fn=small)
        assert done.returncode == 2
        assert said(done).endswith("cfg-fsm: out/audit.jsonl: File too large")
        of_audit, of_actions = counts(folder / "out")
        assert of_audit == of_actions
        assert (of_audit > 0) == (size > 20_000)
        assert verify("out/audit.jsonl") > 0 or size == 1000
        assert (folder / "out" / "audit.jsonl").stat().st_size > 0.9 * size - 2000

    def test_and_what_was_there_before_is_kept(self, folder):
        before = (folder / "audit").read_bytes()
        size = len(before) + 5000

        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        assert run("run", LARGE, "--append", "--audit", "audit", preexec_fn=small).returncode == 2
        assert (folder / "audit").read_bytes().startswith(before)
        assert verify("audit") > len(before.splitlines())
        assert run("run", "trace", "--append", "--audit", "audit").returncode == 0

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    def test_without_an_audit_nothing_is_done(self, folder):
        done = run("run", LARGE, "--audit", FULL, "--actions", "actions")
        assert done.returncode == 2
        assert said(done) == "cfg-fsm: /dev/full: No space left on device"
        assert (folder / "actions").read_bytes() == b""

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    def test_without_actions_the_audit_is_not_far_ahead(self, folder):
        done = run("run", LARGE, "--actions", FULL, "--audit", "audit")
        assert done.returncode == 2
        assert said(done) == "cfg-fsm: /dev/full: No space left on device"
        assert 0 < verify("audit") < 200
        assert sum(record.kind == "action" for record in read_audit("audit")) < 30

    def test_a_summary_that_does_not_fit_is_not_left_in_pieces(self, folder):
        def small():
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))

        done = run("run", "-", "--out", "out", input=b"", preexec_fn=small)
        assert done.returncode == 2
        assert said(done) == "cfg-fsm: out/summary.json: File too large"
        assert not (folder / "out" / "summary.json").exists()
        assert b"summary.json" not in done.stdout

    def test_a_reader_of_the_audit_who_leaves_is_no_full_disk(self, folder):
        done = subprocess.run(
            ["sh", "-c", '"$@" | head -n 1', "sh", *shell_words("run", LARGE, "--audit", "-", "--out", "out")],
            capture_output=True, check=False, env=ENV,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
        summary = json.loads((folder / "out" / "summary.json").read_text())
        actions = (folder / "out" / "actions.jsonl").read_bytes().splitlines()
        assert len(actions) == sum(summary["actions"].values())
        assert summary["stopped"] == "the reader of standard output went away"


def shell_words(*args):
    import sys

    return [sys.executable, "-m", "cfg_fsm", *map(str, args)]
