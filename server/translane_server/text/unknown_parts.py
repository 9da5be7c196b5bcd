"""Finds the parts of a text that a vocabulary cannot spell, and which of them a translation copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import regex

from translane_server.text.characters import UNSPACED_LETTER
from translane_server.text.placeholders import Kept, Kind, Span

# What a part may be extended to: a word of a script that writes spaces between words.
_WORD = regex.compile(r"[\p{L}\p{N}\p{M}_]+(?:['’][\p{L}\p{M}]+)*")

# Signs that say how a sentence is built. Others mean something by themselves: "50 %", "€", "#".
_PUNCTUATION = regex.compile(r"[\p{Pd}\p{Ps}\p{Pe}\p{Pi}\p{Pf}.,:;!?…·\"'、。，：；！？．\s]+")


def unknown_parts(
    text: str, ids: Sequence[int], spans: Sequence[Span | None], unknown: int, of_terms: Sequence[int] = ()
) -> list[Span]:
    """Return the parts of `text` that are unknown, from left to right; none that has characters `of_terms`.

    A part with letters of a script that writes spaces is extended to whole words. Parts with only white space between
    them are one. `ids` and `spans` are those of its tokens.
    """
    parts: list[Span] = []
    for id_, span in zip(ids, spans, strict=False):
        if id_ != unknown or span is None or (parts and span[1] <= parts[-1][1]):
            continue
        surface = text[span[0] : span[1]]
        start = span[0] + len(surface) - len(surface.lstrip())
        end = start + len(surface.strip())
        if start >= end:
            continue
        if _WORD.search(surface) and not UNSPACED_LETTER.search(surface):
            start, end = _extended(text, start, end)
        if any(of_terms[start:end]):
            continue
        if parts and (start <= parts[-1][1] or text[parts[-1][1] : start].isspace()):
            parts[-1] = (parts[-1][0], max(end, parts[-1][1]))
        else:
            parts.append((start, end))
    return parts


def with_left_out(text: str, sentence: Span, unknown: Sequence[Kept], kept: Sequence[Kept], untold: Any) -> list[Kept]:
    """Return the unknown parts of a sentence, those that its translation should not copy as `Kind.LEFT_OUT`.

    The place of a copied part is a guess. Letters that the reader cannot read are not worth it. Nor is punctuation
    within a sentence, unless it touches something that is copied, and comes along with it.

    The `unknown` parts are in order. What else of the sentence is kept is `kept`. For `untold` see `untold_letters`.
    """

    def is_read(part: Kept) -> bool:
        signs = [sign for sign in text[part.start : part.end] if sign.isalnum()]
        return not (signs and untold and all(untold.match(sign) for sign in signs))

    start, end = sentence
    is_punctuation = [_PUNCTUATION.fullmatch(text, part.start, part.end) is not None for part in unknown]
    copied = [part for part, is_sign in zip(unknown, is_punctuation, strict=True) if not is_sign and is_read(part)]
    edges = {place for part in (*copied, *kept) for place in (part.start, part.end)}
    found = []
    for part, is_sign in zip(unknown, is_punctuation, strict=True):
        if is_sign:
            at_end = not text[start : part.start].strip() or not text[part.end : end].strip()
            is_copied = at_end or bool({part.start, part.end} & edges)
        else:
            is_copied = is_read(part)
        found.append(part if is_copied else part._replace(kind=Kind.LEFT_OUT))
    return found


def _extended(text: str, start: int, end: int) -> Span:
    """Return the span of the words that `text[start:end]` is of."""
    while start and _is_of_word(text[start - 1]):
        start -= 1
    while end < len(text) and _is_of_word(text[end]):
        end += 1
    return start, end


def _is_of_word(character: str) -> bool:
    return _WORD.match(character) is not None and UNSPACED_LETTER.match(character) is None
