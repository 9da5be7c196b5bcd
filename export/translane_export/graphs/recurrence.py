"""The recurrent unit of a layer as graphs have it: one step, with the cell in a cache that the caller owns.

Cells of step t are at place t mod 2 of the cache [B, 1, 2, M], and those of step t - 1 at the other place. So a step
that runs twice, over the same tokens and positions, leaves the same cache.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from translane_export.graphs.onnx_ops import ordinals, project
from translane_export.model.ssru import SSRU


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


def run_step(ssru: SSRU, past: Tensor, places: CellPlaces, present: list[Tensor], x: Tensor) -> tuple[Tensor, None]:
    """Run a step: past [B, 1, 2, M], x [B, M] -> as a `Sublayer`, [B, M]. The updated cache joins `present`."""
    earlier = nn.functional.embedding(places.earlier, past.view(-1, past.shape[3]))  # [B, M]
    earlier = torch.where(places.begun, earlier, torch.zeros((), dtype=past.dtype))
    added = project(ssru.cell_proj, x)
    cell = added + torch.sigmoid(project(ssru.forget_proj, x)) * (earlier - added)
    present.append(torch.where(places.own, cell[:, None, None], past))
    return cell.relu(), None
