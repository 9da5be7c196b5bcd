import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from translane_server.engine.beam_step import best_continuations

EOS = 3


def by_definition(rows, totals, token_ids, scores, log_probs, beam_size, all_end):
    """All candidates sorted: of the 2 * beam_size best, who ends among the first beam_size, and who goes on."""
    candidates = [
        (beam, int(token_ids[row, column]), totals[beam] + float(scores[row, column]), float(log_probs[row, column]))
        for beam, row in enumerate(rows)
        for column in range(token_ids.shape[1])
    ]
    best = sorted(candidates, key=lambda candidate: -candidate[2])[: 2 * beam_size]
    best = [candidate for candidate in best if candidate[2] > -np.inf]
    ends = [candidate[1] == EOS or all_end for candidate in best]
    going = [candidate for candidate, end in zip(best, ends, strict=True) if not end][:beam_size]
    ending = [candidate for candidate, end in list(zip(best, ends, strict=True))[:beam_size] if end]
    return going, ending


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 8), st.booleans())
@settings(max_examples=500)
def test_the_best_continuations_are_those_of_all_candidates_sorted(seed, beam_size, width, all_end):
    generator = np.random.default_rng(seed)
    beams = int(generator.integers(1, beam_size + 1))
    rows = generator.permutation(8)[:beams].tolist()
    totals = sorted((-generator.integers(0, 8, beams) / 2).tolist(), reverse=True)  # halves: many are equal
    token_ids = np.stack([generator.permutation(10)[:width] for _ in range(8)])
    scores = -np.sort(generator.integers(0, 8, (8, width)).astype(np.float32) / np.float32(2), axis=1)
    scores[generator.random((8, width)).cumsum(axis=1) > generator.uniform(0, width)] = -np.inf
    log_probs = -generator.random((8, width), np.float32)
    expected = by_definition(rows, totals, token_ids, scores, log_probs, beam_size, all_end)
    found = best_continuations(
        rows, totals, token_ids, scores, log_probs, beam_size=beam_size, eos=EOS, all_end=all_end
    )
    assert found == expected
