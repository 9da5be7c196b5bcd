"""One update of the weights: learning rate, loss, gradients, clipping, Adam; and on which device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from translane_export.model import Transformer, label_smoothed_cross_entropy
from translane_export.train.batches import EncodedPair, collate
from translane_export.train.errors import TrainError
from translane_export.train.parallel import Parallel, SharedGradients, batch_norms_may_fail
from translane_export.train.settings import TrainSettings
from translane_export.train.vocabulary import PAD_ID
from translane_server.core.errors import SettingsError


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
        rate = learning_rate(self._settings, step)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = self._backward(pairs) if self._shared is None else self._backward_together(pairs, self._shared)
        _require_finite(loss, "loss", step)
        if self._settings.clip_norm:
            norm = torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._settings.clip_norm)
            _require_finite(norm, "gradient norm", step)
        self.optimizer.step()
        return Update(float(loss), _target_tokens(pairs), rate)

    def check(self, step: int) -> None:
        """Raise TrainError if the update number `step` has made weights that are not finite."""
        for each in self._model.parameters():
            _require_finite(each.detach().abs().max(), "largest weight", step)

    def _backward(self, pairs: Sequence[EncodedPair]) -> torch.Tensor:
        """Set the gradients of the mean loss; return that loss, a scalar."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self._mean_loss(pairs)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _backward_together(self, pairs: Sequence[EncodedPair], gradients: SharedGradients) -> torch.Tensor:
        """Do the same with the pairs of all processes. The mean is over tokens, so a process counts by its tokens."""
        gradients.clear()
        rank, size = self._parallel.rank, self._parallel.size
        if len(pairs) < size:  # too few for all: each computes the whole, as no batch norm can wait for who has nothing
            mine, share = pairs, 1 / size
        else:
            mine = pairs[rank::size]  # neighbours, which are alike in length, go to different processes
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


def learning_rate(settings: TrainSettings, step: int) -> float:
    """Return the rate of the `step`-th update, counted from 1.

    Linear warm-up to the peak, then falling with the inverse square root of the step (Vaswani et al. 2017, §5.3). With
    a cool-down, the last updates also fall linearly towards zero: the weights settle, which the inverse square root
    alone takes far longer to let them do (Hägele et al. 2024, https://arxiv.org/abs/2405.18392).
    """
    if step < settings.warmup_steps:
        rate = settings.learning_rate * step / settings.warmup_steps
    else:
        rate = settings.learning_rate * math.sqrt(max(settings.warmup_steps, 1) / step)
    if not settings.cooldown_steps:
        return rate
    left = max(settings.max_steps - step + 1, 0)
    return rate * min(left / (settings.cooldown_steps + 1), 1.0)


def choose_device(name: Literal["auto", "cpu", "cuda"], number: int = 0) -> torch.device:
    """Return the device; "auto" takes a GPU where there is one.

    It is the GPU ``number`` where this is one of several processes of a machine, and becomes PyTorch's default.

    Raises:
        SettingsError: a GPU that is asked for is missing.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingsError("--device: cuda is asked for, but PyTorch finds no GPU")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    if number >= torch.cuda.device_count():
        raise SettingsError(
            f"--device: process {number} of this machine has no GPU, as PyTorch finds {torch.cuda.device_count()};"
            " start fewer processes"
        )
    torch.cuda.set_device(number)
    return torch.device("cuda", number)


def uses_bf16(precision: Literal["auto", "bf16", "fp32"], device: torch.device) -> bool:
    """Say whether to autocast to bfloat16; "auto" asks whether the hardware multiplies it natively."""
    if precision != "auto":
        return precision == "bf16"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
