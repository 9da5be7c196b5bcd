"""A run: the corpus is read, its different sources are translated, and the outputs are written.

Each step leaves files, and a step whose files are there is not done again. So a run that was killed goes on when it is
started again, and ends with the same outputs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from translane_batch.corpus import CorpusFile, find_corpus, text_size
from translane_batch.errors import CorpusError
from translane_batch.model_downloads import with_model_here
from translane_batch.model_identity import identity_of_folder, identity_of_servers
from translane_batch.output_files import check_output, held_output, remove_unfinished_outputs, take_output
from translane_batch.progress import Progress
from translane_batch.reading import ReadCounts, check_order, write_occurrences, write_sources
from translane_batch.settings import BatchSettings
from translane_batch.summary import Summary
from translane_batch.tasks import buckets_for
from translane_batch.work_folder import Plan, WorkFolder
from translane_batch.worker import client_of
from translane_batch.workers import LocalWorkers, Workers, translate_all
from translane_batch.writing import Answers, WrittenCounts, write, write_answers

Log = Callable[[str], None]

_NOTHING = Summary(0, 0, 0, 0, 0, 0, {}, 0, 0.0, 0.0, 0.0)


def run(settings: BatchSettings, log: Log) -> Summary:
    """Translate a corpus, or the rest of it, and return the figures.

    Args:
        settings: of the run.
        log: takes lines for people.

    Raises:
        BatchError: the run cannot be begun, or cannot go on.
        StartupError: the model cannot be downloaded or loaded.
        TranslaneError: the servers do not translate.
        OSError: a file cannot be read or written.
    """
    corpus = find_corpus(settings)
    if settings.server:
        model = asyncio.run(_servers_model(settings))
    else:
        settings, folder = with_model_here(settings, log)
        model = identity_of_folder(folder)
    identity = {"corpus": [file.fingerprint for file in corpus], "model": model, **settings.what_decides}
    work = WorkFolder(settings.work_folder)
    with work.held(), held_output(settings.output, work):
        plan = work.plan(identity)
        if plan is None:
            _check_new(corpus, settings.output)
            work.clear()
            take_output(settings.output, work)
        else:
            check_output(settings.output, work)
        if plan and (summary := work.summary()):
            work.tidy()  # the run may have been killed before it was tidy
            _check_finished(corpus, settings.output)
            log("everything has been written before")
            return summary
        summary = _NOTHING
        if plan is None or work.missing(plan.tasks):
            plan, summary = asyncio.run(_translated(settings, corpus, work, identity, plan, log))
        summary = _written(settings, corpus, work, plan, summary, log)
        work.finish(summary)
    return summary


async def _servers_model(settings: BatchSettings) -> str:
    """What identifies the model of the servers."""
    client = client_of(settings)
    try:
        return identity_of_servers(settings, (await client.server_info()).models)
    finally:
        await client.close()


def _check_new(corpus: Sequence[CorpusFile], output: Path) -> None:
    """Refuse to begin a run where an output is there already."""
    for file in corpus:
        if file.output(output).exists():
            raise CorpusError(f"{file.output(output)}: it is there already; --output names another folder")


def _check_finished(corpus: Sequence[CorpusFile], output: Path) -> None:
    """Refuse to call a run finished where an output is missing."""
    for file in corpus:
        if not file.output(output).exists():
            raise CorpusError(f"{file.output(output)}: it was written, and is gone; another --work starts anew")


async def _translated(
    settings: BatchSettings,
    corpus: Sequence[CorpusFile],
    work: WorkFolder,
    identity: dict[str, Any],
    plan: Plan | None,
    log: Log,
) -> tuple[Plan, Summary]:
    """Read the corpus, if there is no plan, and translate what is missing."""
    summary = _NOTHING
    workers = await _open(settings, work, identity["model"], log)  # wrong settings are found before anything takes long
    try:
        if plan is None:
            reading = Progress("records read", log)
            plan = await _planned(settings, corpus, work, identity, reading)
            summary = replace(summary, reading_seconds=reading.seconds)
        missing = work.missing(plan.tasks)
        total, left = plan.sources, sum(task.sources for task in missing)
        share = (plan.texts - total) / plan.texts if plan.texts else 0.0
        log(f"{plan.texts:,} texts, {total:,} different sources ({share:.1%} duplicates), {left:,} to translate")
        translating = Progress("sources", log, total=total, done=total - left, note=f"; {share:.1%} duplicates")
        await translate_all(missing, workers, translating.add)
        return plan, replace(summary, sources_translated=left, translating_seconds=translating.seconds)
    finally:
        await workers.close()


async def _open(settings: BatchSettings, work: WorkFolder, model: str, log: Log) -> Workers:
    if settings.ray:
        from translane_batch.ray_workers import RayWorkers  # Ray is an extra

        return await RayWorkers.open(settings, work, model, log)
    return await LocalWorkers.open(settings, work)


async def _planned(
    settings: BatchSettings,
    corpus: Sequence[CorpusFile],
    work: WorkFolder,
    identity: dict[str, Any],
    progress: Progress,
) -> Plan:
    """Read the corpus, and divide its different sources into tasks."""
    buckets = buckets_for(text_size(corpus))
    counts, records = ReadCounts(), 0
    for counts in write_occurrences(corpus, work, buckets):
        progress.add(counts.records - records)
        records = counts.records
        await asyncio.sleep(0)  # the server goes on, and Ctrl-C is seen
    tasks = []
    for bucket in range(buckets):
        tasks.append(await asyncio.to_thread(write_sources, work, bucket, settings.task_size))
    plan = Plan(identity, counts.texts, tuple(tasks))
    work.begin(plan)
    return plan


def _written(
    settings: BatchSettings, corpus: Sequence[CorpusFile], work: WorkFolder, plan: Plan, before: Summary, log: Log
) -> Summary:
    """Write the outputs, and return the figures."""
    log("all sources are translated; writing the outputs")
    progress = Progress("records written", log)
    check_order(work, plan)
    for bucket in range(len(plan.buckets)):
        write_answers(work, plan, bucket)
    for folder in {file.output(settings.output).parent for file in corpus}:
        folder.mkdir(parents=True, exist_ok=True)
        remove_unfinished_outputs(folder)
    counts, records = WrittenCounts(), 0
    with Answers(work, len(plan.buckets)) as answers:
        for file in corpus:
            for _ in write(file, settings.output, answers, counts):
                progress.add(counts.records - records)
                records = counts.records
        answers.check_end()
    texts = counts.records - counts.blank
    return replace(
        before,
        files=len(corpus),
        records=counts.records,
        blank=counts.blank,
        sources=plan.sources,
        duplicates=plan.texts - plan.sources,
        translated=texts - counts.left_out.total(),
        left_out=dict(counts.left_out),
        writing_seconds=progress.seconds,
    )
