"""What the graphs are made of: embeddings, stacks of sublayers, and weights as the graphs have them.

Shapes as in `translane_export.graphs`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn

from translane_export.graphs import cuda_ops, onnx_ops
from translane_export.graphs.onnx_nodes import multiply
from translane_export.model import Transformer
from translane_export.model.attention import MultiHeadAttention
from translane_export.model.config import Activation
from translane_export.model.layers import DecoderLayer, EncoderLayer, FeedForward
from translane_export.model.norms import Norm, Residual
from translane_export.model.transformer import Embedding

# a sublayer's output less its last bias, and that bias, which is added with the residual: None if it is there already
Sublayer = Callable[[Tensor], tuple[Tensor, Tensor | None]]


class TokenAndPosition(nn.Module):
    """`Embedding` at any positions, without its bound check: whoever runs the graph checks positions."""

    table: Tensor | None

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.tokens = embedding.tokens
        self.scale = embedding.scale
        self.norm = embedding.norm
        table: Tensor | None = None
        if embedding.positions is not None:
            with torch.no_grad():
                table = embedding.positions(embedding.limit).clone()
        self.register_buffer("table", table, persistent=False)

    def first(self, count: int) -> Tensor | None:
        """Return the vectors of positions 0..count-1, [count, M], where there are positions."""
        return None if self.table is None else self.table[:count]

    def at(self, positions: Tensor) -> Tensor | None:
        """Return the vectors of positions [...], [..., M], where there are positions."""
        return None if self.table is None else nn.functional.embedding(positions, self.table)

    def forward(self, ids: Tensor, position_vectors: Tensor | None) -> Tensor:
        """[...] and vectors of the table that broadcast to [..., M] -> [..., M]."""
        output: Tensor = self.tokens(ids) * self.scale
        if position_vectors is not None:
            output = output + position_vectors
        return output if self.norm is None else onnx_ops.normalize(output, self.norm)


def run_stack(
    x: Tensor,
    sublayers: Iterable[tuple[Residual, Sublayer]],
    final_norm: nn.Module,
    placement: str,
    *,
    for_cuda: bool,
) -> Tensor:
    """Run the sublayers as their residuals would, with each addition joined to the norm that follows it.

    That norm is the residual's own in a post-norm stack, and the next residual's (or the final one) in a pre-norm one.
    """
    residuals, functions = zip(*sublayers, strict=True)
    norms: list[nn.Module] = [residual.norm for residual in residuals]
    hidden = x
    if placement == "pre":
        hidden, norms = _normalize(x, norms[0]), [*norms[1:], final_norm]
    for function, norm in zip(functions, norms, strict=True):
        output, bias = function(hidden)
        if not isinstance(norm, Norm):  # pre-norm without a norm after the stack
            hidden = total = x + (output if bias is None else output + bias)
        elif for_cuda:
            hidden, total = cuda_ops.add_and_norm(output, bias, x, norm)
        else:
            hidden, total = onnx_ops.add_and_norm(output, x, norm)
        x = total if placement == "pre" else hidden
    return hidden if placement == "pre" else _normalize(hidden, final_norm)


def _normalize(x: Tensor, norm: nn.Module) -> Tensor:
    return onnx_ops.normalize(x, norm) if isinstance(norm, Norm) else x


def project_out(layer: nn.Linear, x: Tensor, *, for_cuda: bool) -> tuple[Tensor, Tensor | None]:
    """Apply a sublayer's last projection to x [B, M]; in the CUDA form its bias is left to the addition after it."""
    return (multiply(layer, x), cuda_ops.bias_of(layer)) if for_cuda else (onnx_ops.project(layer, x), None)


def feed_forward(layer: EncoderLayer | DecoderLayer, activation: Activation, *, for_cuda: bool) -> Sublayer:
    """Return a layer's feed-forward network as a sublayer."""
    if for_cuda:
        return partial(cuda_ops.feed_forward, layer.feed_forward, activation)
    return lambda x: (_feed_forward(layer.feed_forward, x), None)


def _feed_forward(network: FeedForward, x: Tensor) -> Tensor:
    if network.gate_proj is None:
        hidden = network.activation(onnx_ops.project(network.up_proj, x))
    else:
        hidden = network.activation(onnx_ops.project(network.gate_proj, x)) * onnx_ops.project(network.up_proj, x)
    return onnx_ops.project(network.down_proj, network.dropout(hidden))


def pack(attention: MultiHeadAttention) -> nn.Linear:
    """Return Q, K and V as one projection to (H + 2·G)·D, whose memory they share from now on."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    biases = [part.bias.detach() for part in parts if part.bias is not None]
    sizes = [part.out_features for part in parts]
    packed = nn.Linear(parts[0].in_features, sum(sizes), bias=bool(biases), device="meta")
    packed.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
    if biases:
        packed.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    for part, weight in zip(parts, torch.split(packed.weight.detach(), sizes), strict=True):
        part.weight.data = weight
    return packed


def suppress(model: Transformer) -> tuple[nn.Linear, nn.Linear | None]:
    """Return the output projection with -inf as the bias of suppressed ids, and one to these ids' own logits.

    The second one is None where suppressed ids have no share of the probability. A bias costs nothing, where adding
    -inf to logits takes a pass over all of them.
    """
    projection, ids = model.output_projection, list(model.config.suppressed_ids)
    if not ids:
        return projection, None
    bias = (
        projection.bias.detach() if projection.bias is not None else projection.weight.new_zeros(len(projection.weight))
    )
    suppressing, suppressed = (nn.Linear(projection.in_features, 1, device="meta") for _ in range(2))
    suppressing.weight = projection.weight
    suppressing.bias = nn.Parameter(bias.index_fill(0, torch.tensor(ids), -torch.inf), requires_grad=False)
    suppressing.out_features = len(projection.weight)
    if not model.config.suppressed_share:
        return suppressing, None
    suppressed.weight = nn.Parameter(projection.weight.detach()[ids], requires_grad=False)
    suppressed.bias = None if projection.bias is None else nn.Parameter(bias[ids], requires_grad=False)
    suppressed.out_features = len(ids)
    return suppressing, suppressed


def encoder_layers(model: Transformer) -> list[EncoderLayer]:
    """Return the layers of the encoder."""
    return [layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]


def decoder_layers(model: Transformer) -> list[DecoderLayer]:
    """Return the layers of the decoder."""
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
