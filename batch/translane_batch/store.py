"""The state of a run on the disk: what was read, what is answered, and whose outputs these are.

::

    translane-batch.lock   held by the command that runs; the mark of a folder whose files the command may remove
    sources.sqlite         the different texts of the corpus, and their answers, until all outputs are written
    run.json               what the run is of, once all texts are read; and its figures, once all outputs are written
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

from translane_batch.errors import BatchError
from translane_batch.records import Answer
from translane_batch.settings import OWN_FOLDER
from translane_server.core.files import flush, remove_unfinished, written_whole
from translane_server.core.terminal import shown

_VERSION = 2  # of run.json
_LOCK = "translane-batch.lock"
_ANEW = "another --output or --work starts anew"

_TABLE = "create table source (id integer primary key, key blob not null unique, text text not null, answer text)"
_CACHE_KIB = 1 << 16  # of SQLite
_COMMIT = 1.0  # seconds of answers that a kill loses at most
_CHUNK_BYTES = 1 << 20  # of texts that are translated together, unless one text alone has more


class Sources:
    """The different texts of a corpus in a file of SQLite, each with its answer once it has one.

    A new file has no journal: it counts only once `Run.note` has noted that it is whole. Afterwards answers are on the
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
        self._committed = time.monotonic()

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
        rows = [(answer.encoded, number) for number, answer in answers]
        self._db.executemany("update source set answer = ? where id = ?", rows)
        if time.monotonic() - self._committed > _COMMIT:
            self._commit()
            self._committed = time.monotonic()

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
        BatchError: another program uses the folder, or the folder holds something else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / _LOCK
    if not lock.exists() and any(folder.iterdir()):
        raise BatchError(f"{folder}: the folder holds something else than a run; --work names another place")
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BatchError(f"{folder}: another run works in this folder") from None
        yield


class Run:
    """The state of one run, which a `with` statement keeps other programs from.

    Args:
        folder: where it is; `OWN_FOLDER` of some folder.
        output: the folder of the outputs.
        identity: what the outputs depend on. A run is resumed with an equal identity.

    Attributes:
        sources: the file of the texts.
        read: what was seen of each file of the corpus, once all texts are in `sources`; None before.
        summary: the figures, once all outputs are written; None before.

    Raises:
        BatchError: another program uses a folder, or a folder holds something else than this run; or another run has
            begun since to write the same outputs.
    """

    def __init__(self, folder: Path, output: Path, identity: Mapping[str, Any]) -> None:
        self.folder, self._output = folder, output
        self.sources, self._state = folder / "sources.sqlite", folder / "run.json"
        self._owner = output / OWN_FOLDER / "owner"
        self._identity = json.loads(json.dumps(identity))  # as JSON has it: no tuples
        self._held = contextlib.ExitStack()
        self.read: list[Any] | None = None
        self.summary: dict[str, Any] | None = None

    def __enter__(self) -> Run:
        with self._held:
            self._held.enter_context(locked(self.folder))
            own = self._owner.parent
            if not (own.is_dir() and own.samefile(self.folder)):
                self._held.enter_context(locked(own))
            remove_unfinished(self.folder)
            self._load()
            self._held = self._held.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._held.close()

    def begin(self) -> None:
        """Note that the outputs are those of this run, and remove what it has read so far."""
        self._remove_sources()
        with written_whole(self._owner) as file:
            file.write(self._name)

    def note(self, *, read: list[Any] | None = None, summary: dict[str, Any] | None = None) -> None:
        """Keep one of the attributes. With `read`, the run is resumed from now on; with `summary`, it is done."""
        self.read, self.summary = read or self.read, summary
        values = {"version": _VERSION, "identity": self._identity, "read": self.read, "summary": summary}
        with written_whole(self._state) as file:
            file.write(json.dumps(values).encode() + b"\n")  # names of files need not be Unicode; ASCII has them all
        if summary:
            self._remove_sources()

    def is_translated(self) -> bool:
        """Whether each text is there, and has an answer."""
        if self.read is None:
            return False
        with Sources(self.sources) as sources:
            total, answered = sources.counts()
        return total == answered

    def _load(self) -> None:
        try:
            values = json.loads(self._state.read_bytes())
            version, before, self.read, self.summary = (
                values[name] for name in ("version", "identity", "read", "summary")
            )
            corpus = {name: rest for name, *rest in before.pop("corpus")}
        except FileNotFoundError:
            return
        except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
            raise BatchError(f"{self._state}: it is damaged, or not of this version; {_ANEW}") from None
        if version != _VERSION:
            raise BatchError(f"{self._state}: it is not the state of a run of this version; {_ANEW}")
        self._check(corpus, before)
        with contextlib.suppress(FileNotFoundError):
            owner = self._owner.read_bytes()
            if owner != self._name:
                raise BatchError(
                    f"{self._output}: another run has begun since to write there; its state is {os.fsdecode(owner)}"
                )
        if self.summary:
            self._remove_sources()  # the run may have been killed before it did
        elif not self.sources.exists():
            raise BatchError(f"{self.sources}: it is gone; {_ANEW}")

    def _check(self, corpus: dict[str, Any], before: dict[str, Any]) -> None:
        """Refuse to go on with a run of another corpus, model or setting."""
        files = {name: rest for name, *rest in self._identity["corpus"]}
        if changed := [name for name in files | corpus if files.get(name) != corpus.get(name)]:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise BatchError(
                f"{self.folder}: the run there cannot be resumed, because the corpus has changed since:"
                f" {changed[0]}{more}; {_ANEW}"
            )
        for name, value in self._identity.items():
            if name != "corpus" and before.get(name) != value:
                raise BatchError(
                    f"{self.folder}: the run there cannot be resumed with other settings ({name} was"
                    f" {shown(before.get(name), 80)}, is {shown(value, 80)}); {_ANEW}"
                )

    def _remove_sources(self) -> None:
        for end in ("", "-wal", "-shm"):
            self.sources.with_name(self.sources.name + end).unlink(missing_ok=True)

    @property
    def _name(self) -> bytes:
        return os.fsencode(self.folder.resolve())
