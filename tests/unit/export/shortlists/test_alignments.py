"""IBM model 1, compared with a plain implementation."""

import random
from collections import defaultdict

import pytest

from translane_export import shortlists
from translane_export.shortlists import TokenPair, align


def plain_model_1(pairs, empty, rounds):
    probability: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in pairs:
            for other in target:
                total = sum(probability[one, other] for one in (*source, empty))
                for one in (*source, empty):
                    share = probability[one, other] / total
                    counts[one, other] += share
                    totals[one] += share
        probability = defaultdict(float, {(one, other): counts[one, other] / totals[one] for one, other in counts})
    return probability


@pytest.mark.parametrize("cells", [1, 50, 1 << 22])
def test_probabilities(monkeypatch, cells):
    monkeypatch.setattr(shortlists, "_CELLS_OF_A_CHUNK", cells)
    draw = random.Random(0)
    pairs = [
        TokenPair(draw.choices(range(12), k=draw.randint(1, 8)), draw.choices(range(9), k=draw.randint(1, 8)))
        for _ in range(60)
    ]
    found = align(pairs, 12, 9, 4)
    expected = plain_model_1(pairs, 12, 4)
    assert len(found.probability) == len(expected)
    for one, other, probability in zip(found.source, found.target, found.probability, strict=True):
        assert probability == pytest.approx(expected[one, other], rel=1e-9)


def test_best_are_the_most_probable():
    found = align([TokenPair([0], [1, 1, 1, 2, 2, 3])], 2, 4, 3)
    assert found.best(2, 0.0) == {0: [1, 2]}
    assert found.best(9, 0.3) == {0: [1, 2]}
    assert found.best(9, 0.0) == {0: [1, 2, 3]}
