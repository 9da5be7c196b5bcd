"""The training-time Transformer: one module per concept.

config            sizes and choices, presets
masks             padding and causal masks
attention         scaled dot-product and multi-head attention
feed_forward      the position-wise network
residual          residual connection and layer norm, post or pre
positions         sinusoidal and learned positions
relative_positions  a bias on attention by distance
embeddings        token vectors with their positions
encoder, decoder  the two stacks
transformer       the whole model
loss              label-smoothed cross-entropy
word_vectors      pretrained word vectors for the embeddings
"""

from translane_export.model.config import PRESETS, TransformerConfig
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
