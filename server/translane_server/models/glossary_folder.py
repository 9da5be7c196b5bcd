"""Keeps the stored glossaries of a server as the files of a folder are."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from translane.options import Term
from translane_server.core.errors import GlossaryError, SettingsError, StartupError
from translane_server.core.file_changes import INTERVAL, follow
from translane_server.core.files import Stamp, read_regular, stamp_of
from translane_server.text.glossaries import MOST_BYTES, SUFFIX, StoredGlossaries, StoredGlossary, read_name, read_terms
from translane_server.text.glossary import Glossary

MOST_FILES = 32
MOST_TERMS = 200_000  # of all files: a term takes some 700 bytes

_TERMS_IN_TURN = 100  # are read in a row, in a millisecond or two
_PAUSE = 0.0001  # then [seconds]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _File:
    """A file that was read."""

    stamp: Stamp | None  # the stamp of what was read
    # the glossary; of a file that is bad now, the last good one, or None if it was never good
    stored: StoredGlossary | None = None
    is_bad: bool = False  # whether what was read last is bad, maybe only because other files have many terms

    @property
    def terms(self) -> int:
        return self.stored.glossary.size if self.stored else 0


class GlossaryFolder:
    """The glossaries in a folder. `load` reads them, and `watch` reads changed files again.

    A file is a glossary if its name ends with .tsv and does not begin with a dot. See `text.glossaries` for names
    and lines.

    Without a folder there are none. From one look at the files to the next it is `interval` seconds.
    """

    def __init__(self, folder: Path | None = None, interval: float = INTERVAL) -> None:
        self.current = StoredGlossaries()  # the glossaries for new requests
        self._folder = folder
        self._interval = interval
        self._files: dict[str, _File] = {}
        self._seen: Mapping[str, Stamp | None] = {}
        self._problem = ""  # of the folder

    def load(self) -> None:
        """Read all files.

        Raises:
            SettingsError: the folder cannot be read.
            GlossaryError: a file is wrong; the message names the file and the line.
        """
        if self._folder is None:
            return
        self._seen = self._stamps()
        for name, stamp in self._seen.items():
            self._files[name] = _File(stamp, self._read(name))
        self._take()

    async def watch(self) -> None:
        """Read changed files, for ever. A bad file is logged, and its last good version goes on."""
        if self._folder is not None:
            await follow([self.refresh], self._interval)

    def refresh(self) -> None:
        """Read each file that has changed and then stayed the same for one look.

        So no file is read while it is written.
        """
        try:
            seen, self._seen = self._seen, self._stamps()
        except StartupError as error:
            if str(error) != self._problem:
                _log.error("%s; the glossaries before go on", error)
            self._problem = str(error)
            return
        self._problem = ""
        files = self._files
        gone = files.keys() - self._seen.keys()
        for name in gone:
            del files[name]
        rested = {name: stamp for name, stamp in self._seen.items() if seen.get(name) == stamp}
        changed = [name for name, stamp in rested.items() if name not in files or files[name].stamp != stamp]
        if changed or gone:
            # The files of the last change may leave room for a file that had too many terms.
            again = [name for name in rested if name in files and files[name].is_bad]
            for name in dict.fromkeys([*changed, *again]):
                self._read_again(name, rested[name])
            self._take()

    def _read_again(self, name: str, stamp: Stamp | None) -> None:
        file = self._files.setdefault(name, _File(stamp))
        was_bad = file.is_bad and file.stamp == stamp
        file.stamp = stamp
        try:
            file.stored, file.is_bad = self._read(name), False
        except GlossaryError as error:
            file.is_bad = True
            if not was_bad:
                _log.error("%s%s", error, "; the version before goes on" if file.stored else "")

    def _stamps(self) -> dict[str, Stamp | None]:
        """Return the stamp of each file in the folder, in the order of their names.

        Raises SettingsError if the folder cannot be read, and GlossaryError if there are too many files.
        """
        assert self._folder is not None
        try:
            paths = sorted(self._folder.iterdir())
        except OSError as error:
            raise SettingsError(f"--glossaries {self._folder}: the folder cannot be read: {error.strerror}") from None
        names = [path.name for path in paths if path.name.endswith(SUFFIX) and not path.name.startswith(".")]
        found = {name: stamp_of(self._folder / name) for name in names}  # None: a link to nothing, or it is gone
        if len(found) > MOST_FILES:
            raise GlossaryError(
                f"glossaries {self._folder}: there are {len(found)} files, at most {MOST_FILES} are accepted"
            )
        return found

    def _read(self, name: str) -> StoredGlossary:
        """Read a file of the folder. Raises GlossaryError, which names the file and the line."""
        assert self._folder is not None
        path = self._folder / name
        try:
            title, source, target = read_name(name)
            terms = _giving_way(read_terms(read_regular(path, MOST_BYTES)))
            glossary = Glossary(terms, source, title)
            together = glossary.size + sum(file.terms for other, file in self._files.items() if other != name)
            if together > MOST_TERMS:
                raise GlossaryError(f"there are {together:,} terms with it, at most {MOST_TERMS:,} are accepted")
        except OSError as error:
            raise GlossaryError(f"glossary {path}: it cannot be read: {error.strerror}") from None
        except GlossaryError as error:
            raise GlossaryError(f"glossary {path}: {error}") from None
        return StoredGlossary(source, target, glossary)

    def _take(self) -> None:
        """Let new requests use the files as they are."""
        self.current = StoredGlossaries(file.stored for file in self._files.values() if file.stored)
        terms = sum(file.terms for file in self._files.values())
        _log.info("glossaries: %d, of %d terms together", len(self.current), terms)


def _giving_way(terms: Iterable[Term]) -> Iterator[Term]:
    """Yield `terms`, and let other threads go on after every few: else each step of theirs waits its turn."""
    for number, term in enumerate(terms):
        if number % _TERMS_IN_TURN == 0:
            time.sleep(_PAUSE)
        yield term
