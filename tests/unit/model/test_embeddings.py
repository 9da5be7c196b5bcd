from __future__ import annotations

import math

import pytest
import torch

from translane_export.model.positions import sinusoid_table
from translane_export.model.transformer import Embedding


@pytest.mark.parametrize("d_model", [2, 6, 512])
def test_sinusoids_follow_the_papers_formula(d_model):
    table = sinusoid_table(1000, d_model)

    assert table.shape == (1000, d_model)
    for position in (0, 1, 17, 999):
        for i in range(0, d_model // 2, max(1, d_model // 8)):
            angle = position / 10000 ** (2 * i / d_model)
            assert table[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-7)
            assert table[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-7)


@pytest.mark.parametrize("kind", ["sinusoidal", "learned", "rotary"])
def test_positions_up_to_the_limit_and_no_further(make_config, kind):
    embedding = Embedding(make_config(positions=kind, max_positions=5), vocab_size=13)
    assert embedding(torch.full((2, 5), 4)).shape == (2, 5, 16)
    with pytest.raises(ValueError, match="position 5 is past the limit of 5 positions"):
        embedding(torch.full((2, 6), 4))


@pytest.mark.parametrize(("scaled", "factor"), [(True, 4.0), (False, 1.0)])
def test_tokens_are_scaled_by_the_root_of_d_model(make_config, scaled, factor):
    embedding = Embedding(make_config(d_model=16, scale_embeddings=scaled), vocab_size=13).eval()
    expected = embedding.tokens.weight[5] * factor + sinusoid_table(1, 16)[0]
    torch.testing.assert_close(embedding(torch.tensor([[5]]))[0, 0], expected)
