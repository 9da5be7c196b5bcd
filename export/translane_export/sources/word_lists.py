"""Vocabularies that are lists of words, as notebooks keep them: a tokenizer.json for a list, and the order of its ids.

https://huggingface.co/docs/tokenizers/api/models#tokenizers.models.WordLevel
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

import tokenizers
import torch
from torch import Tensor

from translane_export.errors import ExportError
from translane_server.bundle.manifest import MOST_PIECES
from translane_server.core.terminal import printable, shown
from translane_server.text.json_tokenizer import is_of_tokenizers

WORDS = r"[^\s\x1c-\x1f]+"
"""Finds the words that Python's `str.split` finds."""
PAD, UNK, START, END = range(4)
"""The ids of the special words in a checkpoint."""

_MOST_CHARACTERS = 1_000  # of the pattern


@dataclass(frozen=True, kw_only=True)
class SpecialWords:
    """How the lists spell the words for padding, for unknown words, and for the start and end of a sentence."""

    pad: str = "<pad>"
    unk: str = "<unk>"
    start: str = "<s>"
    end: str = "</s>"


class NumberedWords(NamedTuple):
    """The words of one side in the order of a checkpoint's ids: padding, unknown, start, end, and all the others.

    Attributes:
        words: V words.
        places: where each word stands in the list that was given [V], int64; -1 for a special word that is not there.
    """

    words: tuple[str, ...]
    places: Tensor

    def reorder(self, rows: Tensor, missing: float = 0.0) -> Tensor:
        """Return the list's ``rows`` [words of the list, ...] by id [V, ...]; those of absent words are ``missing``."""
        ordered = rows[self.places.clamp(min=0)]
        ordered[self.places < 0] = missing
        return ordered


def number_words(
    words: Sequence[str], special: SpecialWords, *, side: str, optional: Sequence[str] = ()
) -> NumberedWords:
    """Number a list of words so that the special words have the same ids on both sides.

    Args:
        words: the list; a word's place in it is its row in the model's tables.
        special: the special words.
        side: "source" or "target", for errors.
        optional: the special words that need not be in the list.

    Raises:
        ExportError: the list has a word twice, lacks a special word, or is too long.
    """
    if len(words) > MOST_PIECES:
        raise ExportError(f"{side}_words has {len(words):,} words, and at most {MOST_PIECES:,} are supported")
    places: dict[str, int] = {}
    for place, word in enumerate(words):
        if not isinstance(word, str):
            raise ExportError(f"{side}_words: word {place} is {shown(word)}, and words are strings")
        if place != places.setdefault(word, place):
            raise ExportError(f"{side}_words: {shown(word)} is there twice, as words {places[word]} and {place}")
    first: tuple[str, ...] = astuple(special)
    if len(set(first)) < len(first):
        raise ExportError(f"special_words: {printable(', '.join(first), 200)} are not four different words")
    if missing := [word for word in first if word not in places and word not in optional]:
        raise ExportError(f"{side}_words: the special word {shown(missing[0])} is not there")
    ordered = (*first, *(word for word in words if word not in first))
    return NumberedWords(ordered, torch.tensor([places.get(word, -1) for word in ordered]))


def word_tokenizer(words: Sequence[str], *, lowercase: bool, pattern: str = WORDS) -> bytes:
    """Return the content of a tokenizer.json for words whose ids are their places.

    Texts are made lower-case, if they are to be; then every match of ``pattern`` is a word, and what lies between the
    matches is dropped. A word that is not in the list is unknown. The words of a translation are joined by spaces.

    Args:
        words: the words in the order of their ids; the one at `UNK` stands for unknown words.
        lowercase: whether texts are made lower-case.
        pattern: a regular expression of Oniguruma, https://github.com/kkos/oniguruma/blob/master/doc/RE.

    Raises:
        ExportError: the pattern is no regular expression.
    """
    if len(pattern) > _MOST_CHARACTERS:
        raise ExportError(f"pattern: it has {len(pattern):,} characters, and at most {_MOST_CHARACTERS:,} are allowed")
    try:
        found = tokenizers.Regex(pattern)
    except BaseException as error:
        if not is_of_tokenizers(error):
            raise
        raise ExportError(f"pattern: {shown(pattern)} is no regular expression: {printable(str(error), 200)}") from None
    ids = {word: number for number, word in enumerate(words)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, unk_token=words[UNK]))
    if lowercase:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Split(found, "removed", invert=True)
    return tokenizer.to_str().encode()
