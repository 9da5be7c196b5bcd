import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from translane_server.engine.sampling import sample_all, sample_candidates, uniforms

DRAWS = 20_000
GRID = (np.arange(400) + 0.5) / 400  # uniform numbers that find whatever has a probability above 1/400


def softmax(scores):
    weights = np.exp(scores.astype(np.float64) - scores.max())
    return weights / weights.sum()


def kept_by_hugging_face(scores, temperature, top_k, top_p):
    """The tokens that the logits warpers of generate leave, and their probabilities: {token: probability}."""
    left = torch.from_numpy(scores.astype(np.float64))[None]
    warpers: list[LogitsProcessor] = [TemperatureLogitsWarper(float(temperature))]
    warpers += [TopKLogitsWarper(int(top_k))] if top_k else []
    warpers += [TopPLogitsWarper(float(top_p))] if top_p < 1 else []
    for warper in warpers:
        left = warper(None, left)
    probabilities = left.softmax(-1)[0]
    return {token: probabilities[token].item() for token in probabilities.nonzero()[:, 0].tolist()}


def rows(scores, count):
    return np.repeat(scores[None], count, axis=0).astype(np.float32)


def draw_candidates(scores, numbers, temperature=1.0, top_k=None, top_p=1.0):
    """Draw from the best candidates of `scores` [V], and return tokens."""
    n = len(numbers)
    ids = np.argsort(-scores, kind="stable")[: (top_k or len(scores)) + 2]
    columns = sample_candidates(
        rows(ids, n).astype(np.int64),
        rows(scores[ids], n),
        np.full(n, temperature),
        np.full(n, top_k or len(ids), np.int32),
        np.full(n, top_p),
        numbers,
    )
    return ids[columns]


def draw_all(scores, numbers, temperature=1.0, top_k=None, top_p=1.0):
    assert not top_k
    n = len(numbers)
    return sample_all(rows(scores, n), np.full(n, temperature), np.full(n, top_p), numbers)


def check_set(draw, scores, temperature, top_k, top_p):
    expected = kept_by_hugging_face(scores, temperature, top_k, top_p)
    drawn = set(draw(scores, GRID, temperature, top_k, top_p).tolist())
    assert drawn <= expected.keys(), "drawn, and not kept"
    assert {token for token, probability in expected.items() if probability > 1 / len(GRID)} <= drawn


# apart by so much that rounding decides nothing
logits = st.lists(st.integers(-400, 400).map(lambda number: number / 32), min_size=2, max_size=30, unique=True)
temperatures = st.floats(0.3, 3)
nuclei = st.one_of(st.just(1.0), st.floats(0.01, 0.999))


@given(logits, temperatures, st.integers(1, 30), nuclei)
@settings(max_examples=200, deadline=None)
def test_candidates_are_drawn_from_what_hugging_face_keeps(values, temperature, top_k, top_p):
    scores = np.array(values, np.float32)
    check_set(draw_candidates, scores, temperature, min(top_k, len(values)), top_p)


@pytest.mark.slow
@given(logits, temperatures, nuclei)
@settings(max_examples=200, deadline=None)
def test_tokens_are_drawn_from_what_hugging_face_keeps(values, temperature, top_p):
    check_set(draw_all, np.array(values, np.float32), temperature, None, top_p)


@pytest.mark.parametrize("scale", [0.0001, 1.0, 4.0])
@pytest.mark.parametrize("top_p", [0.1, 0.5, 0.9, 0.999])
def test_the_nucleus_of_a_large_vocabulary_is_hugging_faces(scale, top_p):
    scores = (np.random.default_rng(1).normal(size=8000) * scale).astype(np.float32)
    expected = kept_by_hugging_face(scores, 1.0, 0, top_p)
    least = min(expected, key=expected.get)
    drawn = draw_all(scores, np.linspace(0, 1, 500, endpoint=False), top_p=top_p)
    assert set(drawn.tolist()) <= expected.keys()
    kept = np.array(sorted(expected))
    cumulative = np.array([expected[token] for token in kept]).cumsum()
    place = int(np.searchsorted(kept, least))
    middle = cumulative[place] - expected[least] / 2
    assert draw_all(scores, np.array([middle]), top_p=top_p).tolist() == [least]


def chi_square(drawn, probabilities):
    """Standard deviations by which the statistic exceeds its expectation; tokens that are rare are taken together."""
    counts = np.bincount(drawn, minlength=len(probabilities)).astype(float)
    expected = probabilities * len(drawn)
    assert not counts[expected == 0].any()
    common = expected >= 10
    counts = np.append(counts[common], counts[~common].sum())
    expected = np.append(expected[common], expected[~common].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    degrees = len(counts) - 1
    return (((counts - expected) ** 2 / expected).sum() - degrees) / (2 * degrees) ** 0.5


def mixed(bits):
    """SplitMix64's next number, in whole numbers without a limit."""
    bits = (bits + 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    return bits ^ bits >> 31


def test_the_hash_is_that_of_splitmix64():
    assert mixed(1234567) == 6457827717110365317, "the first number that its reference draws from this seed"


COORDINATES = st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1))


@given(st.lists(COORDINATES, min_size=1, max_size=8))
def test_a_number_is_a_hash_of_its_coordinates(coordinates):
    seeds, streams, positions = zip(*coordinates, strict=True)
    found = uniforms(np.array(seeds, np.uint64), np.array(streams, np.int64), np.array(positions, np.int32))
    assert found.tolist() == [
        (mixed(mixed(mixed(seed) ^ stream) ^ position) >> 11) / 2**53 for seed, stream, position in coordinates
    ]


def numbers(seed):
    return uniforms(np.full(DRAWS, seed, np.uint64), np.arange(DRAWS), np.zeros(DRAWS, np.int32))


SOFTMAXES = [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.7, 0, 1.0), (1.0, 0, 0.8), (1.3, 0, 0.95)]


@pytest.mark.parametrize(
    ("draw", "temperature", "top_k", "top_p"),
    [(draw, *how) for draw in (draw_candidates, draw_all) for how in SOFTMAXES] + [(draw_candidates, 0.9, 10, 1.0)],
)
def test_draws_follow_the_softmax(draw, temperature, top_k, top_p):
    scores = np.random.default_rng(2).normal(scale=1.5, size=60).astype(np.float32)
    drawn = draw(scores, numbers(11), temperature, top_k, top_p)
    kept = kept_by_hugging_face(scores, temperature, top_k, top_p)
    probabilities = np.array([kept.get(token, 0.0) for token in range(len(scores))])
    assert abs(chi_square(drawn, probabilities)) < 4
    wrong = probabilities**1.1 / (probabilities**1.1).sum()
    assert chi_square(drawn, wrong) > 4, "a distribution slightly too sharp is told apart"


def test_a_large_vocabulary_is_drawn_from_by_its_softmax():
    scores = np.random.default_rng(4).normal(scale=2, size=3001).astype(np.float32)
    scores[[0, 17, 3000]] = -np.inf
    drawn = np.concatenate([draw_all(scores, part) for part in np.split(numbers(13), 20)])
    assert abs(chi_square(drawn, softmax(scores))) < 4


@given(logits, st.integers(1, 10), nuclei, st.floats(0, 1, exclude_max=True), st.integers(0, 20))
def test_what_is_drawn_depends_on_the_k_best_alone(values, top_k, top_p, number, more):
    scores = -np.sort(-np.array(values, np.float32))[:top_k]
    wide = np.concatenate([scores, np.linspace(scores[-1], -50, more, dtype=np.float32)])
    drawn = [
        sample_candidates(
            np.zeros((1, len(row)), np.int64),
            row[None],
            np.array([0.7]),
            np.array([len(scores)]),
            np.array([top_p]),
            np.array([number]),
        ).tolist()
        for row in (scores, wide)
    ]
    assert drawn[0] == drawn[1]


@given(st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_a_row_draws_the_same_alone_and_in_company(seed):
    generator = np.random.default_rng(seed)
    n, size = 7, int(generator.integers(2, 700))
    scores = generator.normal(scale=2, size=(n, size)).astype(np.float32)
    temperature, top_p = generator.uniform(0.5, 2, n), generator.choice([1.0, 0.9, 0.3], n)
    number = generator.random(n)
    top_k = generator.integers(1, size, n, endpoint=True)
    best = -np.sort(-scores, axis=1)
    ids = np.zeros(scores.shape, np.int64)
    together = sample_all(scores, temperature, top_p, number)
    columns = sample_candidates(ids, best, temperature, top_k, top_p, number)
    for row in range(n):
        one = slice(row, row + 1)
        assert sample_all(scores[one], temperature[one], top_p[one], number[one]) == together[row]
        alone = sample_candidates(ids[one], best[one], temperature[one], top_k[one], top_p[one], number[one])
        assert alone == columns[row]


@pytest.mark.parametrize("number", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("top_p", [1.0, 0.999999, 0.5, 0.0])
def test_banned_tokens_are_never_drawn(number, top_p):
    for size in (3, 300, 1000):
        scores = np.full((1, size), -np.inf, np.float32)
        scores[0, size // 2] = 3.0
        drawn = sample_all(scores, np.ones(1), np.array([top_p]), np.array([number]))
        assert drawn.tolist() == [size // 2]
    best = np.array([[1.0, -np.inf, -np.inf]], np.float32)
    ids = np.zeros((1, 3), np.int64)
    column = sample_candidates(ids, best, np.ones(1), np.array([3]), np.array([top_p]), np.array([number]))
    assert column.tolist() == [0]


@pytest.mark.parametrize("draw", [draw_candidates, draw_all])
def test_of_equal_tokens_the_nucleus_keeps_no_more_than_it_takes(draw):
    scores = np.zeros(10, np.float32)
    assert sorted(set(draw(scores, GRID, top_p=0.25).tolist())) == [0, 1, 2]


@pytest.mark.parametrize("draw", [draw_candidates, draw_all])
def test_a_small_temperature_takes_the_best(draw):
    scores = np.array([1.0, 3.0, 2.9, -np.inf], np.float32)
    assert set(draw(scores, GRID, temperature=1e-3).tolist()) == {1}


@pytest.mark.parametrize("draw", [draw_candidates, draw_all])
def test_a_nucleus_of_nothing_is_the_best_token(draw):
    scores = np.array([1.0, 3.0, 2.9], np.float32)
    assert set(draw(scores, GRID, top_p=0.0).tolist()) == {1}
