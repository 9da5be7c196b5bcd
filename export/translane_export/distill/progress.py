"""How far the teacher is: sources per second, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tqdm import tqdm

_LOG_SECONDS = 30.0


class Progress:
    """A bar over the sources; where the output is no terminal, a line every half minute. A `with` statement ends it.

    Args:
        done: sources that had outputs before.
        total: all sources.
        log: takes lines for people.
    """

    def __init__(self, done: int, total: int, log: Callable[[str], None]) -> None:
        self._interactive = sys.stderr.isatty()
        self._log = log
        self._first, self._done, self._total = done, done, total
        self._started = self._logged = time.monotonic()
        self._bar = tqdm(total=total, initial=done, unit="source", dynamic_ncols=True, disable=not self._interactive)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._bar.close()

    def add(self, sources: int) -> None:
        """Count `sources` whose outputs are on the disk."""
        self._done += sources
        self._bar.update(sources)
        now = time.monotonic()
        if not self._interactive and now - self._logged >= _LOG_SECONDS:
            self._logged = now
            rate = (self._done - self._first) / (now - self._started)
            left = tqdm.format_interval((self._total - self._done) / rate)
            self._log(f"{self._done:,} of {self._total:,} sources, {rate:,.0f} a second, {left} left")
