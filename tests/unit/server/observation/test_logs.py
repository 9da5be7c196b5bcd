"""The log's lines."""

import json
import logging

import pytest

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


@pytest.mark.parametrize("log_format", ["plain", "json"])
def test_every_line_has_what_the_process_is(log, log_format):
    written = log(log_format, engine=2)
    logging.getLogger("translane_server.x").info("hello", extra=data(rows=3))
    found = written()
    assert found.endswith(" hello engine=2 rows=3\n") or json.loads(found)["engine"] == 2
    assert logged_always() == {"engine": 2}


def test_json(log):
    written = log("json")
    logging.getLogger("translane_server.x").info("hello %s", "你", extra=data(rows=3, texts=["a\nb"]))
    line = json.loads(written())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "translane_server.x",
        "message": "hello 你",
        "rows": 3,
        "texts": ["a\nb"],
    }


def test_plain(log):
    written = log("plain")
    logging.getLogger("translane_server.x").info("on %s", "1.2.3.4:5", extra=data(rows=3, name="a b", text="x\ny=1"))
    assert written().split(" ", 1)[1] == 'INFO on 1.2.3.4:5 rows=3 name="a b" text="x\\ny=1"\n'


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_nothing_fakes_a_line(log, log_format):
    written = log(log_format)
    nasty = "a\n2030 INFO \u2028 fake \x1b[31m\r\x85"
    logging.getLogger("translane_server").warning(nasty, extra=data(text=nasty, texts=[nasty]))
    found = written()
    assert len(found.splitlines()) == 1 or log_format == "json"
    assert found.count("\n") == 1
    assert "\x1b" not in found


def test_tracebacks(log):
    for log_format in ("json", "plain"):
        written = log(log_format)
        try:
            raise ValueError("broken")
        except ValueError:
            logging.getLogger("translane_server").exception("failed")
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
