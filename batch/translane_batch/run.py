"""A run: the corpus is read, its different texts are translated, and the outputs are written.

Each step leaves what it has done on the disk. So a run that was killed goes on when it is started again, and ends with
the same outputs.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Any, BinaryIO

from translane.progress import Progress
from translane_batch.corpus import CorpusFile, find_corpus, fingerprint
from translane_batch.records import BLANK, UNREADABLE, Answer, Block, Record
from translane_batch.settings import BatchError, BatchSettings
from translane_batch.store import Run, Sources
from translane_batch.translator import all_of, identity_of_servers, opened
from translane_server.core.files import in_place_of

Log = Callable[[str], None]

# The name of a new file in a folder that holds files of other people, too: short, whatever name the output has.
_NEW = ".translane-batch-{}.new"


Translate = Callable[[Sources, Callable[[int], None]], None]
"""Translates all sources that are left, and tells the number of those that are translated, as often as some are.

It raises BatchError or TranslaneError if they cannot be translated.
"""


@dataclass
class Summary:
    """What became of a corpus.

    Attributes:
        files: files of the corpus.
        records: its records, each of which is in an output.
        blank: records without a text.
        sources: different texts, each of which was translated once.
        duplicates: records whose text an earlier record has.
        translated: records with a translation that is not left out.
        left_out: reason → records that are left out for it.
        sources_translated: sources that were translated since the command was started last.
        reading_seconds, translating_seconds, writing_seconds: time of the three steps since then.
    """

    files: int = 0
    records: int = 0
    blank: int = 0
    sources: int = 0
    duplicates: int = 0
    translated: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    sources_translated: int = 0
    reading_seconds: float = 0.0
    translating_seconds: float = 0.0
    writing_seconds: float = 0.0

    @property
    def sentence(self) -> str:
        """The figures for people."""
        texts = self.records - self.blank
        share = self.duplicates / texts if texts else 0.0
        files = f"{self.files:,} file{'s' * (self.files != 1)}"
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(self.left_out.items()))
        left_out = f"{sum(self.left_out.values()):,} left out" + (f" ({reasons})" if reasons else "")
        return (
            f"{self.records:,} records in {files}: {self.translated:,} translated, {self.blank:,} blank, {left_out};"
            f" {self.sources:,} different sources, {share:.1%} duplicates"
        )


@contextmanager
def local_workers(settings: BatchSettings) -> Iterator[Translate]:
    """Open a model in processes of this machine, or a connection to servers, and yield what translates."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        translator = runner.run(stack.enter_async_context(opened(settings)))

        async def translate(sources: Sources, done: Callable[[int], None]) -> None:
            chunks = sources.left(settings.task_size)

            def save(answers: Sequence[tuple[int, Answer]]) -> None:
                sources.save(answers)
                done(len(answers))

            async def work() -> None:
                for chunk in chunks:
                    await translator.translate(chunk, save)

            await all_of([work(), work()])  # the second chunk fills the rows that the end of the first one leaves

        try:
            yield lambda sources, done: runner.run(translate(sources, done))
        finally:
            runner.run(stack.aclose())


def run(settings: BatchSettings, log: Log) -> Summary:
    """Translate a corpus, or the rest of it, and return the figures."""
    corpus = find_corpus(settings)
    if settings.server:
        model = asyncio.run(identity_of_servers(settings))
    else:
        from translane_batch.local_model import identity_of_folder, with_model_here  # they need the server's packages

        settings, folder = with_model_here(settings, log)
        model = identity_of_folder(folder)
    identity = {"corpus": [file.fingerprint for file in corpus], "model": model, **settings.what_decides}
    with Run(settings.work_folder, settings.output, identity) as state:
        summary = Summary(files=len(corpus))
        for file in corpus:
            there = file.output.exists()
            if there and state.sources is None:
                raise BatchError(f"{file.output}: it is there already; --output names another folder")
            if state.summary and not there:
                raise BatchError(f"{file.output}: it was written, and is gone; another --work starts anew")
        if state.summary:
            log("everything has been written before")
            return Summary(**state.summary)
        if not state.is_translated():
            if settings.ray:
                from translane_batch.ray_workers import ray_workers  # Ray is an extra

                workers = ray_workers(settings, model, log)
            else:
                workers = local_workers(settings)
            with workers as translate:  # wrong settings are found before anything takes long
                if state.sources is None:
                    _read(corpus, state, summary, log)
                _translate(translate, state, summary, log)
        _write(corpus, state, summary, log)
        state.finish(asdict(summary))
    return summary


def _read(corpus: Sequence[CorpusFile], state: Run, summary: Summary, log: Log) -> None:
    progress = Progress("records read", stream=sys.stderr, say=log)
    with state.reading() as sources:
        for file in corpus:
            for block in file.files.blocks(file.path, whole=False):
                texts = [record.source for record in block.records if record.source]
                sources.add(texts)
                state.texts += len(texts)
                progress.add(len(block.records))
    progress.close()
    summary.reading_seconds = progress.seconds


def _translate(translate: Translate, state: Run, summary: Summary, log: Log) -> None:
    assert state.sources
    texts, (total, answered) = state.texts, state.sources.counts()
    left = total - answered
    share = (texts - total) / texts if texts else 0.0
    log(f"{texts:,} texts, {total:,} different sources ({share:.1%} duplicates), {left:,} to translate")
    progress = Progress(
        "sources", total=total, done=answered, stream=sys.stderr, say=log, note=f"; {share:.1%} duplicates"
    )
    translate(state.sources, progress.add)
    state.sources.commit()
    progress.close()
    summary.sources_translated, summary.translating_seconds = left, progress.seconds


def _write(corpus: Sequence[CorpusFile], state: Run, summary: Summary, log: Log) -> None:
    """Write all outputs that are not there, and count what is in them."""
    log("all sources are translated; writing the outputs")
    progress, left_out = Progress("records written", stream=sys.stderr, say=log), Counter[str]()
    for folder in {file.output.parent for file in corpus}:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.glob(_NEW.format("?" * 16)):  # of killed runs
            path.unlink(missing_ok=True)
    assert state.sources
    for file in corpus:
        for block, answers in _written(file, state.sources):
            summary.records += len(block.records)
            summary.blank += sum(not (record.source or record.problem) for record in block.records)
            left_out.update(answer.reason for answer in answers if answer.reason)
            progress.add(len(block.records))
    summary.sources, _ = state.sources.counts()
    summary.duplicates = state.texts - summary.sources
    summary.left_out = dict(left_out)
    summary.translated = summary.records - summary.blank - left_out.total()
    progress.close()
    summary.writing_seconds = progress.seconds


def _written(file: CorpusFile, sources: Sources) -> Iterator[tuple[Block, list[Answer]]]:
    """Write the output of a file, unless it is there, and the list of what is left out. Yield the blocks."""
    if file.output.exists():
        yield from _answered(file, sources, whole=False)
        return
    # The list is in its place before the output is: who sees the output sees the list.
    with _new_file(file.output) as new:
        with _new_file(file.left_out) as listed, file.files.output(file.path, new) as write:
            for block, answers in _answered(file, sources, whole=True):
                write(block, answers)
                listed.writelines(_listed(block, answers))
                yield block, answers
            is_empty = not listed.tell()
        if is_empty:
            file.left_out.unlink()


def _answered(file: CorpusFile, sources: Sources, *, whole: bool) -> Iterator[tuple[Block, list[Answer]]]:
    """Yield the blocks of a file, with the answer of each record. BatchError: the file is not what was read before."""
    found: list[Answer | None] = []
    for block in file.files.blocks(file.path, whole=whole):
        found = sources.answers([record.source for record in block.records if record.source])
        if None in found:
            break
        answers = iter(found)
        yield block, [_answer(record, answers) for record in block.records]
    if None in found or fingerprint(file.name, file.path) != file.fingerprint:
        raise BatchError(f"{file.path}: it has changed while the corpus was translated")


def _answer(record: Record, answers: Iterator[Any]) -> Any:
    if record.source:
        return next(answers)
    return Answer("", UNREADABLE, record.problem) if record.problem else BLANK


def _listed(block: Block, answers: Sequence[Answer]) -> Iterator[bytes]:
    """The lines of the list for the records of a block."""
    for number, answer in enumerate(answers, block.first):
        if answer.reason:
            line = {"record": number, "reason": answer.reason} | ({"detail": answer.detail} if answer.detail else {})
            yield json.dumps(line, ensure_ascii=False).encode() + b"\n"


@contextmanager
def _new_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file, which takes the place of `path` once it is written and on the disk.

    If what runs within fails, nothing is left of the new file. A program that is killed leaves it.
    """
    new = path.with_name(_NEW.format(token_hex(8)))
    with in_place_of(path, new), new.open("xb", buffering=1 << 16) as file:
        yield file
