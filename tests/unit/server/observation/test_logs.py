"""The log's lines, and how they are written to pipes and files that take them late or not at all."""

import json
import logging
import os
import select
import signal
import time
from contextvars import ContextVar
from functools import partial

import pytest

from helpers.file_sizes import largest_file
from translane_server.observation.log_writer import LineHandler
from translane_server.observation.logs import configure_logging, data, logged_always


@pytest.fixture
def log(capfd):
    """Configures the log, and returns what reads the lines since the last reading."""
    root, ours = logging.getLogger(), logging.getLogger("translane_server")
    before = (root.handlers[:], root.level, ours.level)
    root.handlers = []  # configuring closes those it replaces

    def configured(log_format, level="info", **always):
        configure_logging(log_format, level, always=always)
        return lambda: capfd.readouterr().err

    yield configured
    root.handlers[:], root.level, ours.level = before
    logging.captureWarnings(False)


def test_json(log):
    written = log("json", engine=2)
    logging.getLogger("translane_server.x").info("hello %s", "你", extra=data(rows=3, texts=["a\nb"]))
    line = json.loads(written())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "translane_server.x",
        "message": "hello 你",
        "engine": 2,
        "rows": 3,
        "texts": ["a\nb"],
    }
    assert logged_always() == {"engine": 2}


def test_plain(log):
    written = log("plain", engine=2)
    logging.getLogger("translane_server.x").info("on %s", "1.2.3.4:5", extra=data(rows=3, name="a b", text="x\ny=1"))
    assert written().split(" ", 1)[1] == 'INFO on 1.2.3.4:5 engine=2 rows=3 name="a b" text="x\\ny=1"\n'


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_nothing_fakes_a_line(log, log_format):
    written = log(log_format)
    nasty = "a\n2030 INFO \u2028 fake \x1b[31m\r\x85"
    logging.getLogger("translane_server").warning(nasty, extra=data(text=nasty, texts=[nasty]))
    found = written()
    assert len(found.splitlines()) == 1 or log_format == "json"
    assert found.count("\n") == 1
    assert "\x1b" not in found


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_tracebacks(log, log_format):
    written = log(log_format)
    logging.getLogger("translane_server").error("failed", exc_info=ValueError("broken"))
    found = written()
    assert "ValueError: broken" in found
    assert "failed" in found


def test_levels(log):
    written = log("plain", "info")
    logging.getLogger("translane_server").debug("hidden")
    logging.getLogger("grpc._cython").info("noise")
    logging.getLogger("asyncio").debug("noise")
    assert written() == ""
    logging.getLogger("asyncio").warning("trouble")
    assert "trouble" in written()
    written = log("plain", "debug")
    logging.getLogger("translane_server").debug("shown")
    assert "shown" in written()


LONG = "x" * 4000
PIPE = 65536  # what a pipe holds, unless the system is short of memory for pipes [bytes]


def record(message):
    return logging.LogRecord("name", logging.INFO, "path", 1, message, (), None)


@pytest.fixture
def pipe():
    reading, writing = os.pipe()
    yield reading, writing
    for each in (reading, writing):
        os.close(each)


@pytest.fixture
def handler(pipe):
    made = LineHandler(pipe[1])
    yield made
    made.stop()


def read_all(descriptor, until, seconds=10.0):
    """What comes from a pipe until a line holds `until`."""
    os.set_blocking(descriptor, False)
    found, ends = b"", time.monotonic() + seconds
    while until not in found and time.monotonic() < ends:
        try:
            found += os.read(descriptor, 1 << 16)
        except BlockingIOError:
            time.sleep(0.01)
    return found


@pytest.mark.parametrize("way", ["at once", "in background", "in background, and some are made there"])
def test_lines_come_in_order(pipe, handler, way):
    if way != "at once":
        handler.start()
    for number in range(10):
        line = f"line {number} 你"
        if way.endswith("made there") and number % 3 != 1:
            handler.emit_later(partial(record, line))
        else:
            handler.handle(record(line))
        if number == 4:
            time.sleep(0.01)  # the thread has something to do, or waits
    handler.stop()
    assert read_all(pipe[0], b"line 9 ").decode().splitlines() == [f"line {number} 你" for number in range(10)]


def test_a_line_that_is_made_later_has_nothing_of_another_context(pipe, handler):
    """Such as the trace of the call that logs when lines of other calls wait."""
    whose = ContextVar("whose", default="nobody's")

    class Formatter(logging.Formatter):
        def format(self, record):
            return f"{record.msg}: {whose.get()}"

    handler.setFormatter(Formatter())
    handler.emit_later(partial(record, "a call"))
    whose.set("this one's")
    handler.handle(record("the next"))
    assert read_all(pipe[0], b"the next").decode().splitlines() == ["a call: nobody's", "the next: this one's"]


def numbers_that_come(pipe, handler, written):
    """Of lines that are written, those that a reader gets at last, by their numbers. All others are told as missing."""
    found = b""
    while handler._waiting or handler._records:
        found += read_all(pipe[0], b"\n", seconds=0.1)
    handler.handle(record("later"))
    *lines, last = (found + read_all(pipe[0], b"later")).decode().splitlines()
    assert last == "later"
    told = [line for line in lines if line.startswith("some lines")]
    numbers = [int(line.split()[0]) for line in lines if line not in told]
    assert numbers == sorted(set(numbers))
    assert len(numbers) + sum(int(line.rpartition(" ")[2]) for line in told) == written
    return numbers


def test_nobody_waits_for_a_reader_and_missing_lines_are_counted(pipe, handler):
    handler.start()
    began = time.monotonic()
    for number in range(2000):
        handler.handle(record(f"{number} {LONG}"))
    assert time.monotonic() - began < 30  # a plain write waits for ever
    # no more than the pipe and the buffer hold
    assert PIPE // len(LONG) <= len(numbers_that_come(pipe, handler, written=2000)) < 400


def test_lines_that_are_made_later_are_bounded_and_counted(pipe, handler):
    handler.start()
    for number in range(40):
        handler.handle(record(f"{number} {LONG}"))
    while select.select([], [pipe[1]], [], 0)[1]:  # until the thread waits for a reader
        time.sleep(0.01)
    for number in range(40, 20040):
        handler.emit_later(partial(record, f"{number} x"))
    assert len(numbers_that_come(pipe, handler, written=20040)) == 40 + 4096


@pytest.mark.slow
def test_without_a_thread_a_line_waits_a_moment_only(pipe, handler):
    began = time.monotonic()
    for number in range(40):
        handler.handle(record(f"{number} {LONG}"))
    assert time.monotonic() - began < 30
    found = b""
    for _ in range(20):  # what waits goes first
        found += read_all(pipe[0], b"\n39 ", seconds=0.1)
        handler.handle(record("again"))
    lines = (found + read_all(pipe[0], b"never", seconds=0.5)).decode().splitlines()
    assert [int(line.split()[0]) for line in lines if line.endswith(LONG)] == list(range(40))
    assert lines.count("again") == 20


def test_a_line_that_is_longer_than_the_buffer(pipe, handler):
    handler.start()
    handler.handle(record("x" * (3 << 20)))
    found = b""
    while not found.endswith(b"\n"):
        found += read_all(pipe[0], b"\n")
    assert len(found) == (3 << 20) + 1


def test_a_full_disk(tmp_path):
    path = tmp_path / "log"
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with path.open("wb") as file:
        handler = LineHandler(file.fileno())
        try:
            with largest_file(5000):
                for number in range(3):
                    handler.handle(record(f"{number} {LONG}"))
            assert path.stat().st_size == 5000  # the second line has no end
        finally:
            signal.signal(signal.SIGXFSZ, before)
        handler.handle(record("later"))
    first, torn, *rest = path.read_text().splitlines()
    assert first == f"0 {LONG}"
    assert torn.startswith("1 x")
    assert rest == ["some lines of the log are missing, as they could not be written: 2", "later"]


def test_a_process_without_standard_error(log, monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    log("plain")
    logging.getLogger("translane_server").warning("nobody hears it")
    assert len(logging.getLogger().handlers) == 1
