"""Downloads a file: in several attempts, each of which goes on where the one before ended."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from io import SEEK_END
from typing import BinaryIO, NamedTuple

from translane_server.store.problems import DownloadError, PassingError, RangeError, StoppedError
from translane_server.store.transfers import Link, chunks, first_byte, opened
from translane_server.store.watch import Watch

ATTEMPTS = 5
_LONGEST_PAUSE = 10.0  # between two attempts [seconds]

_log = logging.getLogger(__name__)


class Patience(NamedTuple):
    """How long downloads may take.

    Attributes:
        silence: longest time without a byte [seconds].
        beginning: time of an attempt beside that of the bytes [seconds].
        rate: the least rate of the bytes [bytes/s].
        pause: mean time before the second attempt; each pause is twice as long as the one before [seconds].
    """

    silence: float = 20.0
    beginning: float = 60.0
    rate: float = 64 * 1024
    pause: float = 0.5


class Bounds(NamedTuple):
    """How large a file may be.

    Attributes:
        size: its exact size [bytes]; None if the size is not known.
        most: its largest size [bytes].
    """

    size: int | None
    most: int

    def check(self, size: int) -> None:
        """Check a size that the server names, or that has arrived. Raises DownloadError."""
        if self.size is not None and size != self.size:
            raise DownloadError(f"it has {size:,} bytes there, and the manifest lists {self.size:,}")
        if size > self.most:
            raise DownloadError(f"it has {size:,} bytes there, at most {self.most:,} are accepted")


def download(
    title: str, link: Callable[[], Link], file: BinaryIO, bounds: Bounds, stop: threading.Event, patience: Patience
) -> None:
    """Download into `file`. Of a file of known size, go on after the bytes that `file` has.

    After an error `file` has what has arrived.

    Args:
        title: says in the log what is downloaded.
        link: returns the address; is called for each attempt, because an address may be valid for some time only.
        file: is open for reading and writing.
        bounds: the size of the file.
        stop: is set when nobody wants the file any more.
        patience: how long it may take.

    Raises:
        DownloadError: the file has another size, is refused, or does not come.
        OSError: `file` cannot be written.
    """
    problem: DownloadError = StoppedError()
    for attempt in range(ATTEMPTS):
        if attempt:
            _log.info("%s: %s; trying again", title, problem)
            pause = min(patience.pause * 2 ** (attempt - 1), _LONGEST_PAUSE)
            stop.wait(pause * random.uniform(0.5, 1.5))  # noqa: S311  so that many servers do not come at once
        if stop.is_set():
            raise StoppedError
        try:
            _attempt(link(), file, bounds, stop, patience)
        except RangeError as error:
            file.truncate(0)
            problem = error
        except PassingError as error:
            problem = error
        else:
            return
    raise DownloadError(f"{problem}, {ATTEMPTS} times")


def _attempt(link: Link, file: BinaryIO, bounds: Bounds, stop: threading.Event, patience: Patience) -> None:
    have = file.seek(0, SEEK_END)
    if bounds.size is None or have > bounds.size:
        have = 0
    if have and have == bounds.size:
        return
    seconds = patience.beginning + (bounds.most - have) / patience.rate
    with Watch(seconds, stop) as watch, opened(link, have, watch, patience.silence) as response:
        got = first_byte(response, have)
        promised = None if response.length is None else got + response.length
        if promised is not None:
            bounds.check(promised)
        file.seek(got)
        file.truncate()
        for chunk in chunks(response, watch):
            got += len(chunk)
            if got > bounds.most:
                raise DownloadError(f"it has more than {bounds.most:,} bytes there")
            file.write(chunk)
    whole = bounds.size if bounds.size is not None else promised
    if whole is not None and got < whole:
        raise PassingError(f"it ended after {got:,} of {whole:,} bytes")
