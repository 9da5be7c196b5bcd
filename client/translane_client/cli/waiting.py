"""Whom a command waits for."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from translane_client.retry import ANSWERED, ATTEMPTS

_SILENCE = 1.0  # seconds in which nobody wonders why nothing happens


@contextmanager
def waiting_told(say: Callable[[str], None]) -> Iterator[None]:
    """Says whom the block waits for, if its first answer takes a second, and after this second why attempts fail.

    Each sentence is said once.
    """
    handler = _Teller(say)
    before = ATTEMPTS.level
    ATTEMPTS.addHandler(handler)
    ATTEMPTS.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        ATTEMPTS.setLevel(before)
        ATTEMPTS.removeHandler(handler)
        handler.close()


class _Teller(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self._begun = time.monotonic()
        self._told = set[str]()
        self._silence: threading.Timer | None = None  # from the first attempt to the first answer

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if self._silence is None:
            self._silence = threading.Timer(_SILENCE, self._tell, [f"no answer from {text} yet"])
            self._silence.daemon = True
            self._silence.start()
        elif text == ANSWERED:
            self._silence.cancel()
        elif record.levelno == logging.INFO and time.monotonic() - self._begun >= _SILENCE:
            self._silence.cancel()
            self._tell(f"{text}; trying again")

    def close(self) -> None:
        if self._silence:
            self._silence.cancel()
        super().close()

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._say(sentence)
