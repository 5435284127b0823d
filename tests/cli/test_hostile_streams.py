"""Streams that are not there, signals, and names that a terminal would obey."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from paths import DATA
from processes import ENV, begin, run, shell
from typer.testing import CliRunner

from cfg_fsm.audit.reading import read_audit, verify
from cfg_fsm.cli import app, course
from cfg_fsm.cli.course import interruptible
from cfg_fsm.cli.signals import Stopped, exit_code, word
from cfg_fsm.lines import LineSource

FULL = Path("/dev/full")
STOPS = [
    (signal.SIGINT, 130, "interrupted"),
    (signal.SIGTERM, 143, "terminated"),
    (signal.SIGHUP, 129, "hung up"),
]
ODD = "\x1b]0;T\x07\x9b31m\u202e\u2028\r\n\x7f"
#: C0 but the line end, C1, marks of direction, separators of lines.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
REGISTERED = b'{"type":"parent_registered","parent_id":"p","companions":{},"at":1.0}\n'
OUTPUT = b'{"type":"parent_output_ready","parent_id":"p","engine_outputs":null,"at":2.0}\n'


def cfg(*args, stdin=None):
    return CliRunner().invoke(app, [str(arg) for arg in args], input=stdin, prog_name="cfg-fsm")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a trace, an audit and a broken one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trace").write_bytes(REGISTERED + OUTPUT)
    assert cfg("run", "trace", "--audit", "audit").exit_code == 0
    (tmp_path / "broken").write_bytes((tmp_path / "audit").read_bytes().replace(b'"at":2.0', b'"at":2.5'))
    return tmp_path


EXPLORE = ("explore", "--companions", "0", "--faults", "none", "--limits", "none")
SAY_SOMETHING = [
    ("run", "trace"),
    ("run", "trace", "--json"),
    ("run", "trace", "--actions", "-"),
    ("run", "trace", "--audit", "-"),
    ("run", "-"),
    ("diagram",),
    ("verify", "audit"),
    ("explain", "p", "--audit", "audit"),
    EXPLORE,
    ("--help",),
    ("--version",),
]
#: And the exit code, which is all that is left where nothing can be said.
FAIL = [
    (("verify", "broken"), 1),
    (("verify", "nothing"), 2),
    (("explain", "nobody", "--audit", "audit"), 1),
    (("run", "nothing"), 2),
    (("run", "--bogus"), 2),
    (("bogus",), 2),
]


class TestStreamsThatAreNotThere:
    @pytest.mark.parametrize("args", SAY_SOMETHING, ids=" ".join)
    def test_no_standard_output(self, folder, args):
        with open("trace", "rb") as stdin:
            done = shell(">&-", *args, stdin=stdin)
        assert done.returncode == 2
        assert done.stderr.endswith(b"cfg-fsm: <stdout>: it is closed\n")
        assert b"Traceback" not in done.stderr

    @pytest.mark.parametrize("args", SAY_SOMETHING[::3], ids=" ".join)
    def test_no_standard_error(self, folder, args):
        with open("trace", "rb") as stdin:
            done = shell("2>&-", *args, stdin=stdin)
        assert done.returncode == 0
        assert done.stdout

    @pytest.mark.parametrize(("args", "code"), FAIL)
    @pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
    def test_a_failure_keeps_its_exit_code(self, folder, args, code, closed):
        done = shell(closed, *args)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr

    @pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
    @pytest.mark.parametrize(("args", "code"), FAIL[:3])
    @pytest.mark.parametrize("closed", ["2> /dev/full", "> /dev/full 2> /dev/full"])
    def test_even_where_the_disk_is_full(self, folder, args, code, closed):
        done = shell(closed, *args)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr

    def test_no_standard_input(self, folder):
        assert shell("<&-", "run", "trace").returncode == 0
        done = shell("<&-", "run", "-")
        assert (done.returncode, done.stderr) == (2, b"cfg-fsm: <stdin>: standard input is closed\n")

    @pytest.mark.parametrize("redirection", ["1< trace", "> /dev/full"])
    def test_a_standard_output_that_takes_nothing(self, folder, redirection):
        done = shell(redirection, "verify", "audit")
        assert done.returncode == 2
        assert done.stderr.startswith(b"cfg-fsm: <stdout>: ")

    def test_files_are_written_in_full_and_get_nothing_that_is_not_theirs(self, folder):
        done = shell("<&- >&- 2>&-", "run", "trace", "--out", "out")
        assert done.returncode == 2
        assert (folder / "trace").read_bytes() == REGISTERED + OUTPUT
        assert verify("out/audit.jsonl") == verify("audit")
        assert len((folder / "out" / "actions.jsonl").read_bytes().splitlines()) == 1
        assert json.loads((folder / "out" / "summary.json").read_text())["stopped"] is None

    def test_what_must_go_to_a_closed_stream_overwrites_nothing(self, folder):
        before = (folder / "audit").read_bytes()
        assert shell(">&-", "run", "trace", "--actions", "-", "--audit", "audit").returncode == 2
        assert (folder / "audit").read_bytes() == before


class TestSignals:
    @pytest.mark.parametrize(("number", "code", "why"), STOPS)
    def test_a_run_ends_with_its_files_and_its_summary(self, tmp_path, number, code, why):
        with begin("run", "-", "--actions", "-", "--out", tmp_path / "out") as job:
            job.stdin.write(REGISTERED + OUTPUT)
            job.stdin.flush()
            job.stdout.readline()
            job.send_signal(number)
            said = job.stderr.read()
            assert job.wait() == code
        assert said.endswith(f"cfg-fsm: {why}\n".encode())
        assert b"2 events" in said
        assert verify(tmp_path / "out" / "audit.jsonl") > 0
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["stopped"] == why

    @pytest.mark.parametrize(("number", "code", "why"), STOPS)
    @pytest.mark.parametrize("extra", [[], ["--limits", "total_s=1", "--drain"]])
    def test_in_the_middle_of_it_audit_and_actions_end_with_the_same_step(
        self, folder, monkeypatch, number, code, why, extra
    ):
        taken = 0
        inner = course.Run._take

        def take(job, actions):
            nonlocal taken
            taken += 1
            if taken == 500:
                signal.raise_signal(number)
            inner(job, actions)

        monkeypatch.setattr(course.Run, "_take", take)
        result = cfg("run", DATA / "omni-large.events.jsonl.gz", "--out", "out", *extra)
        assert result.exit_code == code
        assert result.stderr == f"cfg-fsm: {why}\n"
        records = list(read_audit("out/audit.jsonl"))
        lines = (folder / "out" / "actions.jsonl").read_bytes().splitlines()
        summary = json.loads((folder / "out" / "summary.json").read_text())
        assert sum(record.kind == "action" for record in records) == len(lines) == sum(summary["actions"].values())
        assert sum(record.kind == "event" for record in records) == summary["events"] + summary["ticks"]

    @pytest.mark.parametrize(("number", "code", "why"), STOPS)
    @pytest.mark.parametrize(
        ("args", "module"),
        [
            (("verify", "audit"), "cfg_fsm.cli.audit.verify_chain"),
            (("explain", "p", "--audit", "audit"), "cfg_fsm.cli.audit.story_of"),
            (("diagram",), "cfg_fsm.diagrams.text"),
            (("run", "trace"), "cfg_fsm.cli.run.parse_limits"),
            (EXPLORE, "cfg_fsm.explore.report.text"),
        ],
    )
    def test_every_command_ends_with_the_code_of_the_signal(
        self, folder, monkeypatch, number, code, why, args, module
    ):
        before = list(map(signal.getsignal, (number, signal.SIGINT)))
        monkeypatch.setattr(module, lambda *_: signal.raise_signal(number))
        result = cfg(*args)
        assert result.exit_code == code
        assert result.output == ""
        assert list(map(signal.getsignal, (number, signal.SIGINT))) == before

    @pytest.mark.parametrize(("number", "code", "why"), STOPS)
    def test_explore_shows_what_it_found_by_then(self, monkeypatch, number, code, why):
        monkeypatch.setattr("cfg_fsm.explore.search.Search._reach", lambda *_: signal.raise_signal(number))
        result = cfg(*EXPLORE)
        assert result.exit_code == code
        assert "TRUNCATED by" in result.stdout
        assert result.stderr == f"cfg-fsm: {why}\n"

    @pytest.mark.parametrize(("number", "code", "why"), STOPS)
    @pytest.mark.parametrize("module", ["cfg_fsm.cli.commands", "pydantic"])
    def test_while_it_is_loaded_it_ends_in_silence(self, number, code, why, module):
        program = f"""
import importlib.abc, os, sys
class Press(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Press())
sys.argv = ["cfg-fsm", "verify", "nothing"]
from cfg_fsm.cli import main
main()
"""
        done = subprocess.run([sys.executable, "-c", program], env=ENV, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")

    def test_the_package_is_loaded_by_its_names_alone(self):
        """So that somebody listens before the most of it is loaded."""
        program = "import cfg_fsm.cli, sys; sys.exit(bool(sys.modules.keys() & {'pydantic', 'typer', 'rich'}))"
        assert subprocess.run([sys.executable, "-c", program], env=ENV, check=False).returncode == 0

    def test_the_tables_of_a_terminal_are_not_loaded_for_a_pipe(self):
        program = "import cfg_fsm.cli.commands, sys; sys.exit('rich' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", program], env=ENV, check=False).returncode == 0

    def test_what_was_ignored_stays_ignored(self, tmp_path):
        def nohup():
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

        with begin("run", "-", "--actions", "-", preexec_fn=nohup) as job:
            job.stdin.write(REGISTERED + OUTPUT)
            job.stdin.flush()
            assert job.stdout.readline()
            job.send_signal(signal.SIGHUP)
            job.stdin.write(b'{"type":"parent_finished","parent_id":"p","at":3.0}\n')
            job.stdin.close()
            assert b"release_requests" in job.stdout.readline()
            assert b"3 events" in job.stderr.read()
            assert job.wait() == 0

    def test_the_second_is_an_exception_and_the_third_the_end(self, folder, monkeypatch):
        ended = []
        monkeypatch.setattr(course, "end_at_once", ended.append)
        raised = 0
        with LineSource("trace") as source, interruptible(source):
            signal.raise_signal(signal.SIGTERM)
            for _ in range(2):
                try:
                    signal.raise_signal(signal.SIGTERM)
                except Stopped:
                    raised += 1
        assert (raised, ended) == (2, [signal.SIGTERM])

    def test_while_lines_are_written_the_first_waits(self, folder):
        """A write that a signal breaks off may have been done or not."""
        seen = []

        def read():
            with LineSource("trace") as source, interruptible(source) as check:

                def before_read():
                    source.reading = False
                    if source.position:
                        signal.raise_signal(signal.SIGHUP)
                        seen.append("written")
                    source.reading = True
                    check()

                source.before_read = before_read
                list(source)

        with pytest.raises(Stopped):
            read()
        assert seen == ["written"]

    @pytest.mark.parametrize(("number", "code", "why"), STOPS)
    def test_codes_and_words(self, number, code, why):
        assert (exit_code(Stopped(number)), word(Stopped(number))) == (code, why)
        assert (exit_code(KeyboardInterrupt()), word(KeyboardInterrupt())) == (130, "interrupted")


# -- what a terminal would obey -----------------------------------------------------------------------------------


def terminal(*args):
    """What a terminal gets to see."""
    main, worker = pty.openpty()
    with begin(*args, stdin=worker, stdout=worker, stderr=worker) as job:
        os.close(worker)
        seen = b""
        try:
            while data := os.read(main, 65536):
                seen += data
        except OSError:  # how a terminal ends on Linux
            pass
        finally:
            os.close(main)
    return job.returncode, seen.decode().replace("\r\n", "\n")


EVENTS = [
    {"type": "parent_registered", "parent_id": f"p{ODD}", "companions": {f"r{ODD}": f"c{ODD}"}, "at": 1.0},
    {"type": "parent_output_ready", "parent_id": f"p{ODD}", "engine_outputs": ODD, "at": 2.0},
    {"type": "parent_registered", "parent_id": f"q{ODD}", "companions": {f"r{ODD}": f"d{ODD}"}, "at": 3.0},
    {"type": "request_failed", "request_id": f"d{ODD}", "error": ODD, "error_type": ODD, "at": 4.0},
    {"type": "parent_registered", "parent_id": f"s{ODD}", "companions": {f"r{ODD}": f"e{ODD}"}, "at": 5.0},
    {"type": "requests_aborted", "request_ids": [f"s{ODD}", ODD], "at": 6.0},
]
NAMES = f"n{ODD}"


@pytest.fixture
def odd(folder):
    """Files with names, and a trace and an audit with ids, that a terminal would obey."""
    (folder / NAMES).write_bytes(b'{"type":"kv_ready","k\\u009b":1,"request_id":"\\u001b"}\n')
    lines = (json.dumps(event, ensure_ascii=False) for event in EVENTS)
    (folder / "events").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert cfg("run", "events", "--audit", f"audit{ODD}").exit_code == 0
    return folder


SHOWN = [
    ("run", NAMES),
    ("run", NAMES, "--skip-bad"),
    ("run", "events"),
    ("run", "events", "--json"),
    ("run", "events", "--out", f"out{ODD}"),
    ("run", "events", "--actions", f"nowhere/{ODD}"),
    ("run", NAMES, "--actions", NAMES),
    ("run", f"nothing{ODD}"),
    ("run", "a", NAMES),
    ("run", f"--bogus{ODD}"),
    ("run", "a", "--limits", f"@{NAMES}"),
    ("run", "a", "--limits", f"@nothing{ODD}"),
    ("run", "a", "--limits", f"x{ODD}=1"),
    ("run", "a", "--limits", f"x{ODD}"),
    ("run", "a", "--limits", json.dumps({ODD: 1})),
    ("run", "a", "--limits", f'{{"{NAMES}":1,"{NAMES}":1}}'),
    ("verify", NAMES),
    ("verify", f"audit{ODD}"),
    ("verify", f"nothing{ODD}"),
    ("explain", "p", "--audit", NAMES),
    ("explain", "p", "--audit", f"nothing{ODD}"),
    *(("explain", f"{name}{ODD}", "--audit", f"audit{ODD}") for name in ("p", "c", "q", "s", "nobody")),
    ("diagram", NAMES),
    ("diagram", "-o", NAMES),
    ("diagram", "-o", f"nowhere/{ODD}.dot"),
    ("diagram", "--format", ODD),
    ("explore", "--faults", ODD),
    ("explore", "--companions", ODD),
    (f"bogus{ODD}",),
    (NAMES, NAMES),
]


class TestTerminal:
    @pytest.mark.parametrize("args", SHOWN, ids=range(len(SHOWN)))
    def test_nothing_is_shown_that_it_would_obey(self, odd, args):
        result = cfg(*args)
        assert not OBEYED.findall(result.stdout + result.stderr)
        assert result.exception is None or isinstance(result.exception, SystemExit)

    def test_not_even_in_the_lines_that_are_its_own(self, odd):
        for option in ("--actions", "--audit"):
            code, seen = terminal("run", "events", option, "-")
            assert code == 0
            shown = [line for line in seen.splitlines() if line.startswith("{")]
            assert len(shown) > 5
            assert not OBEYED.findall("".join(shown))
            piped = run(
                "run", "events", option, "-", "--fixed-ts"[: 10 * (option == "--audit")] or "--skip-bad"
            ).stdout
            ids = [line.get("parent_id") for line in map(json.loads, piped.splitlines())]
            assert [line.get("parent_id") for line in map(json.loads, shown)] == ids

    def test_what_the_library_warns_of_is_said_by_the_summary_alone(self, odd):
        lines = (b'{"type":"kv_ready","request_id":"\\u009b","at":%d}\n' % at for at in (9, 1, 10**12))
        done = run("run", "-", "--limits", "total_s=5", input=b"".join(lines))
        assert (done.returncode, done.stderr) == (0, b"")
        assert b"3 events" in done.stdout

    def test_a_tampered_audit_is_told_without(self, odd):
        lines = (odd / f"audit{ODD}").read_text(encoding="utf-8").strip().split("\n")
        for field in ("ts", "reason", "source", "dest", "trigger", "role"):
            changed = []
            for line in lines:
                record = json.loads(line)
                if isinstance(record[field], str) and record["kind"] != "action":
                    record[field] = ODD + record[field]
                changed.append(json.dumps(record, ensure_ascii=False))
            (odd / "tampered").write_text("\n".join(changed) + "\n", encoding="utf-8")
            for name in ("p", "q", "s"):
                result = cfg("explain", f"{name}{ODD}", "--audit", "tampered")
                assert "Result: " in result.stdout
                assert not OBEYED.findall(result.stdout + result.stderr)


class TestDefects:
    """A defect of the program must not look like an answer of it: 1 says that a chain is broken."""

    def test_it_has_an_exit_code_of_its_own(self, folder):
        program = """
import sys
import cfg_fsm.cli.audit
from cfg_fsm.cli import main
def broken(path):
    raise RuntimeError("a defect")
cfg_fsm.cli.audit.verify_chain = broken
sys.argv = ["cfg-fsm", "verify", "audit"]
main()
"""
        done = subprocess.run([sys.executable, "-c", program], env=ENV, capture_output=True, check=False)
        assert done.returncode == 70
        assert done.stderr.endswith(b"RuntimeError: a defect\n")

    def test_too_little_memory_is_none(self, folder, monkeypatch):
        def broken(path):
            raise MemoryError

        monkeypatch.setattr("cfg_fsm.cli.audit.verify_chain", broken)
        result = cfg("verify", "audit")
        assert (result.exit_code, result.stderr) == (2, "cfg-fsm: there is not enough memory\n")
