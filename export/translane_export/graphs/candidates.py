"""The best candidates of a step: a search of the logits, whole or by blocks of the vocabulary.

While ``torch.onnx.export`` captures a graph, a function here emits nodes; everywhere else it computes. Shapes: B rows,
V vocabulary, K candidates, K' blocks.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from translane_export.graphs.onnx_nodes import emit, emit_all

_TRACED_CANDIDATES = 7  # the exporter wants some number for what is dynamic; the graph's shapes are cleared afterwards


def best_ids(logits: Tensor, count: Tensor) -> Tensor:
    """Return the ids of the ``count`` [1] highest logits of each row, best first, of equal ones the lowest id first.

    [B, V] -> [B, K].
    """
    if torch.onnx.is_in_onnx_export():
        blocks = vocabulary_blocks(logits.shape[1])
        return top_k(logits, count)[1] if blocks is None else _best_ids_of_blocks(logits, count, blocks)
    if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]  # public, but unannotated
        ids: Tensor = _scripted_top_ids()(logits, count)
        return ids
    return _top_ids(logits, count)


def vocabulary_blocks(vocabulary: int) -> int | None:
    """Return how many blocks, of some 128 ids, a vocabulary is searched by.

    None where it is searched whole: it is small, or nothing near divides it.
    """
    sizes = [size for size in range(48, 513) if vocabulary % size == 0 and vocabulary >= 16 * size]
    size = min(sizes, key=lambda size: abs(math.log(size / 128)), default=None)
    return None if size is None else vocabulary // size


def best_blocks(logits: Tensor, count: Tensor, blocks: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` [1] blocks with the highest maxima, in their own order, and the logits that are in them.

    [B, V] -> [B, K'] and [B, K' * size].
    """
    rows, size = logits.shape[0], logits.shape[1] // blocks
    split = logits.view(rows, blocks, size)
    chosen = top_k(top_k(split.amax(-1), count)[1], count, largest=False)[0]  # [B, K']
    shape = (rows, _TRACED_CANDIDATES, size)
    found = emit("GatherND", (split, chosen.unsqueeze(-1)), logits.dtype, shape, {"batch_dims": 1})
    side_by_side = (rows, _TRACED_CANDIDATES * size)
    return chosen, emit("Reshape", (found, torch.tensor([0, -1])), found.dtype, side_by_side)


def _best_ids_of_blocks(logits: Tensor, count: Tensor, blocks: int) -> Tensor:
    """Look for the K best in the K blocks of the vocabulary with the highest maxima: they are nowhere else.

    The maxima take a pass that ONNX Runtime vectorises, where TopK compares one number after the other: 5 times as
    fast over 65,000 ids, 3 to 5 times over 8,000. Blocks are looked through in their own order, so that of equal
    logits the lowest id stays first.
    """
    size = logits.shape[1] // blocks
    chosen, found = best_blocks(logits, torch.minimum(count, torch.tensor([blocks])), blocks)
    _, places = top_k(found, count)  # [B, K]
    width = torch.tensor([size])
    number = emit("Div", (places, width), places.dtype, places.shape)
    return chosen.gather(1, number) * size + emit("Mod", (places, width), places.dtype, places.shape)


def top_k(x: Tensor, count: Tensor, known: int = _TRACED_CANDIDATES, *, largest: bool = True) -> tuple[Tensor, Tensor]:
    """Return the values and places of the ``count`` [1] largest or smallest numbers along the last dimension.

    ``known`` is that count where it is always the same.
    """
    shape = (*x.shape[:-1], known)
    values, places = emit_all("TopK", (x, count), [x.dtype, torch.int64], [shape, shape], {"largest": int(largest)})
    return values, places


def _top_ids(logits: Tensor, count: Tensor) -> Tensor:
    return logits.topk(int(count.item()), dim=-1)[1]


@cache
def _scripted_top_ids() -> Any:
    return torch.jit.script(_top_ids)  # a trace alone would fix the count it was made with
