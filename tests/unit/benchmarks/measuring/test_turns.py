"""What counts of an engine's rounds, which take turns."""

import itertools

from benchmarks.engines.decoder_process import Decoded
from benchmarks.measuring.turns import outcome, turns


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
