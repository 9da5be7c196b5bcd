"""The access log: a line for each call, which tells who asked for how much of what, and how it ended. It has no texts.

At `info`, calls of the service have a line. At `debug`, all calls have one, with everything that was noted of them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from translane_server.observation.logs import data

_log = logging.getLogger(__name__)


def is_logged(*, is_probe: bool) -> bool:
    """Whether a call gets a line. Probes, such as health checks, would drown the others at `info`."""
    return _log.isEnabledFor(logging.DEBUG if is_probe else logging.INFO)


def log_call(
    method: str, code: str, seconds: float, caller: str, size: int, peer: str, noted: Mapping[str, Any]
) -> None:
    """Log the end of a call that `is_logged`.

    Args:
        method: the name of the method.
        code: the status code.
        seconds: how long the call took.
        caller: the holder of its key, or the name under which its calls share their limits.
        size: bytes of the request.
        peer: the other end of the connection.
        noted: what the call's handler has noted.
    """
    line: dict[str, Any] = {"method": method, "code": code, "milliseconds": round(seconds * 1000, 3), "caller": caller}
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("request", extra=data(**line, bytes=size, peer=peer, **noted))
        return
    if "model" in noted:
        line["model"] = noted["model"]
    if (sentences := noted.get("sentences", noted.get("texts"))) is not None:
        line["sentences"] = sentences
    _log.info("request", extra=data(**line, bytes=size))
