"""Relative positions as vectors (`translane_export.model.positions`), as graphs have them.

Attention itself is one fused operator. What the vectors add to its scores goes in as a bias, and what they add to its
output is made of the weights that it returns. Every product is a Gemm with a constant, every sum runs along the keys in
their order: so a row's numbers depend on nothing beside it. Shapes: N positions, H heads, D head size, P places, C
keys.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translane_export.graphs.onnx_nodes import HeadForm
from translane_export.graphs.onnx_ops import ordinals, project
from translane_export.model.positions import RelativeEmbeddings


class RelativeTables(nn.Module):
    """The vectors as projections: `keys` makes q · r_k of each place, `values` makes of weights by place what they add.

    Heads that share a table are rows of one product. Heads with tables of their own are parts of one row, and the
    matrix has zeros where a head meets another's table.
    """

    def __init__(self, relative: RelativeEmbeddings) -> None:
        super().__init__()
        self.places = relative.places
        self.window = relative.window
        self.shared = relative.shared
        self.clipped = relative.clipped
        self.count = relative.keys.shape[1]
        self.keys = _projection(_beside_one_another(relative.keys.detach()))
        self.values = _projection(_beside_one_another(relative.values.detach().transpose(1, 2)))

    def score(self, queries: Tensor, form: HeadForm) -> Tensor:
        """Return scale · q · r_k of each place, [N, H · D] -> [N, H, P]; one more that is 0 if not clipped."""
        rows = queries.reshape(-1, form.size) if self.shared else queries
        products = (project(self.keys, rows) * form.scale).view(-1, form.heads, self.count)
        return products if self.clipped else _with_zeros(products, 1)

    def mix(self, shares: Tensor, form: HeadForm) -> Tensor:
        """Return what the values' vectors add to the context: weights by place [N, H, P] -> [N, H · D]."""
        rows = shares.reshape(-1, self.count) if self.shared else shares.flatten(1)
        return project(self.values, rows).view(-1, form.width)


def read_tables(keys: Tensor, values: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return `RelativeEmbeddings.keys` and `.values` of the weights of a `RelativeTables` for ``heads`` tables."""
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


def _projection(weight: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    layer.weight = nn.Parameter(weight.contiguous(), requires_grad=False)
    return layer
