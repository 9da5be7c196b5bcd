"""The state of a run on the disk: what was read, what is answered, and whose outputs these are.

::

    translane-batch.lock   held by the command that runs; the mark of a folder whose files the command may remove
    sources.sqlite         the different texts of the corpus, and their answers, until all outputs are written
    run.json               what the run is of; it is there once all texts are
    summary.json           the figures, once all outputs are written
    owner                  in the output folder: the folder of the run that began last to write there
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from translane_batch.errors import ResumeError
from translane_batch.records import Answer
from translane_batch.settings import OWN_FOLDER
from translane_server.core.files import flush, remove_unfinished, written_whole
from translane_server.core.terminal import shown

_FORMAT, _VERSION = "translane-batch-run", 2
_LOCK = "translane-batch.lock"
_ANEW = "another --output or --work starts anew"

_TABLE = "create table source (id integer primary key, key blob not null unique, text text not null, answer text)"
_CACHE_KIB = 1 << 16  # of SQLite
_COMMIT = 1.0  # seconds of answers that a kill loses at most
_CHUNK_BYTES = 1 << 20  # of texts that are translated together, unless one text alone has more


class Sources:
    """The different texts of a corpus in a file of SQLite, each with its answer once it has one.

    A new file has no journal: it counts only once `Run.begin` has noted that it is whole. Afterwards answers are on the
    disk a second after they were given, whatever is killed.

    Raises:
        sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute(f"pragma cache_size = -{_CACHE_KIB}")
        if new:
            self._db.execute("pragma journal_mode = off")
            self._db.execute("pragma synchronous = off")
            self._db.execute("begin")
            self._db.execute(_TABLE)
        else:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
        self._begun = time.monotonic()

    def close(self) -> None:
        """Keep what was added and answered. The file is on the disk then."""
        self._commit()
        self._db.close()
        flush(self.path)

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def add(self, texts: Sequence[str], keys: Sequence[bytes]) -> None:
        """Add texts, of which some may be there already. `keys` are theirs."""
        different = dict(zip(keys, texts, strict=True))
        self._db.executemany("insert or ignore into source (key, text) values (?, ?)", different.items())

    def counts(self) -> tuple[int, int]:
        """Return how many texts there are, and how many of them have an answer."""
        total, answered = self._db.execute("select count(*), count(answer) from source").fetchone()
        return total, answered

    def left(self, most: int) -> Iterator[list[tuple[int, str]]]:
        """Yield the texts without an answer, with their numbers: at most `most`, or 1 MiB, at a time."""
        last = 0
        query = "select id, text from source where id > ? and answer is null order by id limit ?"
        while True:
            chunk, size = list[tuple[int, str]](), 0
            # The cursor is not kept: an open one would keep SQLite's log from being emptied.
            with contextlib.closing(self._db.execute(query, (last, most))) as rows:
                for last, text in rows:
                    chunk.append((last, text))
                    size += len(text.encode())
                    if size > _CHUNK_BYTES:
                        break
            if not chunk:
                return
            yield chunk

    def save(self, answers: Sequence[tuple[int, Answer]]) -> None:
        """Give texts, by their numbers, their answers."""
        if not self._db.in_transaction:
            self._db.execute("begin")
            self._begun = time.monotonic()
        rows = [(answer.encoded, number) for number, answer in answers]
        self._db.executemany("update source set answer = ? where id = ?", rows)
        if time.monotonic() - self._begun > _COMMIT:
            self._commit()

    def answers(self, keys: Sequence[bytes]) -> list[Answer | None]:
        """Return the answer of each text; None for one that is not there or has none."""
        different = list(set(keys))
        query = f"select key, answer from source where key in ({','.join('?' * len(different))})"  # noqa: S608 - of marks
        found = {key: Answer.decoded(answer) for key, answer in self._db.execute(query, different) if answer}
        return [found.get(key) for key in keys]

    def _commit(self) -> None:
        if self._db.in_transaction:
            self._db.execute("commit")


def key_of(text: str) -> bytes:
    """Return what stands for a text: that two of 10⁹ texts have the same one is a chance of 1 in 10¹¹."""
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other programs from using a folder of this command, which is made if there is none.

    Raises:
        ResumeError: another program uses the folder, or the folder holds something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / _LOCK
    if not lock.exists() and any(folder.iterdir()):
        raise ResumeError(f"{folder}: the folder holds something else than a run; --work names another place")
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResumeError(f"{folder}: another run works in this folder") from None
        yield


class Run:
    """The state of one run.

    Args:
        folder: where it is; `OWN_FOLDER` of some folder.
        output: the folder of the outputs.
        identity: what the outputs depend on. A run is resumed with an equal identity.
    """

    def __init__(self, folder: Path, output: Path, identity: Mapping[str, Any]) -> None:
        self.folder, self._output = folder, output
        self._identity = json.loads(json.dumps(identity))  # as JSON has it: no tuples
        self._plan, self._summary = folder / "run.json", folder / "summary.json"
        self._owner = output / OWN_FOLDER / "owner"
        self.sources = folder / "sources.sqlite"

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other programs from using the folders, and remove what killed ones have not finished.

        Raises:
            ResumeError: another program uses a folder, or a folder holds something else than a run.
        """
        with contextlib.ExitStack() as stack:
            stack.enter_context(locked(self.folder))
            own = self._owner.parent
            if not (own.is_dir() and own.samefile(self.folder)):
                stack.enter_context(locked(own))
            remove_unfinished(self.folder)
            yield

    def read(self) -> list[Any] | None:
        """Return what `begin` was given; None if the corpus is not read yet, so that the run begins.

        Raises:
            ResumeError: the folder holds another run, or none that this version can read; or another run has begun
                since to write the same outputs.
        """
        values = _read(self._plan)
        if values is None:
            return None
        if values.get("format") != _FORMAT or values.get("version") != _VERSION:
            raise ResumeError(f"{self._plan}: it is not the state of a run of this version")
        before, read = values.get("identity"), values.get("read")
        if not isinstance(before, dict) or not isinstance(read, list):
            raise ResumeError(f"{self._plan}: it is damaged; {_ANEW}")
        self._check(before)
        with contextlib.suppress(FileNotFoundError):
            owner = self._owner.read_bytes()
            if owner != self._name:
                raise ResumeError(
                    f"{self._output}: another run has begun since to write there; its state is {os.fsdecode(owner)}"
                )
        return read

    def clear(self) -> None:
        """Remove everything that was begun, and note that the outputs are those of this run."""
        for path in (self._plan, self._summary):
            path.unlink(missing_ok=True)
        self._remove_sources()
        with written_whole(self._owner) as file:
            file.write(self._name)

    def begin(self, read: Sequence[Any]) -> None:
        """Note that all texts are in `sources`; from now on the run is resumed. `read` is what each file had."""
        _write(self._plan, {"format": _FORMAT, "version": _VERSION, "identity": self._identity, "read": read})

    def is_translated(self) -> bool:
        """Whether each text has an answer."""
        with Sources(self.sources) as sources:
            total, answered = sources.counts()
        return total == answered

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Note that all outputs are written, and remove the texts."""
        _write(self._summary, summary)
        self._remove_sources()

    def summary(self) -> dict[str, Any] | None:
        """Return the figures of a run whose outputs are all written; None before."""
        values = _read(self._summary)
        if values is not None:
            self._remove_sources()  # the run may have been killed before it did
        return values

    def _remove_sources(self) -> None:
        for end in ("", "-wal", "-shm"):
            self.sources.with_name(self.sources.name + end).unlink(missing_ok=True)

    @property
    def _name(self) -> bytes:
        return os.fsencode(self.folder.resolve())

    def _check(self, before: dict[str, Any]) -> None:
        """Refuse to go on with a run of another corpus, model or setting."""
        for name, value in self._identity.items():
            if before.get(name) == value:
                continue
            if name == "corpus" and isinstance(before.get(name), list):
                known = {tuple(each) for each in before[name]} ^ {tuple(each) for each in value}
                first, *more = sorted({each[0] for each in known})
                raise ResumeError(
                    f"{self.folder}: the run there cannot be resumed, because the corpus has changed since: {first}"
                    + (f" and {len(more)} more" if more else "")
                    + f"; {_ANEW}"
                )
            raise ResumeError(
                f"{self.folder}: the run there cannot be resumed with other settings ({name} was"
                f" {shown(before.get(name), 80)}, is {shown(value, 80)}); {_ANEW}"
            )


def _write(path: Path, values: Mapping[str, Any]) -> None:
    with written_whole(path) as file:
        file.write(json.dumps(values).encode() + b"\n")  # names of files need not be Unicode; ASCII has them all


def _read(path: Path) -> dict[str, Any] | None:
    try:
        values = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError) as error:
        raise ResumeError(f"{path}: it is damaged ({error}); {_ANEW}") from None
    if not isinstance(values, dict):
        raise ResumeError(f"{path}: it is damaged; {_ANEW}")
    return values
