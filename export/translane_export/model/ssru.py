"""The simpler simple recurrent unit: what a decoder layer may have in place of self-attention.

Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation"
(https://aclanthology.org/D19-5632); Marian's `dec-cell: ssru`:

    f_t = σ(W_f x_t + b_f)                          the forget gate
    c_t = f_t ⊙ c_{t-1} + (1 - f_t) ⊙ W x_t         the cell, of which c_{-1} = 0
    o_t = ReLU(c_t)

A step needs one vector of all earlier ones, c_{t-1}, however many there were.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from translane_export.model.config import TransformerConfig


class SSRU(nn.Module):
    """The unit of a layer: W is `cell_proj`, and W_f and b_f are `forget_proj`."""

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.cell_proj = nn.Linear(config.d_model, config.d_model, bias=False)
        self.forget_proj = nn.Linear(config.d_model, config.d_model, bias=config.biases)

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x`` [B, T, M]: each position depends on those up to it. Cells are float32 or better."""
        exact = torch.promote_types(x.dtype, torch.float32)
        forget = torch.sigmoid(self.forget_proj(x).to(exact))
        cells = run_cells(forget, (1 - forget) * self.cell_proj(x).to(exact))
        return cells.relu().to(x.dtype)


def run_cells(forget: Tensor, added: Tensor) -> Tensor:
    """Return c_t = f_t ⊙ c_{t-1} + a_t of all positions: gates f and terms a, [B, T, M] each -> [B, T, M].

    A position takes in the sums of 1, 2, 4, … positions before it, so that T positions take log₂ T rounds: Hillis and
    Steele 1986, "Data parallel algorithms".
    """
    span = 1
    while span < forget.shape[1]:
        added = torch.cat((added[:, :span], added[:, span:] + forget[:, span:] * added[:, :-span]), dim=1)
        forget = torch.cat((forget[:, :span], forget[:, span:] * forget[:, :-span]), dim=1)
        span *= 2
    return added
