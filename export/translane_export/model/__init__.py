"""The training-time Transformer: one module per concept.

config               sizes and choices, presets
config_checks        which configs make no model
masks                padding, and which positions see which
distance_biases      biases of scores that follow from a distance: ALiBi, the proximal bias
relative_positions   biases by distance that are trained, T5's
relative_embeddings  vectors by distance for keys and values
rotary               positions that turn queries and keys
positions            position vectors, sinusoidal and learned
views                what queries see: masks and biases of one attention
normalizers          weights of scores: softmax, softmax₁
attention_kernels    ways to compute attention
attention            the projections, heads and pieces of one attention
feed_forward         the position-wise network
norms                layer, RMS and batch norm
residual             residual connection and norm, post or pre
embeddings           token vectors with their positions
stack                what encoder and decoder have in common
encoder, decoder     the two stacks
transformer          the whole model
recorded_weights     weights of attentions as a model runs
greedy               greedy decoding
loss                 label-smoothed cross-entropy
word_vectors         pretrained word vectors for the embeddings
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from translane_export.model.config import PRESETS, TransformerConfig

if TYPE_CHECKING:
    from translane_export.model.loss import TokenLoss, label_smoothed_cross_entropy
    from translane_export.model.transformer import Transformer
    from translane_export.model.word_vectors import load_word_vectors

__all__ = [
    "PRESETS",
    "TokenLoss",
    "Transformer",
    "TransformerConfig",
    "label_smoothed_cross_entropy",
    "load_word_vectors",
]

# Settings need the configuration alone, and the help of a command waits for no PyTorch.
_MODULES = {
    "TokenLoss": "loss",
    "Transformer": "transformer",
    "label_smoothed_cross_entropy": "loss",
    "load_word_vectors": "word_vectors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
