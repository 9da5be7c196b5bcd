"""Distills a model: the teacher translates, and the student's training finds all that it needs."""

from __future__ import annotations

import itertools
import sys

import torch

from translane_export.checkpoint import Checkpoint
from translane_export.distill.distilled_text import matched, write_text
from translane_export.distill.filters import Filters
from translane_export.distill.journal import Journal
from translane_export.distill.progress import Progress
from translane_export.distill.recipe import student_settings, write_settings
from translane_export.distill.settings import DistillSettings
from translane_export.distill.student import (
    inherits,
    initial_model,
    shared_vocabularies,
    student_config,
    write_student,
)
from translane_export.distill.teacher import TaughtPair, Teacher, identity_of, open_teacher
from translane_export.distill.unique_sources import Text, TextCounts
from translane_export.sources.readers import find_reader, read_checkpoint
from translane_export.train.data import Columns
from translane_export.train.errors import ResumeError
from translane_server.core.terminal import printable

OUTPUTS, TEXT, STUDENT, SETTINGS, EXPORTED = "outputs.jsonl", "train.tsv", "student", "student.toml", "teacher"

_PROGRAM = "translane distill"
_AT_ONCE = 1024  # sources that are decoded, and then written, together


def run(settings: DistillSettings) -> None:
    """Translate, write the new text, and write what the student's training starts from.

    Raises:
        DataError: the text cannot be used.
        DistillError: the teacher does not decode, or the student's sizes do not fit each other.
        ResumeError: the output folder holds a run that this one does not continue.
        ExportError, StartupError, SettingsError: see `open_teacher`.
    """
    torch.set_num_threads(settings.computing_threads)
    output, outputs = settings.output, settings.output / OUTPUTS
    if outputs.exists() and not settings.resume:
        raise ResumeError(f"{output}: holds outputs already; --resume goes on with them, another --output starts anew")
    text = Text(
        settings.train,
        Columns(settings.source_column, settings.target_column if settings.reads_targets else None),
        settings.bad_lines,
    )
    counts = text.count()
    skipped = f"; {counts.bad_lines:,} bad lines skipped" if counts.bad_lines else ""
    _log(f"{text.path}: {counts.lines:,} lines, {counts.sources:,} different sources{skipped}")
    taught = open_teacher(settings, output / EXPORTED, _log)
    student_config(settings, _weights_of(taught).config)  # refused before anything takes long

    output.mkdir(parents=True, exist_ok=True)
    journal = Journal(outputs, identity_of(settings, taught))
    if not outputs.exists():
        journal.start()
    with journal.held():
        journal.repair()
        _translate(settings, taught, text, counts, journal)
        _write(settings, taught, text, journal)


def _write(settings: DistillSettings, taught: TaughtPair, text: Text, journal: Journal) -> None:
    """Write the new text, the student before training and its settings, and say what to do with them."""
    output = settings.output
    languages = taught.languages.source, taught.languages.target
    filters = Filters(settings.max_length, settings.max_ratio)
    written = write_text(output / TEXT, text, journal, filters, languages[1], with_references=settings.with_references)
    print(f"{output / TEXT}: {written}")

    checkpoint = _weights_of(taught)
    config = student_config(settings, checkpoint.config)
    vocabularies = shared_vocabularies(checkpoint)
    inherited = settings.from_teacher and vocabularies is not None and inherits(config, checkpoint.config)
    if vocabularies:
        model = initial_model(config, checkpoint if inherited else None, settings.seed)
        write_student(output / STUDENT, model, vocabularies, languages)
    write_settings(
        output / SETTINGS,
        student_settings(
            config,
            train=output / TEXT,
            init=output / STUDENT if vocabularies else None,
            inherited=inherited,
            languages=languages,
            licence=taught.bundle.manifest.license,
        ),
    )
    print(_next_step(settings, inherited=inherited, shared=vocabularies is not None))


def _translate(settings: DistillSettings, taught: TaughtPair, text: Text, counts: TextCounts, journal: Journal) -> None:
    """Have the teacher translate every source that the journal has no outputs for."""
    missing = (source for source, record in matched(text, journal) if record is None)
    batches = iter(lambda: list(itertools.islice(missing, _AT_ONCE)), [])
    first = next(batches, [])
    if not first:
        return
    done = sum(1 for _ in journal.records())
    if done:
        _log(f"{done:,} sources have outputs already")
    with Teacher(settings, taught) as teacher, Progress(done, counts.sources, _log) as progress:
        for sources in itertools.chain([first], batches):
            journal.append(teacher.translate(sources))
            progress.add(len(sources))


def _weights_of(taught: TaughtPair) -> Checkpoint:
    """Read the teacher as a checkpoint. It is read twice, so that its weights are not in memory while it decodes."""
    folder = taught.bundle.folder
    return read_checkpoint(find_reader(folder), folder)


def _next_step(settings: DistillSettings, *, inherited: bool, shared: bool) -> str:
    start = "the teacher's weights" if inherited else "random weights"
    pieces = "the teacher's vocabularies" if shared else "vocabularies of its own"
    file = settings.output / SETTINGS
    return (
        f"{file}: a student that starts from {start} and has {pieces}; to train it:\n"
        f"  translane train --config {file} --valid FILE --output FOLDER"
    )


def _log(line: str) -> None:
    print(f"{_PROGRAM}: {printable(line)}", file=sys.stderr, flush=True)
