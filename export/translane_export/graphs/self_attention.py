"""Self-attention of a layer as graphs have it: the fused operator, and what a variant adds around it.

What positions do to scores (`translane_export.model.positions`) is a bias, which the layers of a stack share. Relative
embeddings add to it, layer by layer.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from translane_export.graphs import cuda_ops, onnx_ops
from translane_export.graphs.head_padding import linear_of
from translane_export.graphs.onnx_nodes import HeadForm
from translane_export.graphs.onnx_ops import ordinals
from translane_export.model.attention import KeysValues, MultiHeadAttention
from translane_export.model.layers import SSRU
from translane_export.model.masks import BlockRule, CausalRule, DistanceBias, MaskRule, WindowRule
from translane_export.model.positions import RelativeVectors
from translane_export.model.transformer import Stack


class RelativeTables(nn.Module):
    """The vectors as projections: `keys` makes q · r_k of each place, `values` makes of weights by place what they add.

    Heads that share a table are rows of one product. Heads with tables of their own are parts of one row, and the
    matrix has zeros where a head meets another's table.

    Attention itself is one fused operator. What the vectors add to its scores goes in as a bias, and what they add to
    its output is made of the weights that it returns. Every product is a Gemm with a constant, every sum runs along the
    keys in their order: so a row's numbers depend on nothing beside it. Shapes: N positions, H heads, D head size,
    P places, C keys.
    """

    def __init__(self, relative: RelativeVectors) -> None:
        super().__init__()
        self.places = relative.places
        self.window = relative.window
        self.shared = relative.shared
        self.clipped = relative.clipped
        self.count = relative.keys.shape[1]
        self.keys = linear_of(_beside_one_another(relative.keys.detach()))
        self.values = linear_of(_beside_one_another(relative.values.detach().transpose(1, 2)))

    def score(self, queries: Tensor, form: HeadForm) -> Tensor:
        """Return scale · q · r_k of each place, [N, H · D] -> [N, H, P]; one more that is 0 if not clipped."""
        rows = queries.reshape(-1, form.size) if self.shared else queries
        products = (self.keys(rows) * form.scale).view(-1, form.heads, self.count)
        return products if self.clipped else _with_zeros(products, 1)

    def mix(self, shares: Tensor, form: HeadForm) -> Tensor:
        """Return what the values' vectors add to the context: weights by place [N, H, P] -> [N, H · D]."""
        rows = shares.reshape(-1, self.count) if self.shared else shares.flatten(1)
        mixed: Tensor = self.values(rows)
        return mixed.view(-1, form.width)


def read_tables(keys: Tensor, values: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return `RelativeVectors.keys` and `.values` of the weights of a `RelativeTables` for ``heads`` tables."""
    return _apart(keys, heads), _apart(values, heads).transpose(1, 2)


def shares_of_step(relative: RelativeTables, weights: Tensor, positions: Tensor, keys: Tensor) -> Tensor:
    """Return a step's weights by place: [B, H, C], positions [B], keys [C] -> [B, H, P].

    Weights of keys after the position mean nothing, and may be no numbers. Places after it have none.
    """
    window, heads = relative.window, weights.shape[1]
    wanted = positions.long()[:, None] - window + ordinals(relative.values.weight[0, : window + 1])  # [B, window + 1]
    index = wanted.clamp(min=0)[:, None].expand(-1, heads, -1)
    near = torch.where((wanted >= 0)[:, None], weights.gather(2, index), 0.0)  # [B, H, window + 1]
    near = _with_zeros(near, window)  # [B, H, P]
    if not relative.clipped:
        return near
    behind = (keys[None, :] <= positions.long()[:, None] - window)[:, None]  # [B, 1, C]
    furthest = torch.where(behind, weights, 0.0).sum(2, keepdim=True)
    return torch.cat((furthest, near[:, :, 1:]), dim=2)


def shares_of_sentence(relative: RelativeTables, weights: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
    """Return all positions' weights by place: [B, H, S, S], lengths [B], keys [S] -> [B, H, S, P].

    Weights of keys from a row's length on mean nothing, and may be no numbers.
    """
    window = relative.window
    rows, heads = weights.shape[:2]
    real = (keys[None, :] < lengths[:, None])[:, None, None]  # [B, 1, 1, S]
    weights = torch.where(real, weights, 0.0)
    wanted = keys[:, None] - window + ordinals(relative.values.weight[0, : relative.count])  # [S, P]
    inside = torch.logical_and(wanted >= 0, wanted <= keys[-1:])
    index = torch.where(inside, wanted, 0).expand(rows, heads, -1, -1)
    near = torch.where(inside, weights.gather(3, index), 0.0)  # [B, H, S, P]
    if not relative.clipped:
        return near
    # CumSum adds one key after the other, whatever comes after them
    sums = weights.cumsum(3)  # [B, H, S, S]
    before = keys - window  # [S], the last key that is a window or more before a query
    furthest = torch.where(before >= 0, _pick(sums, before.clamp(min=0)), 0.0)
    up_to = torch.minimum(keys + window - 1, keys[-1:])  # the last key that is less than a window after a query
    ahead = sums[..., -1] - _pick(sums, up_to)
    return torch.cat((furthest[..., None], near[..., 1:-1], ahead[..., None]), dim=3)


def _with_zeros(x: Tensor, count: int) -> Tensor:
    """Put so many zeros behind x [B, H, N]; Pad has no kernel for bfloat16 on CUDA."""
    return torch.cat((x, torch.zeros_like(x[..., :1]).expand(-1, -1, count)), dim=2)


def _pick(sums: Tensor, index: Tensor) -> Tensor:
    """Return the sum of each query at its own index: [B, H, S, S] and [S] -> [B, H, S]."""
    return sums.gather(3, index[:, None].expand(*sums.shape[:2], -1, 1)).squeeze(3)


def _beside_one_another(tables: Tensor) -> Tensor:
    """Return tables [H, rows, columns] as one matrix [H · rows, H · columns] with zeros elsewhere."""
    matrix: Tensor = torch.block_diag(*tables)  # type: ignore[no-untyped-call]  # public, but unannotated
    return matrix


def _apart(matrix: Tensor, tables: int) -> Tensor:
    """Undo `_beside_one_another`."""
    rows, columns = (size // tables for size in matrix.shape)
    parts = matrix.view(tables, rows, tables, columns)
    return torch.stack([parts[number, :, number] for number in range(tables)])


def _pack(attention: MultiHeadAttention) -> nn.Linear:
    """Return Q, K and V as one projection to (H + 2·G)·D, whose memory they share from now on."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    biases = [part.bias.detach() for part in parts if part.bias is not None]
    weights = torch.cat([part.weight.detach() for part in parts])
    packed = linear_of(weights, torch.cat(biases) if biases else None)
    for part, weight in zip(parts, torch.split(weights, [part.out_features for part in parts]), strict=True):
        part.weight.data = weight
    return packed


class _SelfAttention:
    """The layer's projections, those to queries, keys and values as one; and its tables, where it has some."""

    def __init__(self, attention: MultiHeadAttention, *, for_cuda: bool) -> None:
        self.out_proj = attention.out_proj
        self.form = HeadForm.of(attention)
        self.packed = _pack(attention)
        self.tables = None if attention.relative is None else RelativeTables(attention.relative)
        self.for_cuda = for_cuda


class SentenceAttention(_SelfAttention):
    """All positions of sentences see one another: `translane_export.graphs.encoder_decoder.EncoderGraph`."""

    def run(self, rows: int, lengths: Tensor, keys: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
        """Attend: lengths [B], keys 0 … S-1, bias [1, H or 1, S, S], x [B * S, M] -> [B * S, M]."""
        output: Tensor = self.out_proj(self._context(rows, lengths, keys, bias, x))
        return output

    def _context(self, rows: int, lengths: Tensor, keys: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
        """Return the context of all heads, [B * S, H * D]."""
        form, tables = self.form, self.tables
        if tables is None and self.for_cuda:
            split = x.view(rows, -1, x.shape[1])
            return cuda_ops.self_attention(self.packed, split, lengths, form, bias).flatten(0, 1)
        qkv = self.packed(x).view(rows, -1, self.packed.out_features)  # [B, S, (H + 2 * G) * D]
        if tables is None:
            return onnx_ops.packed_self_attention(qkv, lengths, form, bias).context.flatten(0, 1)
        size = keys.shape[0]
        queries = qkv[..., : form.width].reshape(-1, form.width)
        products = tables.score(queries, form).view(rows, size, form.heads, -1).transpose(1, 2)  # [B, H, S, P]
        places = tables.places(keys[:, None], keys[None, :])  # [S, S]
        raised = products.gather(3, places.expand(rows, form.heads, -1, -1))  # [B, H, S, S]
        bias = raised if bias is None else raised + bias
        if self.for_cuda:
            context = cuda_ops.grouped_self_attention(qkv, lengths, form, bias)
            weights: Tensor | None = cuda_ops.weights_of_sentence(qkv, lengths, form, bias)
        else:
            context, weights = onnx_ops.packed_self_attention(qkv, lengths, form, bias, weights=True)
        assert weights is not None
        shares = shares_of_sentence(tables, weights, lengths, keys)  # [B, H, S, P]
        by_position = shares.transpose(1, 2).contiguous().flatten(0, 1)  # [B * S, H, P]
        return context.flatten(0, 1) + tables.mix(by_position, form)


class StepAttention(_SelfAttention):
    """One position of each row sees those before it: `translane_export.graphs.encoder_decoder.DecoderGraph`."""

    def __init__(self, attention: MultiHeadAttention, window: int | None, *, for_cuda: bool) -> None:
        super().__init__(attention, for_cuda=for_cuda)
        self.window = window

    def run(
        self,
        past: KeysValues,
        positions: Tensor,
        keys: Tensor,
        bias: Tensor | None,
        present: list[Tensor],
        x: Tensor,
    ) -> Tensor:
        """Attend: past [B, G, C, D] each, positions [B], keys 0 … C-1, bias [B, H or 1, 1, C], x [B, M] -> [B, M].

        The updated caches join `present`.
        """
        context, updated = self._context(past, positions, keys, bias, x)
        present.extend(updated)
        output: Tensor = self.out_proj(context)
        return output

    def _context(
        self, past: KeysValues, positions: Tensor, keys: Tensor, bias: Tensor | None, x: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """Return the context of all heads, [B, H * D], and the updated caches."""
        form, tables = self.form, self.tables
        qkv = self.packed(x)  # [B, (H + 2 * G) * D]
        if tables is None:
            attended, present = onnx_ops.append_and_attend(qkv, past, positions, form, bias, window=self.window)
            return attended.context, present
        query = qkv[:, : form.width]
        products = tables.score(query, form)  # [B, H, P]
        places = tables.places(positions.long()[:, None, None], keys)[:, 0]  # [B, C]
        raised = products.gather(2, places[:, None].expand(-1, form.heads, -1)).unsqueeze(2)  # [B, H, 1, C]
        bias = raised if bias is None else raised + bias
        attended, present = onnx_ops.append_and_attend(
            qkv, past, positions, form, bias, window=self.window, weights=not self.for_cuda
        )
        if self.for_cuda:
            weights = cuda_ops.weights_of_step(query, present.keys, positions + 1, form, bias)
        else:
            assert attended.weights is not None
            weights = attended.weights.squeeze(2)  # [B, H, C]
        shares = shares_of_step(tables, weights, positions, keys)  # [B, H, P]
        return attended.context + tables.mix(shares, form), present


class StackBias(nn.Module):
    """What positions do to a stack's self-attention, as one bias of its scores, and a window where that says it all."""

    def __init__(self, stack: Stack, dtype: torch.dtype) -> None:
        super().__init__()
        fixed = [copy.deepcopy(each) for each in (stack.alibi, stack.proximal_bias) if each is not None]
        if dtype.itemsize < torch.float32.itemsize:  # Log and Neg have no kernel for bfloat16 on CUDA
            fixed = [each.float() for each in fixed]
        learned = [] if stack.relative_positions is None else [stack.relative_positions]
        self.fixed = nn.ModuleList(fixed)
        self._biases: Sequence[DistanceBias] = [*learned, *fixed]
        rules = [rule for rule in stack.rules if not isinstance(rule, CausalRule)]
        causal = len(rules) < len(stack.rules)
        # an operator that has a bias anyway takes the rules with it
        self.window = _window(rules) if causal and not self._biases else None
        self._rules: Sequence[MaskRule] = () if self.window else rules
        # its half, so that no score makes it infinite: what all keys have is no number in the end
        self._unseen = torch.finfo(dtype).min / 2
        self._dtype = dtype

    def between(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias from positions [..., T, 1] to [..., S]: -> [..., H or 1, T, S]; None if there is none."""
        bias: Tensor | None = None
        for each in self._biases:
            raised = each.between(queries, keys)
            bias = raised if bias is None else bias + raised
        if bias is not None and bias.dtype != self._dtype:
            bias = bias.to(self._dtype)
        for rule in self._rules:
            seen = rule.sees(queries, keys).unsqueeze(-3)
            bias = torch.where(seen, torch.zeros((), dtype=self._dtype) if bias is None else bias, self._unseen)
        return bias


class CellPlaces(NamedTuple):
    """Which places of the cache a step reads and writes; the layers share it.

    ``earlier`` [B] says where it reads in a cache of [2·B, M], and ``begun`` [B, 1] whether there is anything to read.
    ``own`` [B, 1, 2, 1] is True where it writes.
    """

    earlier: Tensor
    begun: Tensor
    own: Tensor

    @classmethod
    def at(cls, positions: Tensor, past: Tensor) -> CellPlaces:
        """Return the places of a step at positions [B] in a cache [B, 1, 2, M]."""
        places = positions.long() % 2
        own = places[:, None] == ordinals(past[0, 0, :, 0])  # [B, 2]
        return cls(2 * ordinals(positions) + 1 - places, positions[:, None] > 0, own[:, None, :, None])


def run_cell(ssru: SSRU, past: Tensor, places: CellPlaces, present: list[Tensor], x: Tensor) -> Tensor:
    """Run a step of a recurrent unit: past [B, 1, 2, M], x [B, M] -> [B, M]. The updated cache joins `present`."""
    earlier = nn.functional.embedding(places.earlier, past.view(-1, past.shape[3]))  # [B, M]
    earlier = torch.where(places.begun, earlier, torch.zeros((), dtype=past.dtype))
    added: Tensor = ssru.cell_proj(x)
    cell = added + torch.sigmoid(ssru.forget_proj(x)) * (earlier - added)
    present.append(torch.where(places.own, cell[:, None, None], past))
    return cell.relu()


def _window(rules: Sequence[MaskRule]) -> int | None:
    """Return how many keys a causal query sees, its own among them, if that is all that the rules say."""
    match rules:
        case [BlockRule(block_length)]:
            return block_length + 1
        case [WindowRule(window_size, look_backward, _, True)]:
            return window_size * look_backward + 1
    return None
