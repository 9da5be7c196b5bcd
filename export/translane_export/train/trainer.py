"""The training loop: step, and every so often validate and keep what came out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from translane_export.checkpoint import load_tensors, save_checkpoint, save_tensors
from translane_export.model import Transformer, label_smoothed_cross_entropy
from translane_export.train.batches import Batch, collate, plan_batches
from translane_export.train.corpus import Corpus
from translane_export.train.devices import choose_device, uses_bf16
from translane_export.train.errors import TrainError
from translane_export.train.evaluate import Evaluation, evaluate_model
from translane_export.train.progress import Progress
from translane_export.train.schedule import WarmupInverseSqrt
from translane_export.train.settings import TrainSettings
from translane_export.train.state import FREE_ON_RESUME, RunState, load_state, save_state
from translane_export.train.vocabulary import PAD_ID

STATE_FILE = "resume.safetensors"
_SAMPLE_SENTENCES = 64


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
    is written after each validation, and everything a resumed run does follows from it and the settings.
    """

    def __init__(self, settings: TrainSettings, corpus: Corpus, output: Path) -> None:
        self._settings = settings
        self._corpus = corpus
        self._output = output
        self._device = choose_device(settings.device)
        self._bf16 = uses_bf16(settings.precision, self._device)
        self._schedule = WarmupInverseSqrt(
            settings.learning_rate, settings.warmup_steps, settings.max_steps, settings.cooldown_steps
        )
        self._config = settings.transformer_config(
            source_size=len(corpus.source_vocabulary), target_size=len(corpus.target_vocabulary)
        )
        torch.manual_seed(settings.seed)
        self._model = Transformer(self._config)
        corpus.load_word_vectors(self._model)
        self._model.to(self._device).train()
        self._averaged = Transformer(self._config).to(self._device)
        self._optimizer = torch.optim.AdamW(
            self._model.parameters(),
            lr=0.0,
            betas=(settings.adam_beta1, settings.adam_beta2),
            eps=1e-9,  # §5.3 of the paper
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._state = RunState()
        (output / "weights").mkdir(parents=True, exist_ok=True)
        if (output / STATE_FILE).exists():
            self._state = load_state(output / STATE_FILE, self._model, self._optimizer, self._identity())

    def describe(self) -> str:
        """Return a line for people about model, data and machine."""
        parameters = sum(parameter.numel() for parameter in self._model.parameters())
        return (
            f"{parameters:,} parameters, {len(self._corpus.train.pairs):,} training pairs, "
            f"vocabularies {self._config.source_vocab_size:,} and {self._config.target_vocab_size:,}, "
            f"{self._device.type} in {'bf16' if self._bf16 else 'fp32'}, from step {self._state.step:,}"
        )

    def run(self) -> Outcome:
        """Train until a limit is reached; returns where the result is."""
        progress = Progress(
            max_steps=self._settings.max_steps,
            max_seconds=self._settings.max_minutes * 60,
            done_steps=self._state.step,
            done_seconds=self._state.seconds,
        )
        try:
            reason = self._train(progress)
            self._save_state()
            if self._state.step and self._state.step % self._settings.valid_every:
                # The last checkpoint lies between two validations: it is kept, and a resumed run does not know of it.
                self._validate(progress)
        finally:
            progress.close()
        state = self._state
        return Outcome(reason, state.step, self._output / "best", state.best_bleu, state.best_step)

    def _train(self, progress: Progress) -> str:
        state, settings = self._state, self._settings
        while not (reason := self._reason_to_stop()):
            pairs = self._corpus.epoch_pairs(state.epoch)
            plan = plan_batches(pairs, settings.max_tokens, settings.seed, state.epoch)
            if settings.max_epochs:
                progress.expect(state.step - state.batch + len(plan) * (settings.max_epochs - state.epoch))
            for rows in plan[state.batch :]:
                started = time.monotonic()
                batch = collate([pairs[row] for row in rows]).to(self._device)
                loss = self._step(batch)
                state.step += 1
                state.batch += 1
                progress.update(loss, batch.target_tokens)
                state.seconds += time.monotonic() - started
                if state.step % settings.valid_every == 0:
                    self._validate(progress)
                    self._save_state()
                    self._prune()
                if reason := self._reason_to_stop():
                    return reason
            state.epoch, state.batch = state.epoch + 1, 0
        return reason

    def _step(self, batch: Batch) -> float:
        """Update the weights once; returns the mean loss per target token in nats."""
        settings = self._settings
        for group in self._optimizer.param_groups:
            group["lr"] = self._schedule.rate(self._state.step + 1)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16):
            logits = self._model(batch.source_ids, batch.source_lengths, batch.target_input)  # [B, T, V]
        loss = label_smoothed_cross_entropy(logits, batch.target_output, PAD_ID, settings.label_smoothing).mean
        self._require_finite(loss, "loss")
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        if settings.clip_norm:
            norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), settings.clip_norm)
            self._require_finite(norm, "gradient norm")
        self._optimizer.step()
        return float(loss.detach())

    def _require_finite(self, value: torch.Tensor, name: str) -> None:
        """Raise TrainError where the run diverges, before the weights take it up."""
        if not torch.isfinite(value):
            raise TrainError(
                f"step {self._state.step + 1}: the {name} is not finite; "
                "lower --learning-rate or lengthen --warmup-steps"
            )

    def _reason_to_stop(self) -> str:
        state, settings = self._state, self._settings
        if settings.max_steps and state.step >= settings.max_steps:
            return f"{settings.max_steps:,} steps are done"
        if settings.max_epochs and state.epoch >= settings.max_epochs:
            return f"{settings.max_epochs:,} epochs are done"
        if settings.max_minutes and state.seconds >= settings.max_minutes * 60:
            return f"{settings.max_minutes:g} minutes are over"
        if settings.patience and state.stale_validations >= settings.patience:
            return f"{settings.patience} validations without a better BLEU"
        return ""

    def _validate(self, progress: Progress) -> None:
        """Score the average of the last checkpoints; keep it as latest/, and as best/ where it is the best so far."""
        started = time.monotonic()
        state = self._state
        save_tensors(self._weights(state.step), self._model.state_dict())
        if state.step not in state.checkpoints:
            state.checkpoints.append(state.step)
        averaged = self._average(state.checkpoints[-self._settings.average :])
        self._averaged.load_state_dict(averaged)
        corpus = self._corpus
        vocabularies = corpus.source_vocabulary, corpus.target_vocabulary
        evaluation = evaluate_model(self._averaged, *vocabularies, corpus.valid, self._settings.target_language)
        state.stale_validations += 1
        is_best = evaluation.bleu > state.best_bleu
        if is_best:
            state.best_bleu, state.best_step, state.stale_validations = evaluation.bleu, state.step, 0
        state.seconds += time.monotonic() - started
        for name in ("latest", "best")[: 1 + is_best]:
            self._save_checkpoint(self._output / name, evaluation)
        progress.say(
            f"step {state.step:,}, epoch {state.epoch + 1}, {state.seconds / 60:.1f} min: "
            f"valid BLEU {evaluation.bleu:.2f}, chrF {evaluation.chrf:.2f}"
            f" (best {state.best_bleu:.2f} at step {state.best_step:,})"
        )

    def _average(self, steps: list[int]) -> dict[str, torch.Tensor]:
        # A checkpoint pruned just before a kill may be gone; the average is then over the others.
        paths = [path for path in map(self._weights, steps) if path.exists()]
        total = load_tensors(paths[0]).tensors
        for path in paths[1:]:
            for name, tensor in load_tensors(path).tensors.items():
                total[name] = total[name] + tensor
        return {name: tensor / len(paths) for name, tensor in total.items()}

    def _save_checkpoint(self, directory: Path, evaluation: Evaluation) -> None:
        state, settings, corpus = self._state, self._settings, self._corpus
        save_checkpoint(
            directory,
            config=self._config,
            state_dict=self._averaged.state_dict(),
            source_tokenizer=corpus.source_vocabulary.path,
            target_tokenizer=corpus.target_vocabulary.path,
            source_language=settings.source_language,
            target_language=settings.target_language,
            samples=tuple(pair.source for pair in corpus.valid.pairs[:_SAMPLE_SENTENCES]),
            metadata={
                "steps": state.step,
                "epochs": state.epoch,
                "minutes": round(state.seconds / 60, 1),
                "averaged_steps": state.checkpoints[-settings.average :],
                "seed": settings.seed,
                "valid_bleu": round(evaluation.bleu, 2),
                "valid_chrf": round(evaluation.chrf, 2),
                "bleu_signature": evaluation.bleu_signature,
                "chrf_signature": evaluation.chrf_signature,
                "data_licence": settings.data_licence,
                "training_pairs": len(corpus.train.pairs),
                "settings": self._portable_settings(),
            },
        )

    def _portable_settings(self) -> dict[str, Any]:
        """Settings as JSON values; of paths the file name alone, as they differ from machine to machine."""
        values = self._settings.model_dump(exclude={"output", "resume", "evaluate", "test"})
        return {name: value.name if isinstance(value, Path) else value for name, value in values.items()}

    def _identity(self) -> dict[str, Any]:
        values = {name: value for name, value in self._portable_settings().items() if name not in FREE_ON_RESUME}
        return {**values, "training data": self._corpus.train.digest, "validation data": self._corpus.valid.digest}

    def _save_state(self) -> None:
        save_state(self._output / STATE_FILE, self._state, self._model, self._optimizer, self._identity())

    def _prune(self) -> None:
        """Delete weights that no later average takes; only after the state that leaves them out is on disk."""
        state = self._state
        for step in state.checkpoints[: -self._settings.average]:
            self._weights(step).unlink(missing_ok=True)
        state.checkpoints = state.checkpoints[-self._settings.average :]

    def _weights(self, step: int) -> Path:
        return self._output / "weights" / f"step-{step:07d}.safetensors"
