"""An output answers for every write."""

import errno
import io
import os
import selectors

import pytest

from cfg_fsm.cli.output import Output
from cfg_fsm.cli.places import place_of


@pytest.fixture
def file(tmp_path):
    with open(tmp_path / "file", "w+b", buffering=0) as raw:
        yield raw


def output(raw, *, append=False, **options):
    made = Output(raw, "name", place_of(raw), owned=True, **options)
    made.begin(append=append)
    return made


def text(raw):
    raw.seek(0)
    return raw.read()


class Weak:
    """A stream that does with each write what the next of ``does`` says."""

    def __init__(self, raw, *does):
        self.raw, self.does = raw, list(does)

    def write(self, data):
        what = self.does.pop(0) if self.does else len(data)
        if isinstance(what, BaseException):
            raise what
        return None if what is None else self.raw.write(data[:what])

    def __getattr__(self, name):
        return getattr(self.raw, name)


def test_lines_wait_until_they_are_asked_for_or_are_many(file):
    out = output(file)
    out.write(b"one\n")
    assert (out.taken, out.waiting, out.written, text(file)) == (4, 4, 0, b"")
    out.flush()
    assert (out.taken, out.waiting, out.written, text(file)) == (4, 0, 4, b"one\n")
    out.write(b"x" * out.block + b"\n")
    assert out.waiting == 0


def test_a_write_of_a_part_goes_on(file):
    out = output(Weak(file, 2, 3))
    out.write(b"one\ntwo\n")
    out.flush()
    assert text(file) == b"one\ntwo\n"


def test_a_stream_that_does_not_block_is_waited_for(file, monkeypatch):
    waits = []

    class Selector(selectors.DefaultSelector):
        def register(self, stream, events, data=None):
            assert events == selectors.EVENT_WRITE

        def select(self, timeout=None):
            waits.append(1)

    monkeypatch.setattr(selectors, "DefaultSelector", Selector)
    out = output(Weak(file, None, 2, None))
    out.write(b"one\n")
    out.flush()
    assert (text(file), len(waits)) == (b"one\n", 2)


@pytest.mark.parametrize("append", [False, True])
def test_when_a_disk_is_full_whole_lines_are_there_and_nothing_waits(file, append):
    file.write(b"before\n")
    out = output(Weak(file, 4, OSError(errno.ENOSPC, "full")), append=append)
    out.write(b"one\ntwo\n")
    out.write(b"three\n")
    with pytest.raises(OSError, match="full") as caught:
        out.flush()
    assert caught.value.filename == "name"
    assert (out.taken, out.waiting, out.written) == (4, 0, 4)
    assert text(file) == b"before\n" * append + b"one\n"
    file.seek(0, os.SEEK_END)
    out.write(b"more\n")
    out.close()


def test_of_a_torn_line_nothing_stays(file):
    out = output(Weak(file, 6, OSError(errno.ENOSPC, "full")))
    out.write(b"one\ntwo\n")
    with pytest.raises(OSError, match="full"):
        out.flush()
    assert text(file) == b"one\n"


@pytest.mark.parametrize(
    ("position", "left"), [(12, b"one\ntwo\nsix\n"), (8, b"one\ntwo\n"), (4, b"one\n"), (0, b"")]
)
def test_what_was_taken_can_be_taken_back(file, position, left):
    out = output(file)
    out.write(b"one\n")
    out.flush()
    out.write(b"two\n")
    out.flush()
    out.write(b"six\n")
    out.cut(position)
    assert out.taken == position
    out.flush()
    assert text(file) == left


def test_a_write_that_a_signal_breaks_off_is_not_done_twice(file):
    out = output(Weak(file, 5, KeyboardInterrupt()))
    out.write(b"one\ntwo\n")
    with pytest.raises(KeyboardInterrupt):
        out.flush()
    assert (out.written, out.waiting) == (5, 3)
    out.flush()
    assert text(file) == b"one\ntwo\n"


def test_for_a_terminal_lines_say_the_same_in_other_letters():
    raw = io.BytesIO()
    out = Output(raw, "name", None, owned=False, escape=True)
    for line in ('{"a":"é 日本"}\n', '{"a":"\x9b31m\u202e\u2028\U000e0001"}\n'):
        out.write(line.encode())
    out.flush()
    first, second = raw.getvalue().decode().splitlines()
    assert first == '{"a":"é 日本"}'
    assert second == r'{"a":"\u009b31m\u202e\u2028\udb40\udc01"}'
