"""Texts with marks: tags of markup, and what is kept between them.

A mark is a pair of tags around a part of a text, or a single thing at one place: a placeholder, a URL, an image. The
model gets the text without marks. `text.tag_projection` puts them into the translation.

All tags and all single things of a block are in one order, in which tags nest. Each of them belongs to one sentence or
to one gap between sentences, in this order. So everything is written once, and tags nest, wherever sentences end. A
sentence has a tag whose other tag is elsewhere as a mark without an opening or without a closing tag.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import accumulate, pairwise
from typing import NamedTuple

from translane_server.text.placeholders import Kept, Kind, Span


@dataclass(frozen=True, slots=True)
class Mark:
    """What was taken out of a text.

    A pair of tags that goes on before or after the text, as one around two sentences does, has no `opening` or no
    `closing` there, and starts or ends with the text.
    """

    start: int  # where the part that the mark encloses starts, in the text without marks [characters]
    end: int  # where the part ends; `start` for a single thing
    opening: str  # what is written before the part; all of a single thing
    closing: str = ""  # what is written after the part; "" for a single thing
    parent: int = -1  # the number of the mark that encloses this one; -1 for none. A parent comes before its children
    is_single: bool = True  # whether the mark is a single thing, which encloses nothing
    space_before: bool = False  # whether white space was between the text before a single thing and the thing
    space_after: bool = False  # whether white space was between a single thing and the text after the thing


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A text without its marks, and the marks, in the order in which they start."""

    text: str
    marks: Sequence[Mark] = ()  # n marks. Of marks that start at the same place, the outer one comes first


_CLOSING_SIGNS = frozenset(",.;:!?…%)]}”’»，。；：！？、）】》」』")
_OPENING_SIGNS = frozenset("([{“‘«„（【《「『")


def removed(text: str, start: int, end: int, kept: Sequence[Kept]) -> list[Span]:
    """Return the spans of `text[start:end]` that are taken out: kept parts, and white space that they leave double."""
    found: list[Span] = []
    number = 0
    while number < len(kept):
        one, other, kind = kept[number]
        number += 1
        if kind in (Kind.OPENING_TAG, Kind.CLOSING_TAG):
            found.append((one, other))
            continue
        while number < len(kept) and kept[number].kind not in (Kind.OPENING_TAG, Kind.CLOSING_TAG):
            between = text[other : kept[number].start]
            if between and not between.isspace():
                break
            other = kept[number].end
            number += 1
        floor = found[-1][1] if found else start
        before = one - len(text[floor:one]) + len(text[floor:one].rstrip())
        ceiling = kept[number].start if number < len(kept) else end
        after = other + len(text[other:ceiling]) - len(text[other:ceiling].lstrip())
        sign_after, sign_before = text[after : min(after + 1, end)], text[max(before - 1, start) : before]
        if other < after and (before < one or before == start or sign_before in _OPENING_SIGNS):
            other = after
        if before < one and (after == end or sign_after in _CLOSING_SIGNS):
            one = before
            other = after
        found.append((one, other))
    return found


_TAG_NAME = re.compile(r"</?([\w:.-]+)")


class Role(Enum):
    """What a tag does."""

    OPENS = auto()
    CLOSES = auto()
    SINGLE = auto()


class Tag(NamedTuple):
    """A tag or a single thing at a place of the block's text."""

    place: int  # [characters]
    role: Role
    number: int  # the same for both tags of a pair
    text: str  # as it is written
    spaces: tuple[bool, bool] = (False, False)  # whether white space is before and after a single thing


class TaggedText(NamedTuple):
    """A block of text without its tags and single things; and these, in order. Each pair of tags encloses text."""

    text: str
    tags: Sequence[Tag] = ()


def merged(tags: Sequence[Tag], text: str, kept: Sequence[Kept]) -> list[Tag]:
    """Return the tags of markup and the kept parts, as single things, in order."""
    found: list[Tag] = []
    waiting = list(reversed(tags))
    for number, part in enumerate(kept):
        while waiting and waiting[-1].place <= part.start:
            found.append(waiting.pop())
        if part.kind is not Kind.LEFT_OUT:
            found.append(_single(text, part, ~number))
    return found + waiting[::-1]


def paired(text: str, kept: Sequence[Kept]) -> Iterator[Tag]:
    """Yield the kept parts as single things, and tags of the same name as pairs."""
    partners: dict[int, int] = {}  # the number of each tag of a pair, to that of the other
    opened: dict[str, list[int]] = {}
    stack: list[int] = []
    for number, part in enumerate(kept):
        if part.kind is Kind.OPENING_TAG:
            opened.setdefault(_tag_name(text, part), []).append(number)
            stack.append(number)
        elif part.kind is Kind.CLOSING_TAG and (same := opened.get(_tag_name(text, part))):
            partner = same[-1]
            while (top := stack.pop()) != partner:  # a tag that is never closed within the pair is a single thing
                opened[_tag_name(text, kept[top])].pop()
            same.pop()
            partners[partner], partners[number] = number, partner
    for number, part in enumerate(kept):
        partner = partners.get(number, -1)
        if part.kind is Kind.LEFT_OUT:
            continue
        if partner < 0:
            yield _single(text, part, number)
        else:
            role = Role.OPENS if partner > number else Role.CLOSES
            yield Tag(part.start, role, min(number, partner), text[part.start : part.end])


def _tag_name(text: str, part: Kept) -> str:
    name = _TAG_NAME.match(text, part.start)
    assert name, "a tag has a name"
    return name[1].lower()


def _single(text: str, part: Kept, number: int) -> Tag:
    before, after = text[max(0, part.start - 1) : part.start], text[part.end : part.end + 1]
    spaces = (before.isspace(), after.isspace())
    return Tag(part.start, Role.SINGLE, number, text[part.start : part.end], spaces=spaces)


def marks_of(tags: Sequence[Tag], in_sentence: Callable[[int], int], length: int) -> tuple[Mark, ...]:
    """Return the tags of a sentence, which are in order, as marks.

    `in_sentence` turns a place of the block into a place of the sentence, whose length is in characters.
    """
    closing = {tag.number: tag for tag in tags if tag.role is Role.CLOSES}
    marks: list[Mark] = []
    open_marks: list[int] = []  # the numbers of marks
    opened_here = {tag.number for tag in tags if tag.role is Role.OPENS}
    for number in reversed([number for number in closing if number not in opened_here]):  # the outer one closes last
        tag = closing[number]
        marks.append(Mark(0, in_sentence(tag.place), "", tag.text, len(marks) - 1, is_single=False))
        open_marks.append(len(marks) - 1)
    for tag in tags:
        parent = open_marks[-1] if open_marks else -1
        place = in_sentence(tag.place)
        if tag.role is Role.CLOSES:
            open_marks.pop()
        elif tag.role is Role.SINGLE:
            marks.append(Mark(place, place, tag.text, "", parent, True, *tag.spaces))
        else:
            end = closing.get(tag.number)
            reach = in_sentence(end.place) if end else length
            marks.append(Mark(place, reach, tag.text, end.text if end else "", parent, is_single=False))
            open_marks.append(len(marks) - 1)
    return tuple(marks)


class TakenOut(NamedTuple):
    """A sentence without what is kept."""

    marked: MarkedText  # the text that is translated, and its marks
    lengths: Sequence[int]  # the length of the text up to the end of each part that is left [characters]
    starts: Sequence[int]  # where each part that is left starts in the block

    def in_block(self, place: int) -> int:
        """Return where the character at `place` of the text is in the block."""
        part = bisect_right(self.lengths, place)
        return self.starts[part] + place - (self.lengths[part - 1] if part else 0)


class MarkedBlock:
    """A block of text, its tags, and its parts that are kept, in order.

    No part overlaps another or has a tag within it.
    """

    def __init__(self, block: TaggedText, kept: Sequence[Kept] = ()) -> None:
        self.text = block.text
        self.kept = kept
        self._kept_starts = [part.start for part in kept]
        self._tags = block.tags
        self._places = [tag.place for tag in self._tags]

    def kept_in(self, start: int, end: int) -> Sequence[Kept]:
        """Return the kept parts of `text[start:end]`."""
        return self.kept[bisect_left(self._kept_starts, start) : bisect_left(self._kept_starts, end)]

    def sentence(self, start: int, end: int, last: int = -1) -> TakenOut:
        """Return the sentence `text[start:end]` without what is kept. No kept part lies across its ends.

        The sentence before it ends at `last`, which is -1 for the first sentence.
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

    def gaps(self, sentences: Sequence[Span]) -> list[str]:
        """Return the n + 1 texts before, between and after n sentences, with their tags."""
        found = []
        for number in range(len(sentences) + 1):
            start = sentences[number - 1][1] if number else 0
            end = sentences[number][0] if number < len(sentences) else len(self.text)
            if not self._tags:
                found.append(self.text[start:end])
                continue
            first = self._opening_at(start) if number else 0
            stop = self._zone(end, end, start if number else -1)[0] if number < len(sentences) else len(self._tags)
            parts, done, spaced = [""], start, False
            for tag in self._tags[first:stop]:
                parts.append(_apart(self.text[done : tag.place], spaced))
                spaced = spaced and not parts[-1]
                if tag.role is Role.SINGLE and (spaced or tag.spaces[0]):
                    before = next((part[-1] for part in reversed(parts) if part), " ")
                    parts.append("" if before.isspace() else " ")
                parts.append(tag.text)
                spaced = tag.spaces[1]
                done = tag.place
            parts.append(_apart(self.text[done:end], spaced))
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
        low, high = self._tags_at(place)
        return next((n + 1 for n in reversed(range(low, high)) if self._tags[n].role is Role.CLOSES), low)

    def _opening_at(self, place: int) -> int:
        """Return the number of the first tag at `place` that opens something after it, or of the first tag behind."""
        low, high = self._tags_at(place)
        return next((n for n in range(low, high) if self._tags[n].role is Role.OPENS), high)

    def _tags_at(self, place: int) -> Span:
        """Return the numbers of the first tag at `place`, and of the first one behind."""
        return bisect_left(self._places, place), bisect_right(self._places, place)


def _apart(text: str, spaced: bool) -> str:
    """Return `text` with the space that was before it, which a single thing has taken along."""
    return f" {text}" if spaced and text and not text[0].isspace() else text
