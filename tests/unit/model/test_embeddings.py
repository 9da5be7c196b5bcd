from __future__ import annotations

import math

import pytest
import torch

from translane_export.model.embeddings import Embedding
from translane_export.model.positions import LearnedPositions, SinusoidalPositions, sinusoid_table


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_follow_the_papers_formula(d_model):
    table = sinusoid_table(1000, d_model)

    assert table.shape == (1000, d_model)
    for position in (0, 1, 17, 999):
        for i in range(0, d_model // 2, max(1, d_model // 8)):
            angle = position / 10000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("kind", [SinusoidalPositions, LearnedPositions])
def test_positions_up_to_the_limit_and_no_further(kind):
    positions = kind(5, 4)

    assert positions(torch.tensor([[4, 0], [2, 2]])).shape == (2, 2, 4)
    assert torch.equal(positions.first(5, torch.device("cpu")), positions(torch.arange(5)))
    assert positions(torch.empty(0, dtype=torch.long)).shape == (0, 4)
    with pytest.raises(ValueError, match="position 5 is past the limit of 5 positions"):
        positions(torch.tensor([0, 5]))
    with pytest.raises(ValueError, match="position 5 is past the limit"):
        positions.first(6, torch.device("cpu"))
    with pytest.raises(ValueError, match="position -1 is negative"):
        positions(torch.tensor([3, -1]))


@pytest.mark.parametrize(("scaled", "factor"), [(True, 4.0), (False, 1.0)])
def test_tokens_are_scaled_by_the_root_of_d_model(make_config, scaled, factor):
    embedding = Embedding(make_config(d_model=16, scale_embeddings=scaled), vocab_size=13).eval()
    expected = embedding.tokens.weight[5] * factor + sinusoid_table(1, 16)[0]
    torch.testing.assert_close(embedding(torch.tensor([[5]]))[0, 0], expected)
