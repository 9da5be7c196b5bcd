"""Distills a model: `translane batch` has the teacher translate, and `translane train` finds all that it needs."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from pathlib import Path

import torch

from translane_export.bundle_writer import export_checkpoint
from translane_export.core.checkpoint import find_pair
from translane_export.core.settings import ExportSettings
from translane_export.distill.settings import DistillSettings
from translane_export.distill.student import student_config, write_student
from translane_export.distill.text import read_pairs, write_pairs, write_sources
from translane_export.sources.readers import find_reader
from translane_export.train.errors import ResumeError
from translane_server.bundle.bundle import MANIFEST, Bundle, load_bundle
from translane_server.core.machine import available_cpus
from translane_server.core.terminal import printable
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.languages import LanguagePair

SOURCES, TRANSLATED, TEXT, EXPORTED = "sources.jsonl", "translated", "train.tsv", "teacher"


def run(settings: DistillSettings) -> int:
    """Translate, write the new text, and write what the student's training starts from.

    Returns:
        The exit code: 0, or that of `translane batch`, which has said why.

    Raises:
        DataError: the text cannot be used.
        TrainError: the student's sizes do not fit each other.
        ResumeError: the output folder holds a run that this one does not continue.
        ExportError, StartupError, SettingsError: see `_teacher`.
    """
    torch.set_num_threads(settings.threads or available_cpus())
    output = settings.output
    sources, translated = output / SOURCES, output / TRANSLATED
    if sources.exists() and not settings.resume:
        raise ResumeError(f"{output}: holds a run already; --resume goes on with it, another --output starts anew")
    next(read_pairs(settings), None)  # what is missing, or begins badly, is refused before the teacher is exported
    output.mkdir(parents=True, exist_ok=True)
    bundle, languages = _teacher(settings)
    reader = find_reader(bundle.folder)
    student_config(settings, reader.read(bundle.folder).config)  # refused before anything takes long

    limits, forced = bundle.manifest.limits, len(languages.forced_ids)
    most = min(limits.target_tokens - forced, settings.max_length + 1)
    longest = min(limits.source_tokens, settings.max_length + 1)
    _log(write_sources(sources, settings, languages, longest))
    if code := _translate(settings, bundle.folder, languages, most):
        return code
    print(write_pairs(output / TEXT, translated / SOURCES, settings, languages))
    # The teacher is read once more, so that its weights were not in memory while it decoded.
    print(write_student(settings, reader.read(bundle.folder), languages, bundle.manifest.license))
    return 0


def _teacher(settings: DistillSettings) -> tuple[Bundle, LanguagePair]:
    """Load the teacher's bundle. Another checkpoint is exported to the folder `EXPORTED` first, unless it is there.

    Raises:
        ExportError: the checkpoint cannot be exported.
        OSError: a file of the checkpoint cannot be read.
        ResumeError: the folder has been made of another checkpoint.
        SettingsError: the teacher does not translate between the languages of `settings`.
        StartupError: the bundle does not load.
    """
    folder, exported = settings.teacher, settings.output / EXPORTED
    if not (folder / MANIFEST).is_file():
        digest, noted = _digest(folder), exported.with_name(f"{exported.name}.sha256")
        if not (exported / MANIFEST).is_file():
            noted.write_text(digest, encoding="ascii")
            export_checkpoint(
                ExportSettings(checkpoint=folder, output=exported, precision="fp32", threads=settings.threads), _log
            )
        elif not noted.is_file() or noted.read_text(encoding="ascii") != digest:
            raise ResumeError(f"{exported}: comes from another teacher; another --output starts anew")
        folder = exported
    bundle = load_bundle(folder)
    tokenizer = load_tokenizer(bundle)
    return bundle, find_pair(bundle.manifest.languages, tokenizer, settings.source_language, settings.target_language)


def _digest(folder: Path) -> str:
    """A digest of the names and contents of all files of a checkpoint: a folder, or one file."""
    whole = hashlib.sha256()
    for path in sorted(path for path in (folder, *folder.rglob("*")) if path.is_file()):
        with path.open("rb") as file:
            whole.update(f"{path.relative_to(folder)}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return whole.hexdigest()


def _translate(settings: DistillSettings, teacher: Path, languages: LanguagePair, max_length: int) -> int:
    """Have `translane batch` translate the sources, through kills; return its exit code."""
    flags = {
        "output": settings.output / TRANSLATED,
        "model": teacher,
        "field": "source",
        "source-language": languages.source,
        "target-language": languages.target,
        "beam-size": settings.beam_size,
        "num-hypotheses": settings.nbest,
        "length-penalty": settings.length_penalty,
        "max-length": max_length,
        "leave-out": "unended",
    }
    if settings.max_batch_size:
        flags["max-batch-size"] = settings.max_batch_size
    if settings.threads:
        flags |= {"replicas": settings.threads, "threads": 1}
    arguments = [f"--{name}={value}" for name, value in flags.items()]
    command = [sys.executable, "-m", "translane", "batch", str(settings.output / SOURCES), "--no-split-sentences"]
    # A group of its own: Ctrl-C reaches this process alone, which hands it on.
    before = signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        with subprocess.Popen([*command, *arguments], stdout=sys.stderr, process_group=0) as batch:  # noqa: S603 - of settings
            try:
                return batch.wait()
            except BaseException:
                batch.send_signal(signal.SIGINT)
                batch.wait()
                raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _log(line: str) -> None:
    print(f"translane distill: {printable(line)}", file=sys.stderr, flush=True)
