"""The tensors of one attention on a token's way, each with its formula."""

from __future__ import annotations

import math

from torch import Tensor

from translane_export.explain.recording import AttentionTensors
from translane_export.explain.tensor_steps import TensorNotes
from translane_export.model.attention import MultiHeadAttention


def note_attention(
    notes: TensorNotes, name: str, attended: AttentionTensors, keys: str, attention: MultiHeadAttention, *, biased: bool
) -> Tensor:
    """Note the tensors of an attention, and return its output [B, T, M].

    Args:
        notes: where they are noted.
        name: the attention's module.
        attended: the tensors.
        keys: the letter of the tokens that are looked at.
        attention: the attention.
        biased: whether a bias is added to the scores.
    """
    kind = "cross-attention" if name.endswith("cross_attention") else "self-attention"
    of = "the memory" if name.endswith("cross_attention") else "the tokens so far" if keys == "T" else "all tokens"
    kept = {"T": " The graph keeps those of earlier tokens.", "S": ""}[keys]
    if name.endswith("cross_attention"):
        kept = " The encoder's graph computes them once for the sentence."
    smooth = attention.one_in_denominator
    groups = "H" if attention.kv_heads == attention.heads else "G"
    size = "D" if attention.value_size == attention.head_size else "E"
    biases = attention.q_proj.bias is not None

    def plus(letter: str) -> str:
        return f" + b_{letter}" if biases else ""

    turned = "" if attention.rotary is None else " They are turned by their positions."
    notes.add(
        f"{kind}: queries",
        f"{name}.q_proj",
        "B H Q D",
        attended.queries,
        f"What each head looks for.{turned}",
        f"Q = x W_Q{plus('Q')}",
    )
    notes.add(
        f"{kind}: keys",
        f"{name}.k_proj",
        f"B {groups} {keys} D",
        attended.keys,
        f"What {of} can be found by.{turned}{kept}",
        f"K = m W_K{plus('K')}",
    )
    notes.add(
        f"{kind}: values",
        f"{name}.v_proj",
        f"B {groups} {keys} {size}",
        attended.values,
        f"What {of} have to give.{kept}",
        f"V = m W_V{plus('V')}",
    )
    notes.add(
        f"{kind}: scores",
        name,
        f"B H Q {keys}",
        attended.scores,
        "How well queries and keys match.",
        _score(attention, biased),
    )
    notes.add(
        f"{kind}: weights",
        name,
        f"B H Q {keys}",
        attended.weights,
        "Scores as shares that sum to less than 1." if smooth else "Scores as shares that sum to 1.",
        "softmax₁(scores)" if smooth else "softmax(scores)",
    )
    notes.add(
        f"{kind}: context",
        name,
        f"B H Q {size}",
        attended.context,
        "The values, averaged by the weights.",
        "weights V" if attention.relative is None else "weights (V + r_v)",
    )
    notes.add(
        f"{kind}: output",
        f"{name}.out_proj",
        "B Q M",
        attended.output,
        "All heads together, projected.",
        f"concat(heads) W_O{plus('O')}",
    )
    return attended.output


def _score(attention: MultiHeadAttention, biased: bool) -> str:
    """Return the formula of an attention's scores."""
    product = "QKᵀ" if attention.relative is None else "(QKᵀ + Q r_kᵀ)"
    if math.isclose(attention.scale, attention.head_size**-0.5):
        product += " / √D"
    elif attention.scale != 1:
        product += f" · {attention.scale:.4g}"
    return product + (" + bias" if biased else "")
