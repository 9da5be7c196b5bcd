"""One token on its way through the model: every tensor, computed here step by step with the model's own parts.

The result is the model's own, so nothing on the way can be missing or wrong. The graphs do the same; they keep the keys
and values of earlier tokens in a cache, where this module computes them again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from translane_export.explain.attention_steps import note_attention
from translane_export.explain.recording import run_attention
from translane_export.explain.tensor_steps import TensorNotes, TensorStep
from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.layers import FeedForward
from translane_export.model.masks import View
from translane_export.model.norms import Residual
from translane_export.model.transformer import Decoder, Embedding, Encoder


@dataclass(frozen=True)
class TokenWay:
    """All steps, and the probability of each target token at the end, [V]."""

    steps: tuple[TensorStep, ...]
    probabilities: Tensor


@torch.inference_mode()
def follow_token(model: Transformer, source_ids: Sequence[int], fed_ids: Sequence[int]) -> TokenWay:
    """Follow the last of `fed_ids` [T], over the sentence `source_ids` [S], to the probabilities of the next token."""
    config = model.config
    sizes = {
        "B": 1,
        "S": len(source_ids),
        "T": len(fed_ids),
        "H": config.heads,
        "D": config.head_dim,
        "G": config.key_value_heads,
        "E": config.value_dim,
        "M": config.d_model,
        "F": config.ffn_size,
        "V": config.target_vocab_size,
    }
    encoder = TensorNotes(sizes, "S", "S", config.biases)
    memory = _encode(encoder, model.encoder, torch.tensor([source_ids]))
    decoder = TensorNotes(sizes, "1", "T", config.biases)
    x = _decode(decoder, model.decoder, torch.tensor([fed_ids]), memory)
    decoder.part = "output"
    logits = model.project(x)
    scale = "" if config.logit_scale == 1 else f"{config.logit_scale:.4g} · "
    decoder.add(
        "logits", "output_projection", "B Q V", logits, "A number for each piece of the vocabulary.", f"{scale}x W + b"
    )
    probabilities = logits.softmax(-1)
    decoder.add(
        "probabilities", "", "B Q V", probabilities, "The softmax makes the numbers sum to 1.", "softmax(logits)"
    )
    return TokenWay((*encoder.steps, *decoder.steps), probabilities[0, -1])


def _encode(notes: TensorNotes, encoder: Encoder, ids: Tensor) -> Tensor:
    x = _embed(notes, "encoder", encoder.embedding, ids)
    view = encoder.view(ids.shape[1], None, ids.device)
    for number, layer in enumerate(encoder.layers):
        notes.part = f"encoder layer {number}"
        name = f"encoder.layers.{number}"
        x = _self_attention(notes, name, layer, x, view)
        x = _feed_forward(notes, name, layer, x)
    return _final_norm(notes, "encoder", encoder.final_norm, x)


def _decode(notes: TensorNotes, decoder: Decoder, ids: Tensor, memory: Tensor) -> Tensor:
    x = _embed(notes, "decoder", decoder.embedding, ids)
    view = decoder.view(ids.shape[1], None, ids.device)
    cross_view = View(ids.shape[1], memory.shape[1], device=ids.device)
    for number, layer in enumerate(decoder.layers):
        notes.part = f"decoder layer {number}"
        name = f"decoder.layers.{number}"
        x = _self_attention(notes, name, layer, x, view)
        attention, residual = layer.get_submodule("cross_attention"), layer.get_submodule("cross_attention_residual")
        assert isinstance(attention, MultiHeadAttention)
        assert isinstance(residual, Residual)

        def look(y: Tensor, attention: MultiHeadAttention = attention, name: str = name) -> Tensor:
            attended = run_attention(attention, y, memory, cross_view)
            return note_attention(notes, f"{name}.cross_attention", attended, "S", attention, biased=False)

        x = _residual(notes, f"{name}.cross_attention_residual", residual, x, look)
        x = _feed_forward(notes, name, layer, x)
    return _final_norm(notes, "decoder", decoder.final_norm, x)


def _embed(notes: TensorNotes, stack: str, embedding: Embedding, ids: Tensor) -> Tensor:
    notes.part = f"{stack} input"
    name = f"{stack}.embedding"
    notes.add("ids", "", "B Q", ids, "The number of each token.", "ids")
    x: Tensor = embedding.tokens(ids) * embedding.scale
    scaled = " · √M" if embedding.scale != 1 else ""
    notes.add("embedding", f"{name}.tokens", "B Q M", x, "Each id selects its vector of the table.", f"E[ids]{scaled}")
    if embedding.positions is not None:
        x = x + embedding.positions(ids.shape[1])
        notes.add("with positions", f"{name}.positions", "B Q M", x, "The vector of the position is added.", "x + P")
    if embedding.norm is not None:
        x = embedding.norm(x)
        notes.add("norm", f"{name}.norm", "B Q M", x, "The sum is normalised.", "norm(x)")
    return x


def _self_attention(notes: TensorNotes, name: str, layer: nn.Module, x: Tensor, view: View) -> Tensor:
    attention, residual = layer.get_submodule("self_attention"), layer.get_submodule("self_attention_residual")
    assert isinstance(attention, MultiHeadAttention)
    assert isinstance(residual, Residual)

    def look(y: Tensor) -> Tensor:
        attended = run_attention(attention, y, y, view)
        return note_attention(notes, f"{name}.self_attention", attended, notes.keys, attention, biased=view.has_biases)

    return _residual(notes, f"{name}.self_attention_residual", residual, x, look)


def _feed_forward(notes: TensorNotes, name: str, layer: nn.Module, x: Tensor) -> Tensor:
    network, residual = layer.get_submodule("feed_forward"), layer.get_submodule("feed_forward_residual")
    assert isinstance(network, FeedForward)
    assert isinstance(residual, Residual)
    place = f"{name}.feed_forward"

    def transform(y: Tensor) -> Tensor:
        up: Tensor = network.up_proj(y)
        notes.add(
            "feed-forward: up", f"{place}.up_proj", "B Q F", up, "Each token by itself becomes wider.", "x W₁ + b"
        )
        if network.gate_proj is None:
            hidden = network.activation(up)
            notes.add(
                "feed-forward: activation", place, "B Q F", hidden, "Numbers below 0 are damped.", "act(x W₁ + b)"
            )
        else:
            gate: Tensor = network.gate_proj(y)
            notes.add(
                "feed-forward: gate",
                f"{place}.gate_proj",
                "B Q F",
                gate,
                "A second projection of the same.",
                "x W_gate + b",
            )
            hidden = network.activation(gate) * up
            notes.add("feed-forward: activation", place, "B Q F", hidden, "One gates the other.", "act(gate) · up")
        down: Tensor = network.down_proj(hidden)
        notes.add("feed-forward: output", f"{place}.down_proj", "B Q M", down, "Back to the model size.", "h W₂ + b")
        return down

    return _residual(notes, f"{place}_residual", residual, x, transform)


def _residual(
    notes: TensorNotes, name: str, residual: Residual, x: Tensor, sublayer: Callable[[Tensor], Tensor]
) -> Tensor:
    """Do as `Residual.forward` does, with the norm before the sublayer or after the sum."""

    def norm(y: Tensor) -> Tensor:
        normed: Tensor = residual.norm(y)
        notes.add("norm", f"{name}.norm", "B Q M", normed, "Every token gets one scale.", "norm(x)")
        return normed

    before = residual.placement == "pre"
    total = x + sublayer(norm(x) if before else x)
    notes.add("sum", name, "B Q M", total, "What came in is added.", "x + output")
    return total if before else norm(total)


def _final_norm(notes: TensorNotes, stack: str, norm: nn.Module, x: Tensor) -> Tensor:
    notes.part = f"{stack} output"
    if not isinstance(norm, nn.Identity):
        x = norm(x)
        what = "The sums of all layers are normalised."
        notes.add("final norm", f"{stack}.final_norm", "B Q M", x, what, "norm(x)")
    if stack == "encoder":
        notes.add("memory", "", "B Q M", x, "What the decoder looks at.", "x")
    return x
