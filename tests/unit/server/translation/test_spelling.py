"""Phrases as a model's vocabulary spells them."""

from typing import Any

import pytest

from translane_server.engine.options import RequiredPhrase
from translane_server.translation.terms import Spelling

UNKNOWN = 0
PIECES = ("?", "a", "b", "c", " ")


class Letters:
    """A tokenizer of letters, which writes capitals small, as vocabularies without capitals do."""

    def __init__(self, dropped=""):
        self.calls = []
        self._dropped = dropped

    def encode_target(self, texts):
        self.calls += texts
        return [[PIECES.index(letter) if letter in PIECES else UNKNOWN for letter in text.lower()] for text in texts]

    def decode(self, ids):
        return ["".join(PIECES[id_] for id_ in each if PIECES[id_] not in self._dropped) for each in ids]


def spelling_of(tokenizer: Any) -> Spelling:
    return Spelling(tokenizer, UNKNOWN)


@pytest.mark.parametrize(
    ("text", "ids", "can_spell"), [("", (), True), ("ab", (1, 2), True), ("ax", (1, UNKNOWN), False)]
)
def test_a_text_has_tokens_and_can_be_spelled_or_not(text, ids, can_spell):
    assert spelling_of(Letters()).ids(text) == (ids, can_spell)


def test_a_phrase_is_what_the_model_writes():
    spelling = spelling_of(Letters())
    assert spelling.phrase("ab") == RequiredPhrase(b"ab", (1, 2))
    assert spelling.phrase("A B") == RequiredPhrase(b"a b", (1, 4, 2))


@pytest.mark.parametrize("text", ["x", "ax", " "])
def test_a_phrase_that_cannot_be_spelled_is_none(text):
    assert spelling_of(Letters()).phrase(text) is None


def test_a_phrase_that_comes_back_as_another_is_none():
    assert spelling_of(Letters(dropped="b")).phrase("abc") is None


def test_a_phrase_is_spelled_once():
    tokenizer = Letters()
    spelling = spelling_of(tokenizer)
    for _ in range(3):
        spelling.phrase("ab")
    assert tokenizer.calls == ["ab"]
