"""The training-time Transformer, in the order of the paper "Attention Is All You Need".

Read in this order:

config           sizes and choices, presets
attention        scaled dot-product and multi-head attention, softmax₁, grouped heads (§3.2)
positions        all that tells positions apart (§3.5)
layers           the feed-forward network (§3.3), encoder and decoder layers (§3.1), the recurrent unit
transformer      embeddings (§3.4), stacks, the output projection, and how weights start

What they stand on:

masks            which keys a query sees: padding, causal, blocks, windows
norms            layer, RMS and batch norm, post and pre
fast_attention   the same attention by a fused kernel, or a block of queries at a time

What training and checks use:

greedy           greedy decoding
loss             label-smoothed cross-entropy
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from translane_export.model.config import PRESETS, TransformerConfig

if TYPE_CHECKING:
    from translane_export.model.loss import TokenLoss, label_smoothed_cross_entropy
    from translane_export.model.transformer import Transformer

__all__ = [
    "PRESETS",
    "TokenLoss",
    "Transformer",
    "TransformerConfig",
    "label_smoothed_cross_entropy",
]

# Settings need the configuration alone, and the help of a command waits for no PyTorch.
_MODULES = {
    "TokenLoss": "loss",
    "Transformer": "transformer",
    "label_smoothed_cross_entropy": "loss",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
