"""The state of a run on the disk: files that are there when they are whole, and nothing else.

::

    translane-batch.lock         held by the command that runs; the mark of a folder whose files the command may remove
    run.json                     the plan: what the run is of, and how many sources each task has
    occurrences/0007.jsonl       every source of a bucket as often as it occurs, in the order of the corpus
    order/0007.u32               for each occurrence, which of the different sources it is
    sources/0007-000002.jsonl    the different sources of a task
    translations/0007-000002.jsonl    a digest of them, and their answers
    answers/0007.jsonl           the answer of each occurrence
    summary.json                 the figures, once everything is written

The occurrences are there only until the plan is. The folders below are removed when everything is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from translane_batch.errors import BatchError, ResumeError
from translane_batch.summary import Summary
from translane_batch.tasks import Task
from translane_server.core.files import remove_unfinished, written_whole
from translane_server.core.terminal import shown

_FORMAT, _VERSION = "translane-batch-run", 1
_FOLDERS = ("occurrences", "order", "sources", "translations", "answers")
_LOCK = "translane-batch.lock"


@dataclass(frozen=True)
class Plan:
    """What a run is of, and what has been read.

    Attributes:
        identity: what the outputs depend on. A run is resumed with an equal identity.
        texts: number of records with a text.
        buckets: the tasks of each bucket.
    """

    identity: dict[str, Any]
    texts: int
    buckets: tuple[tuple[Task, ...], ...]

    @property
    def tasks(self) -> list[Task]:
        """All tasks."""
        return [task for tasks in self.buckets for task in tasks]

    @property
    def sources(self) -> int:
        """Number of different sources."""
        return sum(task.sources for task in self.tasks)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other programs from using a folder of this command.

    Raises:
        ResumeError: another program uses the folder, or the folder holds something else.
    """
    lock = folder / _LOCK
    if not lock.exists() and any(folder.iterdir()):
        raise ResumeError(f"{folder}: the folder holds something else than a run; --work names another place")
    with lock.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResumeError(f"{folder}: another run works in this folder") from None
        yield


class WorkFolder:
    """The folder of a run's state, which is made if there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other programs from using the folder, and remove what killed ones have not finished.

        Raises:
            ResumeError: another program uses the folder, or the folder holds something else than a run.
        """
        with locked(self.path):
            for folder in (self.path, *(self.path / name for name in _FOLDERS)):
                remove_unfinished(folder)
            yield

    def occurrences(self, bucket: int) -> Path:
        """The file of every source of a bucket as often as it occurs."""
        return self.path / "occurrences" / f"{bucket:04}.jsonl"

    def order(self, bucket: int) -> Path:
        """The file that says which of a bucket's different sources each occurrence is."""
        return self.path / "order" / f"{bucket:04}.u32"

    def sources(self, task: Task) -> Path:
        """The file of a task's different sources."""
        return self.path / "sources" / f"{task.name}.jsonl"

    def translations(self, task: Task) -> Path:
        """The file of a task's answers."""
        return self.path / "translations" / f"{task.name}.jsonl"

    def answers(self, bucket: int) -> Path:
        """The file of the answer of each of a bucket's occurrences."""
        return self.path / "answers" / f"{bucket:04}.jsonl"

    def missing(self, tasks: list[Task]) -> list[Task]:
        """Return the tasks that have no answers yet."""
        # The folder is listed, because a shared file system may remember for a while that a file was not there.
        there = {path.name for path in (self.path / "translations").iterdir()}
        return [task for task in tasks if self.translations(task).name not in there]

    def clear(self) -> None:
        """Remove everything that was begun, and make the folders."""
        for path in (self._plan, self._summary):
            path.unlink(missing_ok=True)
        for name in _FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)
            (self.path / name).mkdir()

    def begin(self, plan: Plan) -> None:
        """Note that all sources are read. From now on the run is resumed, not begun anew."""
        sizes = [[task.sources for task in tasks] for tasks in plan.buckets]
        values = {"identity": plan.identity, "texts": plan.texts, "buckets": sizes}
        self._write(self._plan, {"format": _FORMAT, "version": _VERSION, **values})

    def plan(self, identity: dict[str, Any]) -> Plan | None:
        """Return the plan; None if not all sources are read.

        Raises:
            ResumeError: the folder holds another run, or none that this version can read.
        """
        values = self._read(self._plan)
        if values is None:
            return None
        if values.get("format") != _FORMAT or values.get("version") != _VERSION:
            raise ResumeError(f"{self._plan}: it is not the state of a run of this version")
        try:
            # As JSON has it: no tuples.
            self._check(values["identity"], json.loads(json.dumps(identity)))
            texts, sizes = values["texts"], values["buckets"]
            if not _is_count(texts) or not sizes or not all(_is_count(size) for each in sizes for size in each):
                raise ValueError("these are no numbers of sources")
            buckets = tuple(
                tuple(Task(bucket, part, sources) for part, sources in enumerate(each))
                for bucket, each in enumerate(sizes)
            )
            return Plan(values["identity"], texts, buckets)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ResumeError(f"{self._plan}: it is damaged; another --output or --work starts anew") from None

    def finish(self, summary: Summary) -> None:
        """Note that all outputs are written, and remove what is needed no more."""
        self._write(self._summary, asdict(summary))
        self.tidy()

    def tidy(self) -> None:
        """Remove what a finished run needs no more."""
        for name in _FOLDERS:
            shutil.rmtree(self.path / name, ignore_errors=True)

    def summary(self) -> Summary | None:
        """Return the figures of a run whose outputs are all written; None before."""
        values = self._read(self._summary)
        try:
            return None if values is None else Summary(**values)
        except TypeError:
            raise ResumeError(f"{self._summary}: it is not the summary of a run of this version") from None

    @property
    def _plan(self) -> Path:
        return self.path / "run.json"

    @property
    def _summary(self) -> Path:
        return self.path / "summary.json"

    def _check(self, before: dict[str, Any], now: dict[str, Any]) -> None:
        for name, value in now.items():
            if name == "corpus":
                self._check_corpus(before[name], value)
            elif before.get(name) != value:
                raise ResumeError(
                    f"{self.path}: the run there cannot be resumed with other settings ({name} was"
                    f" {shown(before.get(name), 80)}, is {shown(value, 80)}); another --output or --work starts anew"
                )

    def _check_corpus(self, before: list[Any], now: list[Any]) -> None:
        if before == now:
            return
        known = {name: rest for name, *rest in before}
        changed = [name for name, *rest in now if known.pop(name, None) != rest] + list(known)
        raise ResumeError(
            f"{self.path}: the run there cannot be resumed, because the corpus has changed since: {changed[0]}"
            + (f" and {len(changed) - 1} more" if len(changed) > 1 else "")
            + "; another --output or --work starts anew"
        )

    def _write(self, path: Path, values: dict[str, Any]) -> None:
        with written_whole(path) as file:
            file.write(json.dumps(values).encode() + b"\n")  # names of files need not be Unicode; ASCII has them all

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            values = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise BatchError(f"{path}: it is not JSON ({error})") from None
        if not isinstance(values, dict):
            raise BatchError(f"{path}: it is not a JSON object")
        return values


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0
