"""The state of a run on the disk: what was read, what is answered, and whose outputs these are.

::

    translane-batch.lock   held by the command that runs; the mark of a folder whose files the command may remove
    run.sqlite             once all texts are read: what the run is of, the different texts and their answers; once all
                           outputs are written, its figures in the place of the texts
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

from translane_batch.records import Answer
from translane_batch.settings import OWN_FOLDER, BatchError
from translane_server.core.files import flush, remove_unfinished, replaced_whole, written_whole
from translane_server.core.terminal import shown

_VERSION = 3  # of run.sqlite
_LOCK = "translane-batch.lock"
_ANEW = "another --output or --work starts anew"

_TABLES = (
    "create table run (name text primary key, value text not null)",  # as JSON
    "create table source (id integer primary key, key blob not null unique, text text not null, answer text)",
)
_CACHE_KIB = 1 << 16  # of SQLite
_COMMIT = 1.0  # seconds of answers that a kill loses at most
_CHUNK_BYTES = 1 << 20  # of texts that are translated together, unless one text alone has more


class Sources:
    """The different texts of a corpus in a file of SQLite, each with its answer once it has one; and notes on the run.

    A new file has no journal: it counts only once it is whole, and has its name. Afterwards answers are on the disk a
    second after they were given, whatever is killed.
    """

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute(f"pragma cache_size = -{_CACHE_KIB}")
        if new:
            self._db.execute("pragma journal_mode = off")
            self._db.execute("pragma synchronous = off")
            self._db.execute("begin")
            self._db.execute(f"pragma user_version = {_VERSION}")
            for table in _TABLES:
                self._db.execute(table)
        else:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
        self._committed = time.monotonic()

    def close(self) -> None:
        """Keep what was added and answered. The file is on the disk then."""
        self.commit()
        self._db.close()
        flush(self.path)

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def add(self, texts: Sequence[str]) -> None:
        """Add texts, of which some may be there already."""
        different = {_key_of(text): text for text in texts}
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
            self.commit()
            self._committed = time.monotonic()

    def answers(self, texts: Sequence[str]) -> list[Answer | None]:
        """Return the answer of each text; None for one that is not there or has none."""
        keys = [_key_of(text) for text in texts]
        different = list(set(keys))
        query = f"select key, answer from source where key in ({','.join('?' * len(different))})"  # noqa: S608 - of marks
        found = {key: Answer.decoded(answer) for key, answer in self._db.execute(query, different) if answer}
        return [found.get(key) for key in keys]

    def note(self, **values: Any) -> None:
        """Keep values under names, as JSON."""
        rows = [(name, json.dumps(value)) for name, value in values.items()]  # names of files need not be Unicode
        self._db.executemany("insert or replace into run values (?, ?)", rows)

    def noted(self) -> dict[str, Any]:
        """Return what was noted; nothing, if the file is of another version."""
        if self._db.execute("pragma user_version").fetchone() != (_VERSION,):
            return {}
        return {name: json.loads(value) for name, value in self._db.execute("select name, value from run")}

    def forget(self) -> None:
        """Remove the texts; what was noted stays."""
        self.commit()
        self._db.execute("drop table if exists source")
        self._db.execute("vacuum")

    def commit(self) -> None:
        """Have the answers on the disk."""
        if self._db.in_transaction:
            self._db.execute("commit")


def _key_of(text: str) -> bytes:
    """Return what stands for a text: that two of 10⁹ texts have the same one is a chance of 1 in 10¹¹."""
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other programs from using a folder of this command, which is made if there is none."""
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

    `identity` is what the outputs depend on: a run is resumed with an equal one.

    `texts` is how many records have a text. There are `sources` once all are read, and a `summary` once all outputs are
    written.
    """

    def __init__(self, folder: Path, output: Path, identity: Mapping[str, Any]) -> None:
        self.folder, self._output = folder, output
        self._path, self._owner = folder / "run.sqlite", output / OWN_FOLDER / "owner"
        self._identity = json.loads(json.dumps(identity))  # as JSON has it: no tuples
        self._held = contextlib.ExitStack()
        self.sources: Sources | None = None
        self.texts = 0
        self.summary: dict[str, Any] | None = None

    def __enter__(self) -> Run:
        with self._held:
            self._held.enter_context(locked(self.folder))
            own = self._owner.parent
            if not (own.is_dir() and own.samefile(self.folder)):
                self._held.enter_context(locked(own))
            remove_unfinished(self.folder)
            if self._path.exists():
                self.sources = self._held.enter_context(Sources(self._path))
                self._load(self.sources)
            self._held = self._held.pop_all()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._held.close()

    @contextlib.contextmanager
    def reading(self) -> Iterator[Sources]:
        """Yield what takes the texts. Once it is left, the outputs are those of this run, and it can be resumed."""
        with written_whole(self._owner) as file:
            file.write(self._name)
        with replaced_whole(self._path) as new, Sources(new, new=True) as sources:
            yield sources
            sources.note(identity=self._identity, texts=self.texts)
        self.sources = self._held.enter_context(Sources(self._path))

    def finish(self, summary: dict[str, Any]) -> None:
        """Keep the figures of a run whose outputs are all written, and remove its texts."""
        assert self.sources
        self.sources.note(summary=summary)
        self.sources.forget()

    def is_translated(self) -> bool:
        """Whether each text is there, and has an answer."""
        if self.sources is None:
            return False
        total, answered = self.sources.counts()
        return total == answered

    def _load(self, sources: Sources) -> None:
        noted = sources.noted()
        if not noted:
            raise BatchError(f"{self._path}: it is not the state of a run of this version; {_ANEW}")
        self._check(noted["identity"])
        self.texts, self.summary = noted["texts"], noted.get("summary")
        if self.summary:
            sources.forget()  # the run may have been killed before it did
        with contextlib.suppress(FileNotFoundError):
            owner = self._owner.read_bytes()
            if owner != self._name:
                raise BatchError(
                    f"{self._output}: another run has begun since to write there; its state is {os.fsdecode(owner)}"
                )

    def _check(self, before: dict[str, Any]) -> None:
        """Refuse to go on with a run of another corpus, model or setting."""
        for name, value in self._identity.items():
            if (old := before.get(name)) == value:
                continue
            problem = f"with other settings ({name} was {shown(old, 80)}, is {shown(value, 80)})"
            if name == "corpus":
                changed = sorted({file for file, *_ in set(map(tuple, old or ())) ^ set(map(tuple, value))})
                more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
                problem = f"because the corpus has changed since: {changed[0]}{more}"
            raise BatchError(f"{self.folder}: the run there cannot be resumed {problem}; {_ANEW}")

    @property
    def _name(self) -> bytes:
        return os.fsencode(self.folder.resolve())
