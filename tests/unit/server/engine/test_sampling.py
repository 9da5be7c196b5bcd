from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LogitsProcessor, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from translane_server.engine.sampling import sample_all, sample_candidates

GRID = (np.arange(400) + 0.5) / 400  # as often in each part of the numbers from 0 to 1 as the part is long


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


# apart by so much that rounding decides nothing
logits = st.lists(st.integers(-400, 400).map(lambda number: number / 32), min_size=2, max_size=30, unique=True)
temperatures = st.floats(0.3, 3)
nuclei = st.one_of(st.just(1.0), st.floats(0.01, 0.999))


@pytest.mark.parametrize("draw", [draw_candidates, pytest.param(draw_all, marks=pytest.mark.slow)])
@given(values=logits, temperature=temperatures, top_k=st.integers(1, 30), top_p=nuclei)
@settings(max_examples=200, deadline=None)
def test_tokens_are_drawn_from_what_hugging_face_keeps(draw, values, temperature, top_k, top_p):
    scores = np.array(values, np.float32)
    top_k = min(top_k, len(values)) if draw is draw_candidates else None
    expected = kept_by_hugging_face(scores, temperature, top_k, top_p)
    drawn = Counter(draw(scores, GRID, temperature, top_k, top_p).tolist())
    assert drawn.keys() <= expected.keys(), "drawn, and not kept"
    for token, probability in expected.items():  # each has a part of the numbers from 0 to 1 that is as long
        assert abs(drawn[token] - probability * len(GRID)) < 1.001


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
@pytest.mark.parametrize(
    ("scores", "how", "expected"),
    [
        ([0.0] * 10, {"top_p": 0.25}, {0, 1, 2}),
        ([1.0, 3.0, 2.9], {"top_p": 0.0}, {1}),
        ([1.0, 3.0, 2.9, -np.inf], {"temperature": 1e-3}, {1}),
    ],
    ids=["of equal tokens, no more than it takes", "a nucleus of nothing is the best", "a small temperature"],
)
def test_the_nucleus_at_its_ends(draw, scores, how, expected):
    assert set(draw(np.array(scores, np.float32), GRID, **how).tolist()) == expected
