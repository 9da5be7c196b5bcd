"""Relative positions as vectors (`translane_export.model.relative_embeddings`), as graphs have them.

Attention itself is one fused operator. What the vectors add to its scores goes in as a bias, and what they add to its
output is made of the weights that it returns. Every product is a Gemm with a constant, every sum runs along the keys in
their order: so a row's numbers depend on nothing beside it. Shapes: N positions, H heads, D head size, P places (a
decoder has none after the query's own), C keys.
"""

from __future__ import annotations

import torch
from torch import Tensor

from translane_export.graphs.onnx_nodes import emit
from translane_export.graphs.onnx_ops import ordinals
from translane_export.model.relative_embeddings import RelativeEmbeddings


def score_places(relative: RelativeEmbeddings, queries: Tensor, heads: int, count: int) -> Tensor:
    """Return q · r_k of the first ``count`` places, [N, H · D] -> [N, H, P]; one more that is 0 if not clipped."""
    tables = relative.keys[:, :count]  # [1 or H, P, D]
    if relative.shared:
        products = _gemm(queries.reshape(-1, tables.shape[2]), tables[0]).view(-1, heads, count)
    else:
        products = _gemm(queries, _beside_one_another(tables)).view(-1, heads, count)
    return products if relative.clipped else torch.nn.functional.pad(products, (0, 1))


def mix_places(relative: RelativeEmbeddings, shares: Tensor) -> Tensor:
    """Return what the values' vectors add to the context: weights by place [N, H, P] -> [N, H · D]."""
    heads, count = shares.shape[1:]
    tables = relative.values[:, :count].transpose(1, 2)  # [1 or H, D, P]
    size = tables.shape[1]
    if relative.shared:
        return _gemm(shares.reshape(-1, count), tables[0]).view(-1, heads * size)
    return _gemm(shares.flatten(1), _beside_one_another(tables))


def places_of_step(relative: RelativeEmbeddings, positions: Tensor, keys: Tensor) -> Tensor:
    """Return the place of each key for a step at ``positions`` [B], keys [C] -> [B, C]; those it does not see, any."""
    places = relative.places(positions.long()[:, None, None], keys)[:, 0]  # [B, C]
    beyond = relative.window + 1
    if relative.clipped:
        return places.clamp(max=relative.window)
    return torch.where(places > beyond, beyond, places)


def shares_of_step(relative: RelativeEmbeddings, weights: Tensor, positions: Tensor, keys: Tensor) -> Tensor:
    """Return a step's weights by place: [B, H, C], positions [B], keys [C] -> [B, H, P].

    Weights of keys after the position mean nothing, and may be no numbers.
    """
    window, heads = relative.window, weights.shape[1]
    wanted = positions.long()[:, None] - window + ordinals(relative.keys[0, : window + 1, 0])  # [B, P]
    index = wanted.clamp(min=0)[:, None].expand(-1, heads, -1)
    near = torch.where((wanted >= 0)[:, None], weights.gather(2, index), 0.0)  # [B, H, P]
    if not relative.clipped:
        return near
    behind = (keys[None, :] <= positions.long()[:, None] - window)[:, None]  # [B, 1, C]
    furthest = torch.where(behind, weights, 0.0).sum(2, keepdim=True)
    return torch.cat((furthest, near[:, :, 1:]), dim=2)


def shares_of_sentence(relative: RelativeEmbeddings, weights: Tensor, lengths: Tensor, keys: Tensor) -> Tensor:
    """Return all positions' weights by place: [B, H, S, S], lengths [B], keys [S] -> [B, H, S, P].

    Weights of keys from a row's length on mean nothing, and may be no numbers.
    """
    window = relative.window
    rows, heads = weights.shape[:2]
    real = (keys[None, :] < lengths[:, None])[:, None, None]  # [B, 1, 1, S]
    weights = torch.where(real, weights, 0.0)
    wanted = keys[:, None] - window + ordinals(relative.keys[0, :, 0])  # [S, P]
    inside = torch.logical_and(wanted >= 0, wanted < keys.shape[0])
    index = torch.where(inside, wanted, 0).expand(rows, heads, -1, -1)
    near = torch.where(inside, weights.gather(3, index), 0.0)  # [B, H, S, P]
    if not relative.clipped:
        return near
    # CumSum adds one key after the other, whatever comes after them
    sums = weights.cumsum(3)  # [B, H, S, S]
    last = torch.ones_like(keys) * (keys.shape[0] - 1)
    before = keys - window  # [S], the last key that is a window or more before a query
    furthest = torch.where(before >= 0, _pick(sums, before.clamp(min=0)), 0.0)
    up_to = torch.minimum(keys + window - 1, last)  # the last key that is less than a window after a query
    ahead = sums[..., -1] - _pick(sums, up_to)
    return torch.cat((furthest[..., None], near[..., 1:-1], ahead[..., None]), dim=3)


def _pick(sums: Tensor, index: Tensor) -> Tensor:
    """Return the sum of each query at its own index: [B, H, S, S] and [S] -> [B, H, S]."""
    return sums.gather(3, index[:, None].expand(*sums.shape[:2], -1, 1)).squeeze(3)


def _beside_one_another(tables: Tensor) -> Tensor:
    """Return tables [H, rows, columns] as one matrix [H · rows, H · columns] with zeros elsewhere."""
    heads, rows, columns = tables.shape
    numbers = ordinals(tables[:, 0, 0])  # [H]
    own = (numbers[:, None] == numbers[None, :]).to(tables.dtype)
    return (tables[:, :, None, :] * own[:, None, :, None]).reshape(heads * rows, heads * columns)


def _gemm(x: Tensor, weight: Tensor) -> Tensor:
    """Return x [N, K] times a weight [M, K]: -> [N, M]."""
    if torch.onnx.is_in_onnx_export():
        return emit("Gemm", (x, weight), x.dtype, (x.shape[0], weight.shape[0]), {"transB": 1})
    return torch.nn.functional.linear(x, weight)
