"""Writes the outputs: first the answers of a bucket's occurrences, then each file of the corpus with its answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

from translane_batch.answers import BLANK, UNREADABLE, Answer, decoded, line_of
from translane_batch.corpus import CorpusFile
from translane_batch.errors import BatchError, CorpusError
from translane_batch.output_files import written_output
from translane_batch.reading import digest_of, numbers_in, sources_of
from translane_batch.records.record import Block, Record
from translane_batch.tasks import key_of
from translane_batch.work_folder import Plan, WorkFolder
from translane_server.core.files import written_whole

_READ = 1 << 18  # numbers of occurrences in memory
_CHECK = 8  # digits before an answer


def write_answers(work: WorkFolder, plan: Plan, bucket: int) -> None:
    """Write the answer of each of a bucket's occurrences, in the order of the corpus.

    The answers of the bucket's different sources are in memory together.

    Raises:
        BatchError: the answers of a task are not those of its sources.
        OSError: a file cannot be read or written.
    """
    if work.answers(bucket).exists():
        return
    lines: list[bytes] = []
    buckets = len(plan.buckets)
    for task in plan.buckets[bucket]:
        sources = sources_of(work, task)
        with work.translations(task).open("rb") as file:
            digest, answers = file.readline(), file.readlines()
        if digest != digest_of(sources) or len(answers) != task.sources:
            raise BatchError(
                f"{work.translations(task)}: it is damaged; remove it, and its sources are translated anew"
            )
        lines += [key_of(source, buckets).check + answer for source, answer in zip(sources, answers, strict=True)]
    with work.order(bucket).open("rb") as order, written_whole(work.answers(bucket)) as file:
        while content := order.read(_READ * 4):
            try:
                file.writelines([lines[number] for number in numbers_in(content)])
            except (ValueError, IndexError):
                damaged = work.order(bucket)
                raise BatchError(f"{damaged}: it is damaged; another --output or --work starts anew") from None


class Answers:
    """The answers of all records, in the order of the corpus. A `with` statement closes its files."""

    def __init__(self, work: WorkFolder, buckets: int) -> None:
        self._paths = [work.answers(bucket) for bucket in range(buckets)]
        self._files: list[BinaryIO] = []
        self._stack = ExitStack()

    def __enter__(self) -> Answers:
        self._files = [self._stack.enter_context(path.open("rb", 1 << 16)) for path in self._paths]
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def next(self, record: Record, path: Path) -> Answer:
        """Return the answer of the next record of the corpus, which is in the file at `path`.

        Raises:
            CorpusError: the file is not the one that was translated.
            BatchError: the answer is damaged.
        """
        if record.problem:
            return Answer("", UNREADABLE, record.problem)
        if not record.source:
            return BLANK
        key = key_of(line_of(record.source), len(self._files))
        line = self._files[key.bucket].readline()
        if line[:_CHECK] != key.check:
            raise CorpusError(f"{path}: it has changed while the corpus was translated")
        try:
            return decoded(line[_CHECK:])
        except ValueError:
            raise BatchError(f"{self._paths[key.bucket]}: it is damaged; remove it, and it is made anew") from None

    def check_end(self) -> None:
        """Make sure that each answer has been taken.

        Raises:
            CorpusError: one is left.
        """
        if any(file.read(1) for file in self._files):
            raise CorpusError("the corpus has lost records while it was translated")


class WrittenCounts:
    """What has been written so far.

    Attributes:
        records: all records.
        blank: records without a text.
        left_out: reason → records that are left out for it.
    """

    def __init__(self) -> None:
        self.records = self.blank = 0
        self.left_out: Counter[str] = Counter()

    def add(self, records: Sequence[Record], answers: Sequence[Answer]) -> None:
        """Count records and their answers."""
        self.records += len(records)
        self.blank += sum(not (record.source or record.problem) for record in records)
        self.left_out.update(answer.reason for answer in answers if answer.reason)


def write(file: CorpusFile, folder: Path, answers: Answers, counts: WrittenCounts) -> Iterator[WrittenCounts]:
    """Write the output of a file, unless it is there, and the list of what is left out. Yield the counts by block.

    Raises:
        CorpusError: the file has changed.
        OSError: a file cannot be written.
    """
    output, left_out = file.output(folder), file.left_out(folder)
    if output.exists():
        for _ in _answered(file, answers, counts, whole=False):
            yield counts
        return
    before = counts.left_out.total()
    # The list is in its place before the output is: who sees the output sees the list.
    with written_output(output) as new:
        with written_output(left_out) as listed, file.files.output(file.path, new) as sink:
            for block, found in _answered(file, answers, counts, whole=True):
                sink.write(block, found)
                listed.writelines(_listed(block, found))
                yield counts
        if counts.left_out.total() == before:
            left_out.unlink()


def _answered(
    file: CorpusFile, answers: Answers, counts: WrittenCounts, *, whole: bool
) -> Iterator[tuple[Block, list[Answer]]]:
    for block in file.files.blocks(file.path, whole=whole):
        found = [answers.next(record, file.path) for record in block.records]
        counts.add(block.records, found)
        yield block, found


def _listed(block: Block, answers: Sequence[Answer]) -> Iterator[bytes]:
    """The lines of the list for the records of a block."""
    for number, answer in enumerate(answers, block.first):
        if answer.reason:
            detail = {"detail": answer.detail} if answer.detail else {}
            yield line_of({"record": number, "reason": answer.reason, **detail})
