from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks.measuring.norms import Statistics, distance, gap_at_inference, moved_by_others, moved_by_padding


def test_statistics_are_those_of_a_batch_norm():
    vectors = torch.randn(50, 8) * 3 + 1
    expected = nn.BatchNorm1d(8, affine=False)(vectors)
    torch.testing.assert_close(Statistics.of(vectors).apply(vectors), expected)


def test_distance():
    assert distance(torch.tensor([1.0, 1.0]), torch.tensor([4.0, 5.0])) == pytest.approx(12.5**0.5)


def test_padding_moves_a_batch_norm_alone():
    moved = moved_by_padding([0.0, 0.3, 0.8])
    assert moved["batch"][0] == 0 < moved["batch"][1] < moved["batch"][2]
    assert moved["layer"] == moved["rms"] == [0, 0, 0]


def test_other_sentences_move_a_batch_norm_alone():
    moved = moved_by_others([1, 2, 64])
    assert moved["batch"][0] == pytest.approx(0, abs=1e-6)
    assert moved["batch"][1] > moved["batch"][2] > 0
    assert moved["layer"] == pytest.approx([0, 0, 0], abs=1e-6)


def test_running_statistics_are_further_from_small_batches():
    gaps = gap_at_inference([2, 64])
    assert gaps["batch"][0] > gaps["batch"][1] > 0
    assert gaps["layer"] == gaps["rms"] == [0, 0]
