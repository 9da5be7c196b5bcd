"""What `translane-train` does with its arguments: a training run or an evaluation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import torch

from translane_export.errors import ExportError
from translane_export.train.corpus import build_corpus, read_texts
from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.errors import ResumeError, TrainError
from translane_export.train.evaluate import evaluate_checkpoint
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_export.train.trainer import STATE_FILE, Trainer
from translane_server.errors import SettingsError
from translane_server.settings_loader import load_settings

_PROGRAM = "translane-train"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Train or evaluate; returns the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    try:
        settings = load_settings(TrainSettings, arguments, environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        if settings.evaluate:
            _evaluate(settings)
        else:
            _train(settings)
    except SettingsError as error:
        return _fail(str(error), error.exit_code)
    except (TrainError, ExportError, OSError) as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:
        return _fail("interrupted; --resume continues from the last validation", 130)
    return 0


def _train(settings: TrainSettings) -> None:
    assert settings.train
    assert settings.valid
    assert settings.output
    output = settings.output
    resuming = (output / STATE_FILE).exists()
    if resuming and not settings.resume:
        raise ResumeError(f"{output}: holds a run already; --resume continues it, another --output starts anew")
    texts = read_texts(settings, settings.train, settings.valid)
    for text in texts:
        print(text.summary(), file=sys.stderr)
    output.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(settings, build_corpus(settings, *texts, output, reuse=resuming), output)
    print(trainer.describe(), file=sys.stderr, flush=True)
    outcome = trainer.run()
    print(f"ended: {outcome.reason}, after {outcome.step:,} steps")
    print(f"best: {outcome.best} (valid BLEU {outcome.best_bleu:.2f} at step {outcome.best_step:,})")


def _evaluate(settings: TrainSettings) -> None:
    assert settings.evaluate
    assert settings.test
    columns = Columns(settings.source_column, settings.target_column)
    text = read_parallel_text(settings.test, columns, settings.bad_lines)
    print(evaluate_checkpoint(settings.evaluate, text))


def _fail(message: str, code: int) -> int:
    print(f"{_PROGRAM}: {message}", file=sys.stderr)
    return code
