from __future__ import annotations

import pytest
import torch

pytest.importorskip("matplotlib")
from benchmarks.runs import normalization
from benchmarks.runs.normalization import KINDS, PLACEMENTS, Curve, draw_pairs, draw_training, smooth, train


def test_targets_are_reversed_sources():
    pairs = draw_pairs(20, torch.Generator().manual_seed(0))
    for source, length, target in zip(pairs.sources, pairs.lengths.tolist(), pairs.targets, strict=True):
        letters = source[: length - 1]
        assert source[length - 1 :].tolist() == [3, *[0] * (len(source) - length)]
        assert target.tolist() == [2, *letters.flip(0).tolist(), 3, *[0] * (len(source) - length)]
    assert len(set(pairs.lengths.tolist())) > 5


def test_a_short_run_learns(monkeypatch):
    monkeypatch.setattr(normalization, "VALIDATE_EVERY", 10)
    with torch.random.fork_rng(devices=[]):
        curve = train("layer", "pre", 20)
    assert list(curve.validation) == [10, 20]
    assert curve.validation[20] < curve.training[0]


def test_smoothing_follows():
    assert list(smooth([2.0, 2.0, 4.0], 0.5)) == [2, 2, 3]


def test_every_kind_and_placement_is_drawn():
    figure = draw_training({(kind, place): Curve([1.0, 0.5], {1: 1.0}) for kind in KINDS for place in PLACEMENTS})
    assert [len(axes.get_lines()) for axes in figure.axes] == [2 * len(KINDS)] * 2
