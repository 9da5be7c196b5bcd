"""Whom a command waits for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from translane_client.retry import ATTEMPTS

_SILENCE = 1.0
"""Seconds in which nobody wonders why nothing happens."""


@contextmanager
def waiting_told(say: Callable[[str], None]) -> Iterator[None]:
    """Says why attempts of the block fail, each reason once, from the second second on."""
    handler = _Teller(say)
    before = ATTEMPTS.level
    ATTEMPTS.addHandler(handler)
    ATTEMPTS.setLevel(logging.INFO)
    try:
        yield
    finally:
        ATTEMPTS.setLevel(before)
        ATTEMPTS.removeHandler(handler)


class _Teller(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._begun = time.monotonic()
        self._told = set[str]()

    def emit(self, record: logging.LogRecord) -> None:
        reason = record.getMessage()
        if reason not in self._told and time.monotonic() - self._begun >= _SILENCE:
            self._told.add(reason)
            self._say(f"{reason}; trying again")
