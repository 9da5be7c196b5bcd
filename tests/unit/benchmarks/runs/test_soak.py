"""How the soak tells growth, and what it sends."""

from __future__ import annotations

import pytest

from benchmarks.runs.soak import MIXTURE, Sample, ends, short_texts


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


def test_few_samples_tell_nothing():
    with pytest.raises(ValueError, match="too few"):
        ends(samples([1]))


def test_the_mixture_is_of_a_hundred_requests():
    assert sum(MIXTURE.values()) == 100


def test_only_short_texts_are_sent(tmp_path):
    path = tmp_path / "texts.tsv"
    path.write_text("".join(f"短{number}\tshort\n" for number in range(70)) + "长" * 50 + "\tlong\n", encoding="utf-8")
    assert len(short_texts(path)) == 70
    path.write_text("短\n", encoding="utf-8")
    with pytest.raises(ValueError, match="64 texts of 16 characters or fewer are needed, not 1"):
        short_texts(path)
