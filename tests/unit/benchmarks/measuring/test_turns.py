"""How an engine's setting is chosen, what counts of its rounds, and how the soak tells growth."""

import itertools

import pytest

from benchmarks.engines.decoder_process import Decoded
from benchmarks.measuring.turns import outcome, turns
from benchmarks.runs.soak import Sample, ends


def decoded(seconds, tokens=100):
    return Decoded(seconds=seconds, cpu_seconds=2 * seconds, tokens=tokens)


def test_turns_change_who_is_first():
    order = turns(["a", "b", "c"], 4)
    assert [list(of_round) for of_round in order] == [list("abc"), list("cba")] * 2


def test_the_best_median_counts_and_all_rounds_are_kept():
    steady, lucky = [decoded(2.0)] * 3, [decoded(1.0), decoded(4.0), decoded(5.0)]
    for runs in itertools.permutations({"steady": steady, "lucky": lucky}.items()):
        found = outcome(dict(runs), {"steady": 1.0}, 7)
        assert (found.setting, found.rate, found.cpu_rate) == ("steady", 50.0, 25.0)
        assert (found.tokens, found.sentences, found.trials) == (100, 7, {"steady": 1.0})
        assert [run["seconds"] for run in found.rounds["lucky"]] == [1.0, 4.0, 5.0]


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
