"""Ranges of activations: what they hold, and what they cut off."""

import numpy as np
import pytest
import torch

from helpers.bundles import SMALL_SIZES, random_model
from translane_export.core.ranges import Range
from translane_export.int8.calibration import _Seen, _squared_error, measure_ranges
from translane_export.int8.keys_values import LARGEST
from translane_export.model import TransformerConfig

PAIRS = [([5, 6, 7, 3], [8, 9]), ([4, 3], [10, 11, 12]), ([9, 9, 8, 7, 3], [])]


def seen(*arrays):
    found = _Seen()
    for array in arrays:
        found.add(torch.tensor(array), 1 << 14)
    return found


@pytest.mark.parametrize(("low", "high"), [(0.5, 2.0), (-3.0, -1.0), (-1.0, 4.0), (0.0, 0.0)])
def test_zero_is_in_every_range(low, high):
    """And evenly spread numbers are not cut off."""
    found = seen(np.linspace(low, high, 1000, dtype=np.float32)).best_range()
    assert found.low <= 0 <= found.high
    assert 0 < found.scale < np.inf
    assert abs(found.low - min(low, 0)) <= found.scale
    assert abs(found.high - max(high, 0)) <= found.scale


def test_heavy_tails_are_cut_off_and_that_is_nearer_to_the_numbers():
    values = np.random.default_rng(0).laplace(size=1_000_000).astype(np.float32)
    found, everything = seen(values).best_range(), Range(float(values.min()), float(values.max()))
    assert found.high < 0.9 * everything.high
    assert _squared_error(values, found) < 0.8 * _squared_error(values, everything)
    assert 0.1 < seen(values).best_scale() / (np.abs(values).max() / LARGEST) < 0.9


def test_extremes_of_what_is_not_kept_count():
    first, second = np.zeros(1 << 16, np.float32), np.full(4, 9.0, np.float32)
    found = _Seen()
    found.add(torch.tensor(first), 1 << 16)  # there is no room after it
    found.add(torch.tensor(second), 4)
    assert found.high == 9


def test_ranges_are_what_the_model_meets():
    model = random_model(TransformerConfig(**SMALL_SIZES))
    met = []
    model.output_projection.register_forward_pre_hook(lambda _module, inputs: met.append(inputs[0]))
    found = measure_ranges(model, PAIRS).decoder["output_projection.weight"]
    assert isinstance(found, Range)
    everything = torch.cat([inputs.flatten() for inputs in met])
    assert [inputs.shape[1] for inputs in met] == [1 + len(target) for _, target in PAIRS]
    assert float(everything.min()) - 1e-6 <= found.low < found.high <= float(everything.max()) + 1e-6
    assert found.high - found.low > 0.3 * float(everything.max() - everything.min()) - 1e-6


def test_of_long_sentences_as_much_counts_as_the_model_takes():
    model = random_model(TransformerConfig(**SMALL_SIZES))
    long = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
    assert measure_ranges(model, [(long, long)]) == measure_ranges(model, [(long[:8], long[:7])])
