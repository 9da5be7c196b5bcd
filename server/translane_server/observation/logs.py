"""Logs of the server and of its workers.

``extra=data(…)`` adds keys and values to a record, in both formats. The lines of a traced call also have the ids
`trace_id` and `span_id`. The server logs the texts of requests only if the
setting ``log_texts`` is on.

At `info`, calls of the service have a line. At `debug`, all calls have one, with everything that was noted of them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections.abc import Mapping
from functools import lru_cache, partial
from typing import Any, Literal

from translane_server.core.terminal import on_one_line
from translane_server.observation.log_writer import LineHandler
from translane_server.observation.tracing import trace_ids

_ATTRIBUTE = "translane_data"
# A plain value may hold these characters, letters and digits. A value with any other character is quoted as JSON, so
# that no value can fake a line or a key.
_PLAIN = re.compile(r"[\w.:/\-+\[\]%,]+")


def data(**values: Any) -> Mapping[str, Any]:
    """The `extra` of a logging call that adds `values` to the record."""
    return {_ATTRIBUTE: values}


Level = Literal["debug", "info", "warning", "error"]


def configure_logging(
    log_format: Literal["plain", "json"], level: Level, *, always: Mapping[str, Any] | None = None
) -> None:
    """Write the server's records from `level` up, and other packages' warnings, to standard error.

    Every line has the keys and values `always`. No call waits for the reader of standard error; see `log_writer`.
    """
    handler: logging.Handler
    try:
        handler = LineHandler(sys.stderr.fileno())
    except (AttributeError, OSError):  # it is closed, or something without a descriptor stands in its place
        handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(always) if log_format == "json" else PlainFormatter(always))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    change_level(level)
    logging.captureWarnings(True)
    # No line has these, and to find them takes as long as to write the line (docs.python.org/3/howto/logging.html).
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None


def change_level(level: Level) -> str:
    """Log from another level on; return the name of the one before, in upper case."""
    logger = logging.getLogger("translane_server")
    before = logging.getLevelName(logger.level)
    logger.setLevel(level.upper())
    return before


def logged_always() -> Mapping[str, Any]:
    """The keys and values of every line, as `configure_logging` has set them."""
    formatters = [handler.formatter for handler in logging.getLogger().handlers]
    return next((each.always for each in formatters if isinstance(each, _Formatter)), {})


class _Formatter(logging.Formatter):
    """Adds the same keys and values to every line."""

    def __init__(self, always: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.always = dict(always or {})

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        seconds, part = divmod(record.created, 1)
        return f"{_second(int(seconds))}.{int(1000 * part):03d}Z"

    def _data(self, record: logging.LogRecord) -> Mapping[str, Any]:
        return {**self.always, **getattr(record, _ATTRIBUTE, {}), **trace_ids()}


@lru_cache(1)
def _second(created: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))


class PlainFormatter(_Formatter):
    """``2030-01-31T12:00:00.123Z INFO listening on 127.0.0.1:50051 key=value``, then the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        values = self._data(record)
        line = " ".join(
            [self.formatTime(record), record.levelname, on_one_line(record.getMessage())]
            + [f"{key}={_plain(value)}" for key, value in values.items()]
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(_Formatter):
    """One JSON object: `time`, `level`, `logger`, `message`, the record's data, and `exception` if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self._data(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


def _plain(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    if type(value) is int or type(value) is float:
        return repr(value)
    return on_one_line(json.dumps(value, ensure_ascii=False, default=str))


calls_log = logging.getLogger(__name__)

_ALWAYS_TOLD = ("model", "reason", "field", "request_id")  # of what a call's handler has noted


def log_call(
    method: str, code: str, seconds: float, caller: str, size: int, peer: str, noted: Mapping[str, Any]
) -> None:
    """Log the end of a call, with what its handler has `noted`.

    The caller is the holder of its key, or the name under which its calls share their limits. The size is in bytes.
    """
    line: dict[str, Any] = {"method": method, "code": code, "milliseconds": seconds * 1000, "caller": caller}
    if calls_log.isEnabledFor(logging.DEBUG):
        calls_log.handle(_record(logging.DEBUG, time.time(), {**line, "bytes": size, "peer": peer, **noted}))
        return
    for name in _ALWAYS_TOLD:
        if name in noted:
            line[name] = noted[name]
    if (sentences := noted.get("sentences", noted.get("texts"))) is not None:
        line["sentences"] = sentences
    make = partial(_record, logging.INFO, time.time(), {**line, "bytes": size, **trace_ids()})
    if handler := LineHandler.in_background:
        handler.emit_later(make)
    else:
        calls_log.handle(make())


def _record(level: int, ended: float, line: dict[str, Any]) -> logging.LogRecord:
    """The record of a call that ended at this time [seconds of `time.time`]."""
    line["milliseconds"] = round(line["milliseconds"], 3)
    record = calls_log.makeRecord(calls_log.name, level, "", 0, "request", (), None, extra=data(**line))
    record.created = ended
    return record
