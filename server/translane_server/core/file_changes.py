"""Files that are read again when they change, while the server runs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path

from translane_server.core.errors import StartupError
from translane_server.core.files import Stamp, stamp_of

INTERVAL = 1.0  # from one look at the files to the next [seconds]

_log = logging.getLogger(__name__)


class FileChanges:
    """Tells when files have changed. It has to be made before the files are read, so that it misses no change."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = tuple(paths)
        self._seen = self._told = self._stamps()
        self._logged: object = None  # the files and the problem of the last error

    def look(self) -> bool:
        """Whether the files have changed, and have then stayed the same from the last look to this one.

        So files are read after they are written, and not meanwhile. Each change is told once.
        """
        seen, self._seen = self._seen, self._stamps()
        if self._seen != seen or self._seen == self._told:
            return False
        self._told = self._seen
        return True

    def refresh(self, read: Callable[[], None], goes_on: str) -> None:
        """Read the files if they have changed. A new problem is logged, with what `goes_on`."""
        if not self.look():
            return
        try:
            read()
            self._logged = None
        except StartupError as error:
            cause = error.__context__
            if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):  # which is about what was read
                self._told = ()  # the next look reads again: the cause may pass without a change of the files
            problem = (self._seen, str(error))
            if problem != self._logged:
                _log.error("%s; %s", error, goes_on)
            self._logged = problem

    def _stamps(self) -> tuple[Stamp | None, ...]:
        return tuple(stamp_of(path) for path in self._paths)


async def follow(refreshes: Sequence[Callable[[], None]], interval: float = INTERVAL) -> None:
    """Read changed files again, on a thread, for ever. The files are looked at every `interval` seconds.

    Each of `refreshes` reads the files that have changed. What is wrong with them is logged, and what was read before
    goes on.
    """
    while True:
        await asyncio.sleep(interval)
        for refresh in refreshes:
            try:
                await asyncio.to_thread(refresh)
            except Exception:  # noqa: BLE001 a bug must not end the watch
                _log.exception("looking at changed files has failed")
