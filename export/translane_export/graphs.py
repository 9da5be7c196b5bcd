"""The functions a bundle runs, as PyTorch modules over a Transformer's weights.

`EncoderGraph` turns sources into each decoder layer's cross-attention keys and values; `DecoderGraph` is one step of
an incremental decoder. The same modules become ONNX graphs and TorchScript, and run eagerly. `AlignmentGraph` is apart
from the step, so that it costs nothing unless it runs: ONNX Runtime computes all of a graph, whichever outputs are
fetched.

Hidden states are [positions, M] throughout, rows and time flattened: every projection is then one Gemm on the weight
as PyTorch stores it (which the tied output projection and the embedding lookup can share), and Q, K and V are one.
Shapes: B rows, S source length, T target capacity, H heads, D head size, M model size, V vocabulary, K candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from translane_export import onnx_ops
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.attention import KeysValues, MultiHeadAttention
from translane_export.model.decoder import DecoderLayer
from translane_export.model.embeddings import Embedding
from translane_export.model.encoder import EncoderLayer
from translane_export.model.masks import padding_mask
from translane_export.model.residual import Residual

Sublayer = Callable[[Tensor], Tensor]


class EncoderGraph(nn.Module):
    """source_ids [B, S], source_lengths [B] -> each layer's keys and values, [B, H, S, D] each."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.stack = model.encoder
        self.embedding = _TokenAndPosition(model.encoder.embedding)
        self._layers = _encoder_layers(model)
        self._packed = [_pack(layer.self_attention) for layer in self._layers]
        self._cross = [layer.cross_attention for layer in _decoder_layers(model)]
        self.packed, self.cross = nn.ModuleList(self._packed), nn.ModuleList(self._cross)
        self.placement = model.config.norm

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        rows, size = source_ids.shape
        x = self.embedding(source_ids, self.embedding.first(size)).flatten(0, 1)  # [B * S, M]
        bias = None
        if self.stack.relative_positions is not None:
            ordinals = onnx_ops.ordinals(source_ids[0])  # [S]
            bias = self.stack.relative_positions.between(ordinals[:, None], ordinals[None, :])[None]  # [1, H, S, S]
        sublayers: list[tuple[Residual, Sublayer]] = []
        for layer, packed in zip(self._layers, self._packed, strict=True):
            sublayers += [
                (layer.self_attention_residual, _encoder_attention(layer, packed, source_lengths, rows, size, bias)),
                (layer.feed_forward_residual, _feed_forward(layer)),
            ]
        memory = _run_stack(x, sublayers, self.stack.final_norm, self.placement)  # [B * S, M]
        outputs: list[Tensor] = []
        for attention in self._cross:
            for projection in (attention.k_proj, attention.v_proj):
                split = onnx_ops.project(projection, memory).view(rows, size, attention.heads, attention.head_size)
                outputs.append(split.transpose(1, 2).contiguous())  # [B, H, S, D]
        return tuple(outputs)


class DecoderGraph(nn.Module):
    """One token per row in, the best next tokens out, keys and values kept in caches the caller owns.

    token_ids [B], positions [B] (tokens already in the row's cache), source_lengths [B], num_candidates [1], each
    layer's self-attention caches [B, H, T, D], each layer's cross-attention keys and values [B, H, S, D]
    -> candidate_ids [B, K], candidate_log_probs [B, K], logits [B, V], each layer's updated self-attention caches.
    With an `alignment_layer`, the query of that layer's cross-attention [B, H * D] comes after the logits.
    Suppressed ids have logits and log-probabilities of -inf; the other log-probabilities are as if they had not.
    """

    suppressed: nn.Linear | None

    def __init__(self, model: Transformer, alignment_layer: int | None = None) -> None:
        super().__init__()
        self.alignment_layer = alignment_layer
        self.stack = model.decoder
        self.embedding = _TokenAndPosition(model.decoder.embedding)
        self._layers = _decoder_layers(model)
        self._packed = [_pack(layer.self_attention) for layer in self._layers]
        self.packed = nn.ModuleList(self._packed)
        self.output_projection, self.suppressed = _suppress(model)
        self.logit_scale = model.config.logit_scale
        self.placement = model.config.norm

    @property
    def dtype(self) -> torch.dtype:
        """Type of the caches."""
        return self.output_projection.weight.dtype

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, num_candidates: Tensor, *caches: Tensor
    ) -> tuple[Tensor, ...]:
        """See the class."""
        pairs = [KeysValues(*caches[index : index + 2]) for index in range(0, len(caches), 2)]
        x = self.embedding(token_ids, self.embedding.at(positions))  # [B, M]
        bias = None
        if self.stack.relative_positions is not None:
            keys = onnx_ops.ordinals(caches[0][0, 0, :, 0])  # [T]
            bias = self.stack.relative_positions.between(positions.long()[:, None, None], keys)  # [B, H, 1, T]
        past, cross = pairs[: len(self.packed)], pairs[len(self.packed) :]
        present: list[Tensor] = []
        queries: list[Tensor] = []
        sublayers: list[tuple[Residual, Sublayer]] = []
        for layer, packed, layer_past, layer_cross in zip(self._layers, self._packed, past, cross, strict=True):
            sublayers += [
                (layer.self_attention_residual, _step_attention(layer, packed, layer_past, positions, present, bias)),
                (layer.cross_attention_residual, _cross_attention(layer, layer_cross, source_lengths, queries)),
                (layer.feed_forward_residual, _feed_forward(layer)),
            ]
        x = _run_stack(x, sublayers, self.stack.final_norm, self.placement)  # [B, M]
        if self.logit_scale != 1:
            x = x * self.logit_scale
        logits = onnx_ops.project(self.output_projection, x).float()  # [B, V]
        ids = onnx_ops.best_ids(logits, num_candidates)
        log_probs = self._log_probs(x, logits, ids)
        alignment = () if self.alignment_layer is None else (queries[self.alignment_layer],)
        return ids, log_probs, logits, *alignment, *present

    def _log_probs(self, x: Tensor, logits: Tensor, ids: Tensor) -> Tensor:
        """Return the log-probabilities of `ids` [B, K]; those of suppressed ids are no candidates' to share.

        LogSoftmax over the whole vocabulary and a gather: ONNX Runtime runs it row by row (so that a row's values
        never depend on its neighbours) and ten times as fast as ReduceLogSumExp, which would normalise K values alone.
        """
        log_probs = logits.log_softmax(-1).gather(1, ids)
        if self.suppressed is None:
            return log_probs
        best = ids[:, :1]
        normaliser = logits.gather(1, best) - log_probs[:, :1]  # [B, 1], of the ids that are not suppressed
        left_out = onnx_ops.project(self.suppressed, x).float()  # [B, N]
        # LogSoftmax again: ONNX Runtime's Log rounds a number as its place among the others has it
        return log_probs + torch.cat((normaliser, left_out), dim=1).log_softmax(-1)[:, :1]


class AlignmentGraph(nn.Module):
    """How much a step attends to each source position, averaged over some heads of the layer the query comes from.

    alignment_query [B, H * D], source_lengths [B], the layer's cross-attention keys [B, H, S, D] -> [B, S], float32;
    zero from each row's source length on. `key_scale` is what a unit of the keys stands for.
    """

    def __init__(self, config: TransformerConfig, heads: Sequence[int], key_scale: float = 1.0) -> None:
        super().__init__()
        self.config = config
        self.heads = list(heads)
        self.key_scale = key_scale

    def forward(self, query: Tensor, source_lengths: Tensor, keys: Tensor) -> Tensor:
        """See the class."""
        query = query.view(-1, self.config.heads, self.config.head_dim)  # [B, H, D]
        scores = onnx_ops.score_keys(query, keys, source_lengths)  # [B, H, S]
        if self.key_scale != 1:
            scores = scores * self.key_scale
        if self.config.attention_scale:
            scores = scores / self.config.head_dim**0.5
        hidden = ~padding_mask(source_lengths, scores.shape[2])[:, :, 0]  # [B, 1, S]
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(-1)
        if len(self.heads) < self.config.heads:
            weights = weights.index_select(1, torch.tensor(self.heads))
        mean: Tensor = weights.mean(1).masked_fill(hidden[:, 0], 0.0)
        return mean


class _TokenAndPosition(nn.Module):
    """`Embedding` without its bound check, which a graph cannot raise: whoever runs the graph checks positions."""

    table: Tensor | None

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.tokens = embedding.tokens
        self.scale = embedding.scale
        self.norm = embedding.norm
        positions = embedding.positions
        with torch.no_grad():
            table = None if positions is None else positions.lookup(torch.arange(positions.max_positions))
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


def _run_stack(
    x: Tensor, sublayers: Iterable[tuple[Residual, Sublayer]], final_norm: nn.Module, placement: str
) -> Tensor:
    """Run the sublayers as their residuals would, with each addition joined to the norm that follows it.

    That norm is the residual's own in a post-norm stack, and the next residual's (or the final one) in a pre-norm one.
    """
    residuals, functions = zip(*sublayers, strict=True)
    norms = [residual.norm for residual in residuals]
    hidden = x
    if placement == "pre":
        hidden, norms = onnx_ops.normalize(x, norms[0]), [*norms[1:], final_norm]
    for function, norm in zip(functions, norms, strict=True):
        hidden, total = onnx_ops.add_and_norm(function(hidden), x, norm)
        x = total if placement == "pre" else hidden
    return hidden


def _encoder_attention(
    layer: EncoderLayer, packed: nn.Linear, lengths: Tensor, rows: int, size: int, bias: Tensor | None
) -> Sublayer:
    attention = layer.self_attention

    def run(x: Tensor) -> Tensor:
        qkv = onnx_ops.project(packed, x).view(rows, size, packed.out_features)  # [B, S, 3 * H * D]
        context = onnx_ops.packed_self_attention(
            qkv, lengths, attention.heads, bias, scaled=attention.scaled
        )  # [B, S, H * D]
        return onnx_ops.project(attention.out_proj, context.flatten(0, 1))  # [B * S, M]

    return run


def _step_attention(
    layer: DecoderLayer,
    packed: nn.Linear,
    past: KeysValues,
    positions: Tensor,
    present: list[Tensor],
    bias: Tensor | None,
) -> Sublayer:
    attention = layer.self_attention

    def run(x: Tensor) -> Tensor:
        qkv = onnx_ops.project(packed, x)  # [B, 3 * H * D]
        context, updated = onnx_ops.append_and_attend(
            qkv, past, positions, attention.heads, bias, scaled=attention.scaled
        )
        present.extend(updated)
        return onnx_ops.project(attention.out_proj, context)

    return run


def _cross_attention(
    layer: DecoderLayer, keys_values: KeysValues, source_lengths: Tensor, queries: list[Tensor]
) -> Sublayer:
    attention = layer.cross_attention

    def run(x: Tensor) -> Tensor:
        queries.append(onnx_ops.project(attention.q_proj, x))
        context = onnx_ops.attend(queries[-1], keys_values, source_lengths, attention.heads, scaled=attention.scaled)
        return onnx_ops.project(attention.out_proj, context)

    return run


def _feed_forward(layer: EncoderLayer | DecoderLayer) -> Sublayer:
    return partial(layer.feed_forward.forward, project=onnx_ops.project)


def _pack(attention: MultiHeadAttention) -> nn.Linear:
    """Return Q, K and V as one projection to 3·H·D, whose memory they share from now on."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    biases = [part.bias.detach() for part in parts if part.bias is not None]
    packed = nn.Linear(parts[0].in_features, 3 * parts[0].out_features, bias=bool(biases), device="meta")
    packed.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
    if biases:
        packed.bias = nn.Parameter(torch.cat(biases), requires_grad=False)
    for part, weight in zip(parts, packed.weight.detach().chunk(3), strict=True):
        part.weight.data = weight
    return packed


def _suppress(model: Transformer) -> tuple[nn.Linear, nn.Linear | None]:
    """Return the output projection with -inf as the bias of suppressed ids, and one to these ids' own logits.

    A bias costs nothing, where adding -inf to logits takes a pass over all of them.
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
    suppressed.weight = nn.Parameter(projection.weight.detach()[ids], requires_grad=False)
    suppressed.bias = None if projection.bias is None else nn.Parameter(bias[ids], requires_grad=False)
    suppressing.out_features, suppressed.out_features = len(projection.weight), len(ids)
    return suppressing, suppressed


def _encoder_layers(model: Transformer) -> list[EncoderLayer]:
    return [layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]


def _decoder_layers(model: Transformer) -> list[DecoderLayer]:
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]
