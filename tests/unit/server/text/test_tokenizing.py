"""Texts are tokenized in parts, and the work ends between two of them."""

import pytest

from translane_server.core.budget import UNLIMITED, Budget, WorkEndedError
from translane_server.text.tokenizer import tokenize


@pytest.fixture
def seen():
    return []


@pytest.fixture
def encode(seen):
    def encode(texts):
        seen.append(list(texts))
        return [[len(text)] for text in texts]

    return encode


def test_short_texts_are_tokenized_together(encode, seen):
    assert tokenize(encode, ["a", "", "bc"], UNLIMITED) == [[1], [0], [2]]
    assert seen == [["a", "", "bc"]]
    assert tokenize(encode, [], UNLIMITED) == []


def test_long_texts_are_tokenized_in_parts(encode, seen):
    texts = ["x" * length for length in (30_000, 30_000, 30_000, 100_000, 1, 2, 65_536)]
    assert tokenize(encode, texts, UNLIMITED) == [[len(text)] for text in texts]
    assert [[len(text) for text in part] for part in seen] == [[30_000] * 2, [30_000], [100_000], [1, 2], [65_536]]


def test_the_work_ends_between_two_parts(encode, seen):
    budget = Budget()

    def ending(texts):
        budget.end()
        return encode(texts)

    with pytest.raises(WorkEndedError):
        tokenize(ending, ["x" * 40_000] * 5, budget)
    assert len(seen) == 1
