"""A block of text with its marks and its kept parts, as sentences to translate and the text between them.

All tags and all single things of a block are in one order, in which tags nest. Each of them belongs to one sentence or
to one gap between sentences, in this order. So everything is written once, and tags nest, wherever sentences end. A
sentence has a tag whose other tag is elsewhere as a mark without an opening or without a closing tag.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from translane_server.text.kept import Kept
from translane_server.text.marks import MarkedText
from translane_server.text.removal import Span, removed
from translane_server.text.tags import Role, marks_of, merged, paired, tags_of

Escape = Callable[[str], str]


class TakenOut(NamedTuple):
    """A sentence without what is kept.

    Attributes:
        marked: the text that is translated, and its marks.
        lengths: the length of the text up to the end of each part that is left [characters].
        starts: where each part that is left starts in the block.
    """

    marked: MarkedText
    lengths: Sequence[int]
    starts: Sequence[int]

    def in_block(self, place: int) -> int:
        """Return where the character at `place` of the text is in the block."""
        part = bisect_right(self.lengths, place)
        return self.starts[part] + place - (self.lengths[part - 1] if part else 0)


class MarkedBlock:
    """A block of text, its marks, and its parts that are kept.

    Args:
        block: the block.
        kept: the parts, in order. None overlaps another or has an end of a mark within it.
    """

    def __init__(self, block: MarkedText, kept: Sequence[Kept] = ()) -> None:
        self.text = block.text
        self.kept = kept
        self._kept_starts = [part.start for part in kept]
        self._tags = list(tags_of(block.marks))
        self._places = [tag.place for tag in self._tags]

    def kept_in(self, start: int, end: int) -> Sequence[Kept]:
        """Return the kept parts of `text[start:end]`."""
        return self.kept[bisect_left(self._kept_starts, start) : bisect_left(self._kept_starts, end)]

    def sentence(self, start: int, end: int, last: int = -1) -> TakenOut:
        """Return the sentence `text[start:end]` without what is kept. No kept part lies across its ends.

        Args:
            start: where the sentence starts.
            end: where it ends.
            last: where the sentence before it ends; -1 for the first sentence.
        """
        kept = self.kept_in(start, end)
        if not kept and not self._tags:
            return TakenOut(MarkedText(self.text[start:end]), (end - start,), (start,))
        spans = [(start, start), *removed(self.text, start, end, kept), (end, end)]
        left = [(one, other) for (_, one), (other, _) in pairwise(spans)]
        text = "".join(self.text[one:other] for one, other in left)
        lengths = list(accumulate(other - one for one, other in left))
        starts = [one for one, _ in left]

        def in_sentence(place: int) -> int:
            part = bisect_right(starts, place) - 1
            return lengths[part] - max(0, left[part][1] - place)

        if self._tags:
            first, stop = self._zone(start, end, last)
            tags = merged(self._tags[first:stop], self.text, kept)
        else:
            tags = list(paired(self.text, kept))
        return TakenOut(MarkedText(text, marks_of(tags, in_sentence, len(text))), lengths, starts)

    def gaps(self, sentences: Sequence[Span], escape: Escape = str) -> list[str]:
        """Return the n + 1 texts before, between and after n sentences, with their tags.

        Args:
            sentences: the sentences.
            escape: is applied to the text between tags.
        """
        found = []
        for number in range(len(sentences) + 1):
            start = sentences[number - 1][1] if number else 0
            end = sentences[number][0] if number < len(sentences) else len(self.text)
            if not self._tags:
                found.append(escape(self.text[start:end]))
                continue
            first = self._opening_at(start) if number else 0
            stop = self._zone(end, end, start if number else -1)[0] if number < len(sentences) else len(self._tags)
            parts, done, spaced = [""], start, False
            for tag in self._tags[first:stop]:
                parts.append(_apart(escape(self.text[done : tag.place]), spaced))
                spaced = spaced and not parts[-1]
                if tag.role is Role.SINGLE and (spaced or tag.spaces[0]):
                    before = next((part[-1] for part in reversed(parts) if part), " ")
                    parts.append("" if before.isspace() else " ")
                parts.append(tag.text)
                spaced = tag.spaces[1]
                done = tag.place
            parts.append(_apart(escape(self.text[done:end]), spaced))
            found.append("".join(parts))
        return found

    def _zone(self, start: int, end: int, last: int) -> Span:
        """Return the numbers of the first tag of a sentence, and of the first tag after it.

        Tags at the start of the sentence are its own, but for those that close what is before it. Tags at the end of
        the sentence are its own, but for those that open what is after it. Where two sentences touch, single things are
        of the first one.
        """
        first = self._opening_at(start) if last == start else self._after_closing_at(start)
        return first, max(first, self._opening_at(end))

    def _after_closing_at(self, place: int) -> int:
        """Return the number of the first tag at `place` or after it, behind those that close something before it."""
        low, high = bisect_left(self._places, place), bisect_right(self._places, place)
        closing = [
            number
            for number in range(low, high)
            if self._tags[number].role is Role.CLOSES and not self._tags[number].is_empty
        ]
        return closing[-1] + 1 if closing else low

    def _opening_at(self, place: int) -> int:
        """Return the number of the first tag at `place` that opens something after it, or of the first tag behind."""
        low, high = bisect_left(self._places, place), bisect_right(self._places, place)
        return next(
            (
                number
                for number in range(low, high)
                if self._tags[number].role is Role.OPENS and not self._tags[number].is_empty
            ),
            high,
        )


def _apart(text: str, spaced: bool) -> str:
    """Return `text` with the space that was before it, which a single thing has taken along."""
    return f" {text}" if spaced and text and not text[0].isspace() else text
