"""What each precision stores, computes in, and is allowed to differ by."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import torch

from translane_export.core.errors import ExportError
from translane_export.model import Transformer
from translane_export.model.transformer import Embedding
from translane_server.bundle.manifest import Precision

WeightStorage = Literal["float32", "float16", "bfloat16"]


@dataclass(frozen=True)
class Numerics:
    """How a bundle's numbers are stored and computed.

    ``for_cuda`` says whether the graphs have the form that ONNX Runtime's CUDA provider takes. ``tolerance`` is the
    largest difference of a logit from PyTorch's; ``token_margin`` is how much better PyTorch may like another token
    than the bundle's choice before that counts as a different token; ``attention_tolerance`` is the largest difference
    of an attention weight (0 … 1).
    """

    precision: Precision
    storage: WeightStorage
    dtype: torch.dtype
    tolerance: float
    token_margin: float
    attention_tolerance: float
    for_cuda: bool = False

    @property
    def stored(self) -> torch.dtype:
        """PyTorch's type of what is stored."""
        dtype: torch.dtype = getattr(torch, self.storage)
        return dtype


_OF_PRECISION: dict[Precision, Numerics] = {
    "fp32": Numerics("fp32", "float32", torch.float32, tolerance=1e-4, token_margin=0.0, attention_tolerance=1e-4),
    # Half a unit in the last place of a logit of 16 is 0.008 already; a choice between two that are closer than the
    # tolerance is rounding's.
    "fp16": Numerics(
        "fp16", "float16", torch.float16, tolerance=0.1, token_margin=0.2, attention_tolerance=0.02, for_cuda=True
    ),
    # A number has three bits less than in float16, so a unit in its last place is eight times as large, and so is what
    # rounding makes of a logit.
    "bf16": Numerics(
        "bf16", "bfloat16", torch.bfloat16, tolerance=0.8, token_margin=1.6, attention_tolerance=0.16, for_cuda=True
    ),
}


def choose_numerics(precision: Precision, storage: WeightStorage | None) -> Numerics:
    """Return the numerics of a precision; `storage` None is the precision's own. int8 is made of fp32, and verified so.

    Raises:
        ExportError: the combination is not available.
    """
    own = _OF_PRECISION["fp32" if precision == "int8" else precision]
    if precision == "fp32" and storage:
        return replace(own, storage=storage)
    stored = "int8" if precision == "int8" else own.storage
    if storage not in (None, stored):
        raise ExportError(f"precision {precision} stores its weights as {stored}; leave --weight-storage out")
    return own


def verified_as(numerics: Numerics) -> Numerics:
    """Return how the graphs compute while they are verified, which ONNX Runtime does on a CPU.

    It cannot run bfloat16 there, so the same graphs run in float32, with the rounded weights. They differ from PyTorch
    by no more than float32 graphs do.
    """
    return choose_numerics("fp32", None) if numerics.precision == "bf16" else numerics


def as_stored(model: Transformer, numerics: Numerics) -> Transformer:
    """Return the model that computes in float32 with the weights the bundle stores: `model` itself if they are its.

    The factors of embeddings and of logits are constants of the graphs, in the type that the graphs compute in.
    """
    if numerics.storage == "float32":
        return model
    rounded = copy.deepcopy(model).float()
    stored = numerics.stored
    with torch.no_grad():
        for tensor in (*rounded.parameters(), *rounded.buffers()):
            # as `share_weights` stores them
            if tensor.is_floating_point() and (numerics.dtype == stored or tensor.ndim >= 2):
                tensor.copy_(tensor.to(stored))
    if numerics.dtype == stored:
        for module in rounded.modules():
            if isinstance(module, Embedding):
                module.scale = _rounded(module.scale, stored)
        rounded.config = rounded.config.changed(logit_scale=_rounded(rounded.config.logit_scale, stored))
    return rounded


def _rounded(number: float, dtype: torch.dtype) -> float:
    return torch.tensor(number).to(dtype).item()


def check_range(model: Transformer, numerics: Numerics, origins: Mapping[str, str]) -> None:
    """Refuse weights that are not finite once they are stored."""
    stored = numerics.stored
    for name, tensor in model.state_dict().items():
        # A NaN is both the least and the largest of the numbers it is among.
        extremes = torch.stack(torch.aminmax(tensor)) if tensor.numel() else tensor
        if not extremes.isfinite().all():
            raise ExportError(f"{origins.get(name, f'the weight {name}')} holds numbers that are not finite")
        if stored != torch.float32 and not extremes.to(stored).isfinite().all():
            raise ExportError(
                f"{origins.get(name, f'the weight {name}')} holds numbers too large for {numerics.storage}"
            )
