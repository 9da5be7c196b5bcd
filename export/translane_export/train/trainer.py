"""The training loop: step, and every so often validate and keep what came out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from translane_export.core.checkpoint import save_checkpoint
from translane_export.model import Transformer
from translane_export.train.batches import plan_batches
from translane_export.train.corpus import Corpus
from translane_export.train.errors import TrainError
from translane_export.train.evaluate import Evaluation, evaluate_model
from translane_export.train.fine_tuning import Start
from translane_export.train.log import Log
from translane_export.train.parallel import Parallel, seed_others
from translane_export.train.settings import TrainSettings
from translane_export.train.state import KeptWeights, RunDescription, RunState, TimeLimit, load_state, save_state
from translane_export.train.update import Updater, choose_device

STATE_FILE = "resume.safetensors"
BEST, LATEST, WEIGHTS = "best", "latest", "weights"
_SAMPLE_SENTENCES = 64
# Work that has to fit into the time limit.
_STEP, _EPOCH, _VALIDATION = "a step", "the data of an epoch", "a validation"


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `best` is the checkpoint folder to export; its BLEU is on validation, with averaged weights."""

    reason: str
    step: int
    best: Path
    best_bleu: float
    best_step: int


class Trainer:
    """One run in one output folder.

    best/ and latest/ are checkpoint folders with averaged weights; weights/ holds what is averaged; resume.safetensors
    is written after each validation, and everything a resumed run does follows from it and the settings. Process 0
    alone validates, saves and reports.
    """

    def __init__(
        self,
        settings: TrainSettings,
        corpus: Corpus,
        output: Path,
        *,
        limit: TimeLimit,
        start: Start | None = None,
        parallel: Parallel | None = None,
    ) -> None:
        self._settings, self._corpus, self._output, self._limit = settings, corpus, output, limit
        self._parallel = parallel or Parallel()
        self._device = choose_device(settings.device, self._parallel.local_rank)
        source, target = map(len, corpus.vocabularies)
        self._config = start.config if start else settings.transformer_config(source_size=source, target_size=target)
        torch.manual_seed(settings.seed)
        self._model = Transformer(self._config)
        if start:
            start.load_into(self._model)
        corpus.load_word_vectors(self._model)
        self._model.to(self._device).train()
        self._averaged = Transformer(self._config).to(self._device)  # before the random state is put back
        self._updater = Updater(self._model, settings, self._parallel)
        self._description = RunDescription(settings, corpus, start.name if start else "")
        self._state = RunState()
        if (output / STATE_FILE).exists():
            self._state = load_state(
                output / STATE_FILE, self._model, self._updater.optimizer, self._description.identity()
            )
            self._limit.resume(self._state.seconds)
            self._limit.expect(_VALIDATION, self._state.validation_seconds)
        self._parallel.share_tensors((*self._model.parameters(), *self._model.buffers()))
        seed_others(settings.seed, self._state.step, self._parallel)
        self._kept = KeptWeights(output / WEIGHTS)

    def describe(self) -> str:
        """Return a line for people about model, data and machine."""
        parameters = sum(parameter.numel() for parameter in self._model.parameters())
        together = f" in {self._parallel.size} processes" if self._parallel.size > 1 else ""
        return (
            f"{parameters:,} parameters, {len(self._corpus.train.pairs):,} training pairs, "
            f"vocabularies {self._config.source_vocab_size:,} and {self._config.target_vocab_size:,}, "
            f"{self._device.type} in {'bf16' if self._updater.bf16 else 'fp32'}{together}, "
            f"from step {self._state.step:,}"
        )

    def run(self) -> Outcome:
        """Train until a limit is reached; returns where the result is.

        Raises:
            TrainError: the run diverges, or ends before its first step.
            DataError: the text cannot be used.
            OSError: something cannot be saved.
        """
        log = None
        if self._parallel.rank == 0:
            log = Log(self._settings, self._output, self._state, self._limit)
        try:
            reason = self._train(log)
            if not self._state.step:
                raise TrainError(f"{reason} before the first step")
            self._finish(log)
        finally:
            if log:
                log.close()
        state = self._state
        return Outcome(reason, state.step, self._output / BEST, state.best_bleu, state.best_step)

    def _train(self, log: Log | None) -> str:
        state, settings = self._state, self._settings
        while not (reason := self._reason_to_stop(_EPOCH, _STEP, _VALIDATION)):
            with self._limit.measure(_EPOCH):
                pairs = self._corpus.epoch_pairs(state.epoch)
                mixed = self._config.norm_kind == "batch"
                plan = plan_batches(pairs, settings.max_tokens, settings.seed, state.epoch, mixed=mixed)
            if settings.max_epochs and log:
                log.expect(state.step - state.batch + len(plan) * (settings.max_epochs - state.epoch))
            for rows in plan[state.batch :]:
                with self._limit.measure(_STEP):
                    update = self._updater.update([pairs[row] for row in rows], state.step + 1)
                state.step += 1
                state.batch += 1
                if log:
                    log.update(update)
                if state.step % settings.valid_every == 0:
                    self._validate_and_save(log)
                if reason := self._reason_to_stop(_STEP, _VALIDATION):
                    return reason
            state.epoch, state.batch = state.epoch + 1, 0
        return reason

    def _reason_to_stop(self, *works: str) -> str:
        """Return why the run ends here, or nothing: the time has to suffice for each of `works`."""
        state, settings = self._state, self._settings
        if settings.max_steps and state.step >= settings.max_steps:
            return f"{settings.max_steps:,} steps are done"
        if settings.max_epochs and state.epoch >= settings.max_epochs:
            return f"{settings.max_epochs:,} epochs are done"
        if settings.patience and state.stale_validations >= settings.patience:
            return f"{settings.patience} validations without a better BLEU"
        # All processes have to stop at the same step, and their clocks differ.
        if settings.max_minutes and not self._parallel.share([self._limit.allows(*works)])[0]:
            return f"{settings.max_minutes:g} minutes are over"
        return ""

    def _validate_and_save(self, log: Log | None) -> None:
        """Validate, and save where a killed run resumes."""
        self._updater.check(self._state.step)
        self._parallel.share_tensors(self._model.buffers())
        if log:
            log.end_window()
            with self._limit.measure(_VALIDATION):
                self._validate(log)
                self._save_state()
                # Weights that no later average takes go once the state that leaves them out is on disk. Of those that
                # the end of an earlier part left, no state knows.
                self._state.checkpoints = self._state.checkpoints[-self._settings.average :]
                self._kept.keep(self._state.checkpoints)
                log.begin_window()
        self._follow()
        seed_others(self._settings.seed, self._state.step, self._parallel)

    def _finish(self, log: Log | None) -> None:
        """Save the end of the run. Between two validations, validate what a resumed run does not know of."""
        self._updater.check(self._state.step)
        self._parallel.share_tensors(self._model.buffers())
        state = self._state
        if log:
            log.end_window()
            validated = log.last_validation()
            self._save_state()
            if validated:
                state.best_bleu, state.best_step = validated["best_bleu"], validated["best_step"]
            elif state.step and state.step % self._settings.valid_every:
                self._validate(log)
            log.begin_window()
        self._follow()

    def _follow(self) -> None:
        """Tell all processes what process 0 found in a validation."""
        state = self._state
        values = self._parallel.share([state.best_bleu, state.best_step, state.stale_validations])
        state.best_bleu, state.best_step, state.stale_validations = values[0], int(values[1]), int(values[2])

    def _validate(self, log: Log) -> None:
        """Score the average of the last checkpoints; keep it as latest/, and as best/ where it is the best so far."""
        state, corpus = self._state, self._corpus
        self._kept.save(state.step, self._model.state_dict())
        if state.step not in state.checkpoints:
            state.checkpoints.append(state.step)
        self._averaged.load_state_dict(self._kept.average(state.checkpoints[-self._settings.average :]))
        evaluation = evaluate_model(self._averaged, *corpus.vocabularies, corpus.valid, self._settings.target_language)
        state.stale_validations += 1
        is_best = evaluation.bleu > state.best_bleu
        if is_best:
            state.best_bleu, state.best_step, state.stale_validations = evaluation.bleu, state.step, 0
        state.seconds = self._limit.seconds
        for name in (LATEST, BEST)[: 1 + is_best]:
            self._save_checkpoint(self._output / name, evaluation)
        log.validation(evaluation)

    def _save_checkpoint(self, directory: Path, evaluation: Evaluation) -> None:
        settings, corpus = self._settings, self._corpus
        source, target = corpus.vocabularies
        save_checkpoint(
            directory,
            config=self._config,
            state_dict=self._averaged.state_dict(),
            source_tokenizer=source.path,
            target_tokenizer=target.path,
            source_language=settings.source_language,
            target_language=settings.target_language,
            samples=tuple(pair.source for pair in corpus.valid.pairs[:_SAMPLE_SENTENCES]),
            metadata=self._description.metadata(self._state, evaluation),
        )

    def _save_state(self) -> None:
        self._state.seconds = self._limit.seconds
        self._state.validation_seconds = self._limit.longest(_VALIDATION)
        identity = self._description.identity()
        save_state(self._output / STATE_FILE, self._state, self._model, self._updater.optimizer, identity)
