"""Finds numbers that are too large for float16 before a GPU meets them.

float16 ends at 65,504, and a larger number becomes infinite. No comparison on a CPU shows that, because ONNX Runtime
computes float16 graphs in float32 there. So the exporter watches the PyTorch model, which computes in float32. It keeps
the largest number that a graph would store between two kernels:

- what goes into a projection (norms' outputs, the context of attention, products of a gate) and what comes out of it,
  before and after its bias;
- what goes into a norm: a sum of a residual and a sublayer's output. A norm's own sums are float32;
- embeddings, their positions added;
- scores of attention, scaled and with their bias, of the positions that a query sees.

T5's checkpoints are the known ones to get there: https://github.com/huggingface/transformers/issues/9295
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.norms import Norm
from translane_export.model.transformer import Embedding
from translane_server.bundle.manifest import Activation

LARGEST_FLOAT16 = torch.finfo(torch.float16).max
MOST = LARGEST_FLOAT16 / 2  # sentences that nobody has verified with may reach twice as far
_PADDED_BY = 8  # tokens


class ActivationWatch:
    """Keeps the largest number, and where it is, of all that a model computes while it is `watched`."""

    def __init__(self) -> None:
        self._largest: Activation | None = None

    @property
    def largest(self) -> Activation | None:
        """The largest number; infinite where one is not finite. None before anything has run."""
        return self._largest

    @contextlib.contextmanager
    def watched(self, model: Transformer) -> Iterator[None]:
        """Watch what `model` computes until the end of the block."""
        with contextlib.ExitStack() as hooks:
            for name, module in model.named_modules():
                for hook in self._hook(name, module):
                    hooks.enter_context(hook)
            yield

    def see_padding(self, model: Transformer, source: list[int]) -> None:
        """Watch the encoder at positions after the end of `source`, which a batch has beside longer sentences.

        Nothing looks at them; but weights of 0 times a value that is not finite are not 0.
        """
        padded = [*source, *[model.config.pad_id] * _PADDED_BY][: model.config.max_positions]
        with torch.inference_mode(), self.watched(model):
            model.encode(torch.tensor([padded]), torch.tensor([len(source)]))

    def _hook(self, name: str, module: nn.Module) -> Iterator[torch.utils.hooks.RemovableHandle]:
        if isinstance(module, nn.Linear):
            yield module.register_forward_hook(self._see_projection(name))
        elif isinstance(module, Norm):
            yield module.register_forward_pre_hook(lambda _, given: self._see(f"input of {name}", given[0]))
        elif isinstance(module, Embedding):
            yield module.register_forward_hook(lambda _, __, vectors: self._see(f"output of {name}", vectors))
        elif isinstance(module, MultiHeadAttention):
            yield module.register_forward_hook(self._see_scores(name))

    def _see_projection(self, name: str) -> Callable[[Any, tuple[Tensor, ...], Tensor], None]:
        def see(layer: nn.Linear, given: tuple[Tensor, ...], output: Tensor) -> None:
            self._see(f"input of {name}", given[0])
            self._see(f"output of {name}", output)
            if layer.bias is not None:
                self._see(f"output of {name}", output - layer.bias)

        return see

    def _see_scores(self, name: str) -> Callable[[Any, tuple[Any, ...], Tensor], None]:
        def see(attention: MultiHeadAttention, given: tuple[Any, ...], _output: Tensor) -> None:
            x, memory, view = given
            mask = view.whole.mask
            keys = attention.project_keys_values(memory).keys
            scores = attention.formula.scores(attention.project_queries(x), keys, view.whole)
            self._see(f"scores of {name}", scores if mask is None else scores.masked_fill(~mask, 0.0))

        return see

    def _see(self, where: str, numbers: Tensor) -> None:
        lowest, highest = torch.aminmax(numbers)
        size = max(-float(lowest), float(highest))
        if not math.isfinite(size):
            size = math.inf
        if self._largest is None or size > self._largest.value:
            self._largest = Activation(tensor=where, value=size)


def check_activations(largest: Activation) -> None:
    """Refuse a model whose largest activation comes near the end of float16.

    Raises:
        ExportError: it is more than half of float16's largest number.
    """
    if largest.value > MOST:
        raise ExportError(
            f"the model computes numbers too large for float16: the {largest.tensor} reaches {largest.value:,.0f}, and"
            f" more than {MOST:,.0f}, half of float16's largest number, is too near its end; export with"
            " --precision bf16, which has float32's range"
        )
