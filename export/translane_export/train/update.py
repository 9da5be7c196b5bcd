"""One update of the weights: loss, gradients, clipping, Adam."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from translane_export.model import Transformer, label_smoothed_cross_entropy
from translane_export.train.batches import EncodedPair, collate
from translane_export.train.devices import uses_bf16
from translane_export.train.errors import TrainError
from translane_export.train.parallel import Parallel, batch_norms_may_fail, part
from translane_export.train.schedule import WarmupInverseSqrt
from translane_export.train.settings import TrainSettings
from translane_export.train.shared_model import SharedGradients
from translane_export.train.vocabulary import PAD_ID


@dataclass(frozen=True)
class Update:
    """What an update was: mean loss per target token [nats], the batch's target tokens, and the learning rate."""

    loss: float
    target_tokens: int
    learning_rate: float


class Updater:
    """Updates a model that is on its device. Several processes make the update that one would make, to rounding."""

    def __init__(self, model: Transformer, settings: TrainSettings, parallel: Parallel) -> None:
        self._model = model
        self._settings = settings
        self._parallel = parallel
        self._device = next(model.parameters()).device
        self.bf16 = uses_bf16(settings.precision, self._device)
        self._schedule = WarmupInverseSqrt(
            settings.learning_rate, settings.warmup_steps, settings.max_steps, settings.cooldown_steps
        )
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=0.0,
            betas=(settings.adam_beta1, settings.adam_beta2),
            eps=1e-9,  # §5.3 of the paper
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self._shared = SharedGradients(list(model.parameters()), parallel) if parallel.size > 1 else None

    def update(self, pairs: Sequence[EncodedPair], step: int) -> Update:
        """Make the update number `step`, counted from 1, with the batch `pairs`.

        Raises:
            TrainError: the run diverges; the weights are as they were.
        """
        rate = self._schedule.rate(step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self._backward(pairs) if self._shared is None else self._backward_together(pairs, self._shared)
        _require_finite(loss, "loss", step)
        if self._settings.clip_norm:
            norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.clip_norm)
            _require_finite(norm, "gradient norm", step)
        self.optimizer.step()
        return Update(float(loss), _target_tokens(pairs), rate)

    def _backward(self, pairs: Sequence[EncodedPair]) -> torch.Tensor:
        """Set the gradients of the mean loss; return that loss, a scalar."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._mean_loss(pairs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _backward_together(self, pairs: Sequence[EncodedPair], gradients: SharedGradients) -> torch.Tensor:
        """Do the same with the pairs of all processes. The mean is over tokens, so a process counts by its tokens."""
        gradients.clear()
        mine, share = part(pairs, self._parallel), 1 / self._parallel.size
        if len(pairs) < self._parallel.size:
            mine = pairs  # too few for all: each computes the whole, as no batch norm can wait for who has nothing
        else:
            share = _target_tokens(mine) / _target_tokens(pairs)
        with batch_norms_may_fail():
            loss = self._mean_loss(mine) * share
            loss.backward()  # type: ignore[no-untyped-call]
        return gradients.sum(loss.detach())

    def _mean_loss(self, pairs: Sequence[EncodedPair]) -> torch.Tensor:
        batch = collate(pairs).to(self._device)
        with torch.autocast(self._device.type, torch.bfloat16, enabled=self.bf16):
            logits = self._model(batch.source_ids, batch.source_lengths, batch.target_input)  # [B, T, V]
        return label_smoothed_cross_entropy(logits, batch.target_output, PAD_ID, self._settings.label_smoothing).mean


def _target_tokens(pairs: Sequence[EncodedPair]) -> int:
    return sum(pair.target_tokens for pair in pairs)


def _require_finite(value: torch.Tensor, name: str, step: int) -> None:
    """Raise TrainError where the run diverges, before the weights take it up."""
    if not torch.isfinite(value):
        raise TrainError(f"step {step}: the {name} is not finite; lower --learning-rate or lengthen --warmup-steps")
