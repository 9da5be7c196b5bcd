"""The best combinations of the sentences' hypotheses, for texts of many sentences."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

# The number of a hypothesis, and the combination of hypotheses before it.
_Chain = tuple[int, "_Chain | None"]


def best_combinations(scores: Sequence[Sequence[float]], most: int) -> list[tuple[int, ...]]:
    """Return the combinations of one hypothesis of each sentence, those with the highest sum of scores first.

    The time grows with the number of sentences times `most`.

    Args:
        scores: the scores of each sentence's hypotheses, highest first; n lists.
        most: how many combinations are returned, if there are as many.

    Returns:
        Combinations of n numbers of hypotheses.
    """
    best: list[tuple[float, _Chain | None]] = [(0.0, None)]
    for of_sentence in scores:
        # Both lists have their best first, so the best sum that is left is one of those beside the sums that are taken.
        waiting = [(-best[0][0] - of_sentence[0], 0, 0)]
        extended: list[tuple[float, _Chain | None]] = []
        while waiting and len(extended) < most:
            cost, hypothesis, before = heapq.heappop(waiting)
            extended.append((-cost, (hypothesis, best[before][1])))
            if before + 1 < len(best):
                heapq.heappush(waiting, (-best[before + 1][0] - of_sentence[hypothesis], hypothesis, before + 1))
            if before == 0 and hypothesis + 1 < len(of_sentence):
                heapq.heappush(waiting, (-best[0][0] - of_sentence[hypothesis + 1], hypothesis + 1, 0))
        best = extended
    return [_numbers(chain) for _, chain in best]


def _numbers(chain: _Chain | None) -> tuple[int, ...]:
    numbers = []
    while chain is not None:
        number, chain = chain
        numbers.append(number)
    return tuple(reversed(numbers))
