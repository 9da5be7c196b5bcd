"""ONNX Runtime's fused operators, each with the PyTorch that computes the same.

While ``torch.onnx.export`` captures a graph, a function here emits one ``com.microsoft`` node; everywhere else (eager
runs, TorchScript traces) it computes. Shapes: B rows, T positions, M model size, H heads, G heads of keys and values, D
head size, C cache capacity.
https://github.com/microsoft/onnxruntime/blob/main/docs/ContribOperators.md
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from translane_export.graphs.onnx_nodes import HeadForm, emit, group_query_attention, scalar
from translane_export.model.attention import KeysValues, normalize_scores
from translane_export.model.fast_attention import for_each_head


def ordinals(x: Tensor) -> Tensor:
    """Return 0, 1, … as int64, as many as there are entries in ``x`` [N].

    Eagerly they are counted: a trace of ``torch.arange`` would name the device it was made on.
    """
    if torch.onnx.is_in_onnx_export():
        return torch.arange(x.shape[0])
    return torch.ones_like(x, dtype=torch.int64).cumsum(0) - 1


class Attended(NamedTuple):
    """What attention gives: the context [..., H·D], and the weights [B, H, T, C] where they are asked for."""

    context: Tensor
    weights: Tensor | None


def packed_self_attention(
    qkv: Tensor, lengths: Tensor, form: HeadForm, bias: Tensor | None = None, *, weights: bool = False
) -> Attended:
    """Let every position of row b see the first ``lengths[b]`` ones.

    qkv [B, T, (H + 2·G)·D], lengths [B], bias of the scores [B or 1, H or 1, T, T] -> context [B, T, H·D] and, if
    asked for, the ``weights``, which mean nothing from a row's length on.
    """
    rows, size, _ = qkv.shape
    if torch.onnx.is_in_onnx_export():
        inputs = (qkv, None, None, None, None, lengths - 1, scalar(size))
        shapes: list[Any] = [(rows, size, form.width)]
        if weights:
            kept = (rows, form.kv_heads, size, form.size)
            shapes += [kept, kept, (rows, form.heads, size, size)]
        outputs = group_query_attention(inputs, form, shapes, qkv.dtype, bias=bias, causal=False)
        return Attended(outputs[0], outputs[3] if weights else None)
    queries, keys, values = _split_packed(qkv, form)  # [B, H or G, T, D]
    if form.rotary is not None:
        queries, keys = form.rotary(queries), form.rotary(keys)
    context, given = _attend(queries, KeysValues(keys, values), lengths, form, bias, weights=weights)
    return Attended(context.transpose(1, 2).flatten(2), given)  # [B, H, T, D] -> [B, T, H * D]


def append_and_attend(
    qkv: Tensor,
    past: KeysValues,
    positions: Tensor,
    form: HeadForm,
    bias: Tensor | None = None,
    *,
    window: int | None = None,
    weights: bool = False,
) -> tuple[Attended, KeysValues]:
    """Write row b's new key and value at ``positions[b]`` of its cache, and let its query see the cache that far.

    qkv [B, (H + 2·G)·D], past [B, G, C, D] each, positions [B], bias of the scores [B, H or 1, 1, C] -> context
    [B, H·D], if asked for the ``weights``, which mean nothing after the position, and the caches with the new entries.
    A query sees its ``window`` last keys, where there is one, its own among them.
    Passing the capacity as the total length keeps ONNX Runtime off its "first prompt" path, which is wrong for rows
    of different lengths.
    """
    if torch.onnx.is_in_onnx_export():
        rows, _, capacity, _ = past.keys.shape
        inputs = (qkv.unsqueeze(1), None, None, *past, positions, scalar(capacity))
        shapes: list[Any] = [(rows, 1, form.width), past.keys.shape, past.values.shape]
        if weights:
            shapes.append((rows, form.heads, 1, capacity))
        outputs = group_query_attention(inputs, form, shapes, qkv.dtype, bias=bias, window=window)
        return Attended(outputs[0].squeeze(1), outputs[3] if weights else None), KeysValues(outputs[1], outputs[2])
    query, key, value = _split_packed(qkv.unsqueeze(1), form)  # [B, H or G, 1, D]
    if form.rotary is not None:
        places = positions.long()[:, None]
        query, key = form.rotary(query, places), form.rotary(key, places)
    index = positions.long()[:, None, None, None].expand_as(key)  # [B, G, 1, D]
    present = KeysValues(past.keys.scatter(2, index, key), past.values.scatter(2, index, value))
    first = None if window is None else positions + 1 - window
    context, given = _attend(query, present, positions + 1, form, bias, first=first, weights=weights)
    return Attended(context.flatten(1), given), present


def attend(query: Tensor, keys_values: KeysValues, lengths: Tensor, form: HeadForm, shape_like: Tensor) -> Tensor:
    """Let row b's query see the first ``lengths[b]`` entries.

    query [B, H·D], keys and values [B, G, C, D], lengths [B] -> [B, H·D]. Of ``shape_like`` [B, H·D], the
    same tensor for every layer, only the shape is used.
    """
    query = query.unsqueeze(1)  # [B, 1, H * D]
    if torch.onnx.is_in_onnx_export():
        like = shape_like.unsqueeze(1)  # equal in all layers, so that the graph makes the empty keys once
        one_of_each = like if form.kv_heads == form.heads else like[..., : form.kv_heads * form.size]
        nothing = one_of_each[:, :0]  # [B, 0, G * D]: nothing is appended
        inputs = (query, nothing, nothing, *keys_values, lengths - 1, scalar(keys_values.keys.shape[2]))
        (context,) = group_query_attention(inputs, form, [query.shape], query.dtype)
        return context.squeeze(1)
    return _attend(_split_heads(query, form.heads), keys_values, lengths, form)[0].flatten(1)


def score_keys(query: Tensor, keys: Tensor, lengths: Tensor, sharing: int = 1) -> Tensor:
    """Return the products of each query with the keys of its row, in float32.

    query [B, H, D], keys [B, G, C, D], lengths [B] -> [B, H, C]; those past ``lengths[b]`` mean nothing. The graph
    looks at no more keys than the longest row has. Other rows' results must not depend on that number. ONNX Runtime's
    matrix-vector product adds the last keys in another order, so this multiplies and sums instead. The products are
    padded back to C, for a softmax over as many values at any step.
    """
    keys = for_each_head(keys, sharing)
    query = query.float().unsqueeze(2)  # [B, H, 1, D]
    if not torch.onnx.is_in_onnx_export():
        return (keys.float() * query).sum(-1)
    capacity = torch.scalar_tensor(keys.shape[2], dtype=torch.int64)
    longest = lengths.max().long()
    visible = emit("Slice", (keys, torch.tensor([0]), longest.view(1), torch.tensor([2])), keys.dtype, keys.shape)
    products = (visible.float() * query).sum(-1)  # [B, H, longest]
    pads = torch.cat((torch.zeros(5, dtype=torch.int64), (capacity - longest).view(1)))
    return emit("Pad", (products, pads), torch.float32, keys.shape[:3])


def _attend(
    queries: Tensor,
    keys_values: KeysValues,
    lengths: Tensor,
    form: HeadForm,
    bias: Tensor | None = None,
    *,
    first: Tensor | None = None,
    weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Let the queries [B, H, T, D] of row b see the keys from ``first[b]`` up to ``lengths[b]``.

    -> the context [B, H, T, D], and the weights [B, H, T, C] where they are asked for.
    """
    keys, values = (for_each_head(each, form.sharing) for each in keys_values)
    mask = _visible(lengths, keys, first)
    if form.one_in_denominator or weights:
        scores = form.scale * queries @ keys.transpose(2, 3)
        scores = scores if bias is None else scores + bias
        given = normalize_scores(scores, mask, one_in_denominator=form.one_in_denominator)
        return given @ values, given
    if bias is not None:
        mask = bias.masked_fill(~mask, -torch.inf)  # [B, H, T, C]
    context = nn.functional.scaled_dot_product_attention(queries, keys, values, mask, scale=form.unusual_scale)
    return context, None


def _visible(lengths: Tensor, keys: Tensor, first: Tensor | None) -> Tensor:
    """Return the mask of keys [B, H, C, D] from ``first[b]``, or from 0, up to ``lengths[b]``: [B, 1, 1, C].

    Positions are counted from the keys themselves: a trace of ``torch.arange`` would name the device it was made on.
    """
    ordinals = torch.ones_like(keys[0, 0, :, 0], dtype=torch.int32).cumsum(0)  # [C], from 1
    visible = ordinals[None, :] <= lengths[:, None]
    if first is not None:
        visible = visible & (ordinals[None, :] > first[:, None])
    return visible[:, None, None, :]


def _split_packed(qkv: Tensor, form: HeadForm) -> tuple[Tensor, ...]:
    """Cut qkv [B, T, (H + 2·G)·D] into queries [B, H, T, D], keys and values [B, G, T, D]."""
    sizes = [heads * form.size for heads in (form.heads, form.kv_heads, form.kv_heads)]
    queries, keys, values = torch.split(qkv, sizes, dim=-1)
    return (
        _split_heads(queries, form.heads),
        _split_heads(keys, form.kv_heads),
        _split_heads(values, form.kv_heads),
    )


def _split_heads(x: Tensor, heads: int) -> Tensor:
    return x.view(*x.shape[:2], heads, -1).transpose(1, 2)  # [B, T, H * D] -> [B, H, T, D]
