"""Spells phrases with the pieces of a model's vocabulary."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from translane_server.options import RequiredPhrase
from translane_server.text.tokenizer import Tokenizer

_REMEMBERED = 8192  # phrases, of some 500 bytes each


class Spelling:
    """Spells phrases for a model. What was spelled is remembered.

    Args:
        tokenizer: the model's tokenizer.
        unknown: the target id of the unknown token.
    """

    def __init__(self, tokenizer: Tokenizer, unknown: int) -> None:
        self._tokenizer = tokenizer
        self._unknown = unknown
        self.phrase = lru_cache(_REMEMBERED)(self._phrase)

    def ids(self, text: str) -> tuple[tuple[int, ...], bool]:
        """Return the tokens of a text, and whether the vocabulary can spell the text."""
        if not text:
            return (), True
        (ids,) = self._tokenizer.encode_target([text])
        return tuple(ids), self._unknown not in ids

    def _phrase(self, text: str) -> RequiredPhrase | None:
        """Return `text` as the model writes it, for a translation that must have it.

        Returns:
            The phrase. It differs from `text` by white space, case and compatibility characters at most, where the
            vocabulary has no others. None if the vocabulary cannot spell the text.
        """
        ids, can_spell = self.ids(text)
        if not can_spell:
            return None
        (spelled,) = self._tokenizer.decode([ids])
        spelled = spelled.strip()
        if not spelled or _rough(spelled) != _rough(text):
            return None
        return RequiredPhrase(spelled.encode(), ids)


def _rough(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())
