"""`translane-train`: the only reader of argv and environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import torch

from translane_export.checkpoint import CheckpointError
from translane_export.train.corpus import build_corpus, read_texts
from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.errors import ResumeError, TrainError
from translane_export.train.evaluate import evaluate_checkpoint
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_export.train.trainer import STATE_FILE, Trainer
from translane_server.errors import SettingsError
from translane_server.settings import load_settings


def main(argv: Sequence[str] | None = None) -> int:
    """Train or evaluate; returns the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    try:
        settings = load_settings(
            TrainSettings,
            sys.argv[1:] if argv is None else argv,
            os.environ,
            prog="translane-train",
            env_prefix=ENV_PREFIX,
        )
        if settings.threads:
            torch.set_num_threads(settings.threads)
        if settings.evaluate:
            _evaluate(settings)
        else:
            _train(settings)
    except SettingsError as error:
        return _fail(error, 2)
    except (TrainError, CheckpointError, OSError) as error:
        return _fail(error, 1)
    except KeyboardInterrupt:
        print("translane-train: interrupted; --resume continues from the last validation", file=sys.stderr)
        return 130
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


def _fail(error: Exception, code: int) -> int:
    print(f"translane-train: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
