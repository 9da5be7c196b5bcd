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
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from translane_export.core.errors import ExportError
from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.masks import View
from translane_export.model.norms import Norm
from translane_export.model.transformer import Embedding
from translane_server.bundle.manifest import Activation

LARGEST_FLOAT16 = torch.finfo(torch.float16).max
MOST = LARGEST_FLOAT16 / 2  # sentences that nobody has verified with may reach twice as far
_PADDED_BY = 8  # tokens


@contextlib.contextmanager
def watched(model: nn.Module, see: Callable[[str, Any, tuple[Any, ...], Any], None]) -> Iterator[None]:
    """Call `see` after each run of a module of `model`, inner modules first, until the end of the block.

    It gets the module's name, the module, what it was given by position, and what it made of that.
    """
    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            hooks.enter_context(module.register_forward_hook(partial(see, name)))
        yield


class ActivationWatch:
    """Keeps the largest number, and where it is, of all that a model computes while it is `watched` by `see`.

    ``largest`` is infinite where a number is not finite, and None before anything has run.
    """

    def __init__(self) -> None:
        self.largest: Activation | None = None

    def see_padding(self, model: Transformer, source: list[int]) -> None:
        """Watch the encoder at positions after the end of `source`, which a batch has beside longer sentences.

        Nothing looks at them; but weights of 0 times a value that is not finite are not 0.
        """
        padded = [*source, *[model.config.pad_id] * _PADDED_BY][: model.config.max_positions]
        with torch.inference_mode(), watched(model, self.see):
            model.encode(torch.tensor([padded]), torch.tensor([len(source)]))

    def see(self, name: str, module: nn.Module, given: tuple[Any, ...], output: Tensor) -> None:
        """See what a module computes; see `watched`."""
        if isinstance(module, nn.Linear):
            self._see(f"input of {name}", given[0])
            self._see(f"output of {name}", output)
            if module.bias is not None:
                self._see(f"output of {name}", output - module.bias)
        elif isinstance(module, Norm):
            self._see(f"input of {name}", given[0])
        elif isinstance(module, Embedding):
            self._see(f"output of {name}", output)
        elif isinstance(module, MultiHeadAttention):
            self._see_scores(name, module, *given)

    def _see_scores(self, name: str, attention: MultiHeadAttention, x: Tensor, memory: Tensor, view: View) -> None:
        mask = view.whole.mask
        keys = attention.project_keys_values(memory).keys
        scores = attention.formula.scores(attention.project_queries(x), keys, view.whole)
        self._see(f"scores of {name}", scores if mask is None else scores.masked_fill(~mask, 0.0))

    def _see(self, where: str, numbers: Tensor) -> None:
        lowest, highest = torch.aminmax(numbers)
        size = max(-float(lowest), float(highest))
        if not math.isfinite(size):
            size = math.inf
        if self.largest is None or size > self.largest.value:
            self.largest = Activation(tensor=where, value=size)


def check_activations(largest: Activation) -> None:
    """Refuse a model whose largest activation comes near the end of float16."""
    if largest.value > MOST:
        raise ExportError(
            f"the model computes numbers too large for float16: the {largest.tensor} reaches {largest.value:,.0f}, and"
            f" more than {MOST:,.0f}, half of float16's largest number, is too near its end; export with"
            " --precision bf16, which has float32's range"
        )
