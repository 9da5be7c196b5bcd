"""Reads a corpus once: every source into the file of its bucket, then the different sources of each bucket into tasks.

A bucket's file has its sources in the order of the corpus. So who reads the corpus again, and takes for each source the
next line of its bucket, takes the lines that belong to it. No line needs a number.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from translane_batch.answers import line_of
from translane_batch.corpus import CorpusFile
from translane_batch.errors import BatchError
from translane_batch.tasks import TASK_BYTES, Task, key_of
from translane_batch.work_folder import Plan, WorkFolder
from translane_server.core.files import written_whole

_FLUSHED = 1 << 18  # numbers of occurrences in memory


@dataclass(slots=True)
class ReadCounts:
    """What has been read so far: records, and those with a text."""

    records: int = 0
    texts: int = 0


def write_occurrences(corpus: Sequence[CorpusFile], work: WorkFolder, buckets: int) -> Iterator[ReadCounts]:
    """Write every source into the file of its bucket. Yield what is read after each block.

    Raises:
        CorpusError: a file cannot be read, or is not what the settings say.
        OSError: a file cannot be written.
    """
    counts = ReadCounts()
    with ExitStack() as stack:
        files = [stack.enter_context(work.occurrences(bucket).open("wb", 1 << 16)) for bucket in range(buckets)]
        for file in corpus:
            for block in file.files.blocks(file.path, whole=False):
                for record in block.records:
                    if record.source:
                        counts.texts += 1
                        line = line_of(record.source)
                        files[key_of(line, buckets).bucket].write(line)
                counts.records += len(block.records)
                yield counts


def write_sources(work: WorkFolder, bucket: int, task_size: int) -> tuple[Task, ...]:
    """Write the different sources of a bucket, and which of them each occurrence is. Return the bucket's tasks.

    The different sources of the bucket are in memory together; the occurrences are not.

    Args:
        work: the folder of the run.
        bucket: number of the bucket.
        task_size: most sources of a task.

    Raises:
        OSError: a file cannot be read or written.
    """
    numbers: dict[bytes, int] = {}
    occurrences = work.occurrences(bucket)
    with occurrences.open("rb") as file, written_whole(work.order(bucket)) as order:
        waiting = array("I")
        for line in file:
            waiting.append(numbers.setdefault(line, len(numbers)))
            if len(waiting) == _FLUSHED:
                order.write(waiting.tobytes())
                del waiting[:]
        order.write(waiting.tobytes())
    tasks = []
    for part, lines in enumerate(_parts(numbers, task_size)):
        tasks.append(Task(bucket, part, len(lines)))
        with written_whole(work.sources(tasks[-1])) as new:
            new.writelines(lines)
    occurrences.unlink()
    return tuple(tasks)


def numbers_in(content: bytes) -> Sequence[int]:
    """Return the numbers of a part of a file of `write_sources`."""
    numbers = array("I")
    numbers.frombytes(content)
    return numbers


def check_order(work: WorkFolder, plan: Plan) -> None:
    """Make sure that the files of `write_sources` have a number for each text.

    Raises:
        BatchError: they are damaged.
        OSError: a file is gone.
    """
    size = sum(work.order(bucket).stat().st_size for bucket in range(len(plan.buckets)))
    if size != plan.texts * array("I").itemsize:
        raise BatchError(
            f"{work.path}: the order of the texts there is damaged; another --output or --work starts anew"
        )


def sources_of(work: WorkFolder, task: Task) -> list[bytes]:
    """Return the lines of a task's different sources.

    Raises:
        BatchError: the file is damaged.
        OSError: the file cannot be read.
    """
    with work.sources(task).open("rb") as file:
        lines = file.readlines()
    try:
        whole = len(lines) == task.sources and all(isinstance(json.loads(line), str) for line in lines)
    except (ValueError, RecursionError):
        whole = False
    if not whole:
        raise BatchError(f"{work.sources(task)}: it is damaged; another --output or --work starts anew")
    return lines


def digest_of(lines: Sequence[bytes]) -> bytes:
    """Return the first line of a task's answers, which tells whose they are. `lines` are the task's sources."""
    digest = hashlib.blake2b(digest_size=16)
    for line in lines:
        digest.update(line)
    return line_of(digest.hexdigest())


def _parts(lines: Iterable[bytes], most: int) -> Iterator[list[bytes]]:
    """Yield the lines of each task."""
    part, size = list[bytes](), 0
    for line in lines:
        if len(part) == most or (part and size + len(line) > TASK_BYTES):
            yield part
            part, size = [], 0
        part.append(line)
        size += len(line)
    if part:
        yield part
