"""The functions a bundle runs, as PyTorch modules over a Transformer's weights.

`EncoderGraph` turns sources into each decoder layer's cross-attention keys and values; `DecoderGraph` is one step of
an incremental decoder. The same modules become ONNX graphs and TorchScript, and run eagerly. Layers are the model's
own, but for attention.

Each graph has two forms. The CUDA form is for ONNX Runtime's CUDA provider: its operators are those of `cuda_ops`, and
the host need not look at a number in the middle of a run. The form says nothing about the type of the weights.

Hidden states are [positions, M] throughout, rows and time flattened: every projection is then one Gemm on the weight
as PyTorch stores it (which the tied output projection and the embedding lookup can share), and Q, K and V are one.
Shapes: B rows, S source length, T target capacity, H heads, G heads of keys and values, D head size, M model size,
V vocabulary, K candidates. Heads have the sizes that `head_padding` gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from translane_export.graphs import candidates, cuda_ops, onnx_ops
from translane_export.graphs.head_padding import linear_of, pad_heads, padded_config
from translane_export.graphs.onnx_nodes import HeadForm, emit
from translane_export.graphs.self_attention import CellPlaces, SentenceAttention, StackBias, StepAttention, run_cell
from translane_export.model import Transformer, TransformerConfig
from translane_export.model.attention import KeysValues, MultiHeadAttention, normalize_scores
from translane_export.model.layers import DecoderLayer, EncoderLayer
from translane_export.model.masks import padding_mask
from translane_export.model.norms import Residual, apply_norm
from translane_export.model.transformer import Embedding


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
        return output if self.norm is None else apply_norm(self.norm, output, None)


class EncoderGraph(nn.Module):
    """source_ids [B, S], source_lengths [B] -> each layer's keys and values, [B, G, S, D] each."""

    def __init__(self, model: Transformer, *, for_cuda: bool = False) -> None:
        super().__init__()
        model = pad_heads(model)
        self.stack = model.encoder
        self.embedding = TokenAndPosition(model.encoder.embedding)
        self._layers = _encoder_layers(model)
        self._attentions = [SentenceAttention(layer.self_attention, for_cuda=for_cuda) for layer in self._layers]
        self._cross = [layer.cross_attention for layer in _decoder_layers(model)]
        self.packed = nn.ModuleList(attention.packed for attention in self._attentions)
        self.relative = nn.ModuleList(each.tables for each in self._attentions if each.tables is not None)
        self.cross = nn.ModuleList(self._cross)
        self.bias = StackBias(model.encoder, model.output_projection.weight.dtype)

    def forward(self, source_ids: Tensor, source_lengths: Tensor) -> tuple[Tensor, ...]:
        """See the class."""
        rows, size = source_ids.shape
        x = self.embedding(source_ids, self.embedding.first(size)).flatten(0, 1)  # [B * S, M]
        keys = onnx_ops.ordinals(source_ids[0])  # [S]
        bias = self.bias.between(keys[:, None], keys[None, :])  # [H or 1, S, S]
        bias = None if bias is None else bias[None]
        for layer, attention in zip(self._layers, self._attentions, strict=True):
            x = layer.self_attention_residual(x, partial(attention.run, rows, source_lengths, keys, bias))
            x = layer.feed_forward_residual(x, layer.feed_forward)
        memory = apply_norm(self.stack.final_norm, x, None)  # [B * S, M]
        outputs: list[Tensor] = []
        for cross in self._cross:
            for projection in (cross.k_proj, cross.v_proj):
                split = projection(memory).view(rows, size, cross.kv_heads, cross.head_size)
                outputs.append(split.transpose(1, 2).contiguous())  # [B, G, S, D]
        return tuple(outputs)


class DecoderGraph(nn.Module):
    """One token per row in, the best next tokens out, keys and values kept in caches the caller owns.

    Where the decoder has a recurrent unit in place of self-attention, each layer has one cache of cells [B, 1, 2, M]
    in place of self-attention's two: see `translane_export.graphs.self_attention`.

    token_ids [B], positions [B] (tokens already in the row's cache), source_lengths [B], num_candidates [1], each
    layer's self-attention caches [B, G, T, D], each layer's cross-attention keys and values [B, G, S, D]
    -> candidate_ids [B, K], candidate_log_probs [B, K], logits [B, V], each layer's updated caches.
    With an `alignment_layer`, the query of that layer's cross-attention [B, H * D] comes after the logits.
    Suppressed ids have logits and log-probabilities of -inf; the other log-probabilities are as if they had not, unless
    the model gives suppressed ids no share.
    In the CUDA form num_blocks [1] comes after num_candidates, where there are `vocabulary_blocks`: the lesser of both.
    """

    suppressed: nn.Linear | None

    def __init__(self, model: Transformer, alignment_layer: int | None = None, *, for_cuda: bool = False) -> None:
        super().__init__()
        model = pad_heads(model)
        self.for_cuda = for_cuda
        self.alignment_layer = alignment_layer
        self.stack = model.decoder
        self.embedding = TokenAndPosition(model.decoder.embedding)
        self.bias = StackBias(model.decoder, model.output_projection.weight.dtype)
        self._layers = _decoder_layers(model)
        self._attentions = [
            StepAttention(layer.self_attention, self.bias.window, for_cuda=for_cuda)
            for layer in self._layers
            if layer.ssru is None
        ]
        self.packed = nn.ModuleList(attention.packed for attention in self._attentions)
        self.relative = nn.ModuleList(each.tables for each in self._attentions if each.tables is not None)
        self.output_projection, self.suppressed = _suppress(model)
        self.logit_scale = model.config.logit_scale

    @property
    def dtype(self) -> torch.dtype:
        """Type of the caches."""
        return self.output_projection.weight.dtype

    @property
    def vocabulary_blocks(self) -> int | None:
        """How many blocks the vocabulary is searched by, where the caller has to say how many are looked through."""
        return candidates.vocabulary_blocks(len(self.output_projection.weight)) if self.for_cuda else None

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, num_candidates: Tensor, *caches: Tensor
    ) -> tuple[Tensor, ...]:
        """See the class. `caches` has num_blocks before them, in the CUDA form, where there are blocks."""
        num_blocks = None
        if self.vocabulary_blocks is not None:
            num_blocks, *caches = caches  # type: ignore[assignment]  # a list is as good
        step = self.run(token_ids, positions, source_lengths, caches)
        logits = step.logits.float()  # [B, V]
        if self.for_cuda:
            ids = cuda_ops.best_ids(logits, num_candidates, num_blocks)
        else:
            ids = candidates.best_ids(logits, num_candidates)
        log_probs = self._log_probs(step.hidden, logits, ids)
        alignment = () if self.alignment_layer is None else (step.queries[self.alignment_layer],)
        return ids, log_probs, logits, *alignment, *step.present

    def run(self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, caches: Sequence[Tensor]) -> DecoderRun:
        """Run the decoder up to the logits, for inputs as of `forward`."""
        x = self.embedding(token_ids, self.embedding.at(positions))  # [B, M]
        split = len(caches) - 2 * len(self._layers)
        present: list[Tensor] = []
        queries: list[Tensor] = []
        earlier = self._earlier_tokens(positions, caches[:split], present)
        for layer, (residual, remember), cross in zip(self._layers, earlier, _pairs(caches[split:]), strict=True):
            x = residual(x, remember)
            look = partial(self._cross_attention, layer.cross_attention, cross, source_lengths, queries)
            x = layer.cross_attention_residual(x, look)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        x = apply_norm(self.stack.final_norm, x, None)  # [B, M]
        if self.logit_scale != 1:
            x = x * self.logit_scale
        return DecoderRun(x, self.output_projection(x), queries, present)

    def _earlier_tokens(
        self, positions: Tensor, caches: Sequence[Tensor], present: list[Tensor]
    ) -> list[tuple[Residual, Callable[[Tensor], Tensor]]]:
        """Return each layer's self-attention, or its recurrent unit; the updated caches will join `present`."""
        if not self._attentions:
            units = [layer.ssru for layer in self._layers if layer.ssru is not None]
            places = CellPlaces.at(positions, caches[0])
            steps = [partial(run_cell, unit, past, places, present) for unit, past in zip(units, caches, strict=True)]
            return [(layer.ssru_residual, step) for layer, step in zip(self._layers, steps, strict=True)]
        keys = onnx_ops.ordinals(caches[0][0, 0, :, 0])  # [T]
        bias = self.bias.between(positions.long()[:, None, None], keys)  # [B, H or 1, 1, T]
        return [
            (layer.self_attention_residual, partial(attention.run, past, positions, keys, bias, present))
            for layer, attention, past in zip(self._layers, self._attentions, _pairs(caches), strict=True)
        ]

    def _cross_attention(
        self,
        attention: MultiHeadAttention,
        keys_values: KeysValues,
        source_lengths: Tensor,
        queries: list[Tensor],
        x: Tensor,
    ) -> Tensor:
        queries.append(attention.q_proj(x))
        output: Tensor = attention.out_proj(
            onnx_ops.attend(queries[-1], keys_values, source_lengths, HeadForm.of(attention), queries[0])
        )
        return output

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
        left_out = self.suppressed(x).float()  # [B, N]
        # LogSoftmax again: ONNX Runtime's Log rounds a number as its place among the others has it
        return log_probs + torch.cat((normaliser, left_out), dim=1).log_softmax(-1)[:, :1]


def _suppress(model: Transformer) -> tuple[nn.Linear, nn.Linear | None]:
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
    suppressing = linear_of(projection.weight, bias.index_fill(0, torch.tensor(ids), -torch.inf))
    if not model.config.suppressed_share:
        return suppressing, None
    return suppressing, linear_of(projection.weight.detach()[ids], None if projection.bias is None else bias[ids])


def _encoder_layers(model: Transformer) -> list[EncoderLayer]:
    """Return the layers of the encoder."""
    return [layer for layer in model.encoder.layers if isinstance(layer, EncoderLayer)]


def _decoder_layers(model: Transformer) -> list[DecoderLayer]:
    """Return the layers of the decoder."""
    return [layer for layer in model.decoder.layers if isinstance(layer, DecoderLayer)]


def _pairs(caches: Sequence[Tensor]) -> list[KeysValues]:
    return [KeysValues(*caches[index : index + 2]) for index in range(0, len(caches), 2)]


class DecoderRun(NamedTuple):
    """What a step is made of: the output [B, M], its logits [B, V], each layer's cross-attention query and caches."""

    hidden: Tensor
    logits: Tensor
    queries: list[Tensor]
    present: list[Tensor]


class GreedyGraph(nn.Module):
    """A step of which nothing but each row's best token is wanted, in the CUDA form: the same weights as `step`.

    Inputs as of `DecoderGraph`, but for num_candidates and num_blocks -> candidate_ids [B, 1], each layer's updated
    self-attention caches.
    """

    def __init__(self, step: DecoderGraph) -> None:
        super().__init__()
        self.step = step

    def forward(
        self, token_ids: Tensor, positions: Tensor, source_lengths: Tensor, *caches: Tensor
    ) -> tuple[Tensor, ...]:
        """See the class."""
        step = self.step.run(token_ids, positions, source_lengths, caches)
        return cuda_ops.best_id(step.logits), *step.present


STEP = "step"  # the part of the graph that is a decoder: its weights have this before their names


class ShortlistGraph(nn.Module):
    """The step of `DecoderGraph` over U of the V tokens, those that the rows' shortlists have, with the same weights.

    Inputs as of `DecoderGraph`, with shortlist [U] (the tokens) and outside [B, U] (0, or -inf where a row may not use
    a token) after num_candidates -> candidate_places [B, K], which number the tokens of the shortlist, logits [B, U],
    the alignment layer's query, each layer's updated caches.
    """

    def __init__(self, step: DecoderGraph) -> None:
        super().__init__()
        self.step = step

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        source_lengths: Tensor,
        num_candidates: Tensor,
        shortlist: Tensor,
        outside: Tensor,
        *caches: Tensor,
    ) -> tuple[Tensor, ...]:
        """See the class."""
        step = self.step.run(token_ids, positions, source_lengths, caches)
        logits = self._project(step.hidden, shortlist) + outside
        layer = self.step.alignment_layer
        alignment = () if layer is None else (step.queries[layer],)
        return candidates.top_k(logits, num_candidates)[1], logits, *alignment, *step.present

    def _project(self, x: Tensor, shortlist: Tensor) -> Tensor:
        """Return the logits [B, U] of x [B, M].

        ONNX Runtime adds up the product of a single row in another order than that of several. So there is always
        another row.
        """
        projection = self.step.output_projection
        weight = nn.functional.embedding(shortlist, projection.weight)  # [U, M]
        x = torch.cat((x, x[:1]))  # [B + 1, M]
        shape = (x.shape[0], shortlist.shape[0])
        product = emit("Gemm", (x, weight), x.dtype, shape, {"transB": 1})[:-1]
        return product if projection.bias is None else product + projection.bias.index_select(0, shortlist)


class AlignmentGraph(nn.Module):
    """How much a step attends to each source position, averaged over some heads of the layer the query comes from.

    It has no weights, and is apart from the step, so that it costs nothing unless it runs: ONNX Runtime computes all of
    a graph, whichever outputs are fetched.

    alignment_query [B, H * D], source_lengths [B], the layer's cross-attention keys [B, G, S, D] -> [B, S], float32;
    zero from each row's source length on. `key_scale` is what a unit of the keys stands for.
    """

    def __init__(
        self, config: TransformerConfig, heads: Sequence[int], key_scale: float = 1.0, *, for_cuda: bool = False
    ) -> None:
        super().__init__()
        self.for_cuda = for_cuda
        padded = padded_config(config)
        self.form = HeadForm(
            heads=padded.heads,
            kv_heads=padded.key_value_heads,
            size=padded.head_dim,
            scale=key_scale * padded.score_scale,
            one_in_denominator=padded.attention_normalizer == "softmax1",
            rotary=None,
        )
        self.heads = list(heads)

    def forward(self, query: Tensor, source_lengths: Tensor, keys: Tensor) -> Tensor:
        """See the class."""
        form = self.form
        query = query.view(-1, form.heads, form.size)  # [B, H, D]
        if self.for_cuda:
            return self._mean(cuda_ops.attention_weights(query, keys, source_lengths, form))
        scores = onnx_ops.score_keys(query, keys, source_lengths, form.sharing) * form.scale  # [B, H, S]
        hidden = ~padding_mask(source_lengths, scores.shape[2])[:, :, 0]  # [B, 1, S]
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
        weights = normalize_scores(scores, one_in_denominator=form.one_in_denominator)
        return self._mean(weights).masked_fill(hidden[:, 0], 0.0)

    def _mean(self, weights: Tensor) -> Tensor:
        """Return the mean over the heads that align: [B, H, S] -> [B, S]."""
        if len(self.heads) < self.form.heads:
            weights = weights.index_select(1, torch.tensor(self.heads))
        mean: Tensor = weights.mean(1)
        return mean
