"""Norms, and where they stand: LayerNorm(x + Sublayer(x)) in the paper (§3.1), x + Sublayer(LayerNorm(x)) in others.

Layer norm and RMS norm look at one position. Batch norm looks at all of a batch; docs/attention.md tells why that
suits sentences badly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig

_MOMENTUM = 0.1  # of the running statistics, as PyTorch's batch norms have it


class BatchNorm(nn.Module):
    """Normalises each feature over all positions of a batch: Ioffe and Szegedy 2015, https://arxiv.org/abs/1502.03167.

    (x - mean) / sqrt(variance + eps) · weight + bias. In training, mean and variance are of the batch's real positions:
    padding has no part in them. At inference they are running averages over training, so that what a sentence gets
    does not depend on the sentences beside it.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, size: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_var", torch.ones(size))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Normalise ``x`` [..., M]; in training, ``real`` [...] is True where a position is no padding."""
        if not self.training:
            flat = x.reshape(-1, x.shape[-1])
            normed = F.batch_norm(
                flat, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
            )
            return normed.view(x.shape)
        mean, variance, count = _statistics(x if real is None else x[real])
        with torch.no_grad():
            unbiased = variance * (count / (count - 1).clamp(min=1))
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), _MOMENTUM)
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), _MOMENTUM)
        normed = (x - mean) * torch.rsqrt(variance + self.eps) * self.weight + self.bias
        return normed.to(torch.promote_types(x.dtype, self.weight.dtype))


def _statistics(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean [M] and variance [M] of ``x`` [..., M], and how many positions there are, in float32 or better.

    Processes that share a batch find them over the whole batch.
    """
    flat = x.reshape(-1, x.shape[-1]).to(torch.promote_types(x.dtype, torch.float32))
    totals = torch.cat((flat.sum(0), flat.new_tensor([len(flat)])))
    totals = _over_processes(totals)
    count = totals[-1].detach()
    mean = totals[:-1] / count
    variance = _over_processes((flat - mean).square().sum(0)) / count
    return mean, variance, count


def _over_processes(totals: Tensor) -> Tensor:
    """Add up the totals of all processes that train together; gradients flow back to each of them."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return totals
    summed: Tensor = _SumOverProcesses.apply(totals)  # type: ignore[no-untyped-call]
    return summed


class _SumOverProcesses(torch.autograd.Function):
    """The sum of every process's tensor. Each process's loss depends on it, so its gradient is a sum of theirs."""

    @staticmethod
    def forward(_ctx: Any, tensor: Tensor) -> Tensor:
        summed = tensor.clone()
        torch.distributed.all_reduce(summed)
        return summed

    @staticmethod
    def backward(_ctx: Any, *gradients: Tensor) -> Tensor:
        summed = gradients[0].clone()
        torch.distributed.all_reduce(summed)
        return summed


Norm = nn.LayerNorm | nn.RMSNorm | BatchNorm


def build_norm(config: TransformerConfig) -> Norm:
    """Build a norm of the config's kind."""
    match config.norm_kind:
        case "batch":
            return BatchNorm(config.d_model, eps=config.layer_norm_eps)
        case "rms":
            return nn.RMSNorm(config.d_model, eps=config.layer_norm_eps)
    return nn.LayerNorm(config.d_model, eps=config.layer_norm_eps)


def apply_norm(norm: nn.Module, x: Tensor, real: Tensor | None) -> Tensor:
    """Return norm(x) for ``x`` [B, T, M]; ``real`` [B, T] is True where a position is no padding (None: everywhere)."""
    output: Tensor = norm(x, real) if isinstance(norm, BatchNorm) else norm(x)
    return output


def build_final_norm(config: TransformerConfig) -> nn.Module:
    """Build the norm after a whole stack: pre-norm leaves its last residual unnormalised, post-norm does not."""
    wanted = config.norm == "pre" if config.final_norm is None else config.final_norm
    return build_norm(config) if wanted else nn.Identity()


class Residual(nn.Module):
    """The residual connection and norm around a sublayer.

    Post-norm, as in the paper: LayerNorm(x + Sublayer(x)). Pre-norm: x + Sublayer(LayerNorm(x)), which leaves the sums
    of a stack unnormalised until its final norm (Xiong et al. 2020, https://arxiv.org/abs/2002.04745).
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.placement = config.norm
        self.norm = build_norm(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], real: Tensor | None = None) -> Tensor:
        """Apply ``sublayer`` to ``x`` [B, T, M] and add ``x`` back. Dropout falls on the sublayer's output (§5.4).

        ``real`` [B, T] is True where a position is no padding; None means everywhere.
        """
        output: Tensor
        if self.placement == "pre":
            output = self.dropout(sublayer(apply_norm(self.norm, x, real))) + x
        else:
            output = apply_norm(self.norm, self.dropout(sublayer(x)) + x, real)
        return output
