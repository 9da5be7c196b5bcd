"""A training run or an evaluation, as the settings say."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import find_spec

import torch

from translane_export.train.corpus import build_corpus, read_texts
from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.errors import ResumeError, TrainError
from translane_export.train.evaluate import evaluate_checkpoint
from translane_export.train.fine_tuning import read_start
from translane_export.train.parallel import Parallel, joined
from translane_export.train.settings import TrainSettings
from translane_export.train.state import TimeLimit
from translane_export.train.trainer import BEST, LATEST, STATE_FILE, WEIGHTS, Trainer
from translane_server.core.errors import SettingsError


def run(settings: TrainSettings, environ: Mapping[str, str]) -> None:
    """Train or evaluate."""
    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.evaluate:
        _evaluate(settings)
        return
    limit = TimeLimit(settings.max_minutes * 60)
    if settings.tensorboard and find_spec("tensorboard") is None:  # said before any work is done
        raise SettingsError(
            "--tensorboard: tensorboard is not installed; pip install 'translane[tensorboard]' installs it"
        )
    with joined(environ) as parallel:
        _train(settings, parallel, limit)


def _train(settings: TrainSettings, parallel: Parallel, limit: TimeLimit) -> None:
    assert settings.output
    output = settings.output
    names = (STATE_FILE, WEIGHTS, BEST, LATEST)
    resuming, begun, *held = parallel.share([(output / name).exists() for name in names])
    if resuming and not settings.resume:
        raise ResumeError(f"{output}: holds a run already; --resume continues it, another --output starts anew")
    if any(held) and not (settings.resume and begun):  # the first validation would replace it
        raise ResumeError(
            f"{output}: holds a checkpoint, and no run that --resume continues; another --output starts anew"
        )
    start = None
    if settings.init:
        own = output / LATEST
        start = read_start(settings, settings.init, own if resuming and own.exists() else None)
        settings = start.settings
    assert settings.train
    assert settings.valid
    texts = read_texts(settings, settings.train, settings.valid)
    first = parallel.rank == 0
    if first:
        for text in texts:
            print(text.summary(), file=sys.stderr)
        output.mkdir(parents=True, exist_ok=True)
        vocabularies = start.vocabularies if start else ()
        corpus = build_corpus(settings, *texts, output, reuse=bool(resuming), given=vocabularies)
        parallel.barrier()
    else:
        parallel.barrier()  # until the vocabularies are there
        corpus = build_corpus(settings, *texts, output, reuse=True)
    trainer = Trainer(settings, corpus, output, start=start, parallel=parallel, limit=limit)
    if first:
        print(trainer.describe(), file=sys.stderr, flush=True)
    outcome = trainer.run()
    if first:
        print(f"ended: {outcome.reason}, after {outcome.step:,} steps")
        print(f"best: {outcome.best} (valid BLEU {outcome.best_bleu:.2f} at step {outcome.best_step:,})")


def _evaluate(settings: TrainSettings) -> None:
    assert settings.evaluate
    assert settings.test
    columns = Columns(settings.source_column, settings.target_column)
    text = read_parallel_text(settings.test, columns, settings.bad_lines)
    evaluation = evaluate_checkpoint(settings.evaluate, text)
    if settings.output_translations:
        lines = "".join(f"{hypothesis}\n" for hypothesis in evaluation.hypotheses)
        try:
            settings.output_translations.write_text(lines, encoding="utf-8")
        except OSError as error:  # of a full disk, the error has no name of a file
            raise TrainError(f"{settings.output_translations}: cannot be written ({error.strerror})") from None
    print(evaluation)
