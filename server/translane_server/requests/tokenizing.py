"""Tokenizes texts in parts, so that the work can end between two parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from translane_server.budget import Budget

# Texts that are tokenized at once, unless a single text is longer [characters]. They take some tenths of a second.
_PART = 65536

Encode = Callable[[Sequence[str]], list[list[int]]]


def tokenize(encode: Encode, texts: Sequence[str], budget: Budget) -> list[list[int]]:
    """Return the tokens of each text.

    Args:
        encode: returns the tokens of texts.
        texts: the texts.
        budget: is checked before each part.
    """
    if not texts:
        return []
    if sum(map(len, texts)) <= _PART:
        budget.check()
        return encode(texts)
    encoded = []
    for part in _parts(texts):
        budget.check()
        encoded += encode(part)
    return encoded


def _parts(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts, in order, in lists that are as long as may be."""
    part: list[str] = []
    characters = 0
    for text in texts:
        if part and characters + len(text) > _PART:
            yield part
            part, characters = [], 0
        part.append(text)
        characters += len(text)
    if part:
        yield part
