"""What `translane-train` does with its arguments: a training run or an evaluation."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import torch

from translane_export.errors import ExportError
from translane_export.train.corpus import build_corpus, read_texts
from translane_export.train.data import Columns, read_parallel_text
from translane_export.train.errors import ResumeError, TrainError
from translane_export.train.evaluate import evaluate_checkpoint, write_translations
from translane_export.train.fine_tuning import read_start
from translane_export.train.parallel import Parallel, joined
from translane_export.train.report import check_extras
from translane_export.train.settings import ENV_PREFIX, TrainSettings
from translane_export.train.time_limit import TimeLimit
from translane_export.train.trainer import LATEST, STATE_FILE, Trainer
from translane_server.errors import SettingsError, is_about_memory
from translane_server.settings_loader import load_settings

_PROGRAM = "translane-train"


def run(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Train or evaluate; returns the exit code: 0 done, 1 failed, 2 wrong settings, 130 interrupted."""
    rank = environ.get("RANK", "0")  # as torchrun numbers several processes
    program = _PROGRAM if rank == "0" else f"{_PROGRAM} (process {rank[:10]})"
    try:
        settings = load_settings(TrainSettings, arguments, environ, prog=_PROGRAM, env_prefix=ENV_PREFIX)
        if settings.threads:
            torch.set_num_threads(settings.threads)
        if settings.evaluate:
            _evaluate(settings)
        else:
            limit = TimeLimit(settings.max_minutes * 60)
            check_extras(settings)
            with joined(environ) as parallel:
                _train(settings, parallel, limit)
    except SettingsError as error:
        return _fail(program, str(error), error.exit_code)
    except (TrainError, ExportError) as error:
        return _fail(program, str(error), 1)
    except OSError as error:
        return _fail(program, f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)
    except (RuntimeError, MemoryError) as error:
        if not is_about_memory(error):
            raise
        return _fail(program, "there is not enough memory; lower the sizes of the model, or --max-tokens", 1)
    except KeyboardInterrupt:
        if rank == "0":  # Ctrl-C interrupts all processes
            print(f"{program}: interrupted; --resume continues from the last validation", file=sys.stderr)
        return 130
    return 0


def _train(settings: TrainSettings, parallel: Parallel, limit: TimeLimit) -> None:
    assert settings.output
    output = settings.output
    (resuming,) = parallel.share([(output / STATE_FILE).exists()])
    if resuming and not settings.resume:
        raise ResumeError(f"{output}: holds a run already; --resume continues it, another --output starts anew")
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
    if settings.beam_size == 1:
        evaluation = evaluate_checkpoint(settings.evaluate, text)
    else:
        from translane_export.train.beams import Beams, beam_search  # late: with it comes the exporter

        beams = Beams(settings.beam_size, settings.length_penalty)
        evaluation = evaluate_checkpoint(
            settings.evaluate, text, lambda model, sources: beam_search(model, sources, beams)
        )
    if settings.output_translations:
        write_translations(settings.output_translations, evaluation)
    print(evaluation)


def _fail(program: str, message: str, code: int) -> int:
    print(f"{program}: {message}", file=sys.stderr)
    return code
