"""How the soak tells growth."""

from __future__ import annotations

import pytest

from benchmarks.runs.soak import Sample, ends


def samples(sizes):
    return [Sample(float(number), 100 * number, float(size), 15.0) for number, size in enumerate(sizes)]


def test_growth_counts_from_a_tenth_of_the_sentences_on():
    first, last = ends(samples([10] * 10 + [100] * 50 + [110] * 41))
    assert (first.bytes, last.bytes) == (100, 110)
    assert first.sentences == pytest.approx(1200)


def test_a_peak_of_one_sample_does_not_count():
    sizes = [100] * 100
    sizes[10] = sizes[-1] = 500
    first, last = ends(samples(sizes))
    assert first.bytes == last.bytes == 100
