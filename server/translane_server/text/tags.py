"""The tags and the single things of a block, in the order in which they are written, and the marks that they make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum, auto
from typing import NamedTuple

from translane_server.text.kept import Kept, Kind
from translane_server.text.marks import Mark

_TAG_NAME = re.compile(r"</?([\w:.-]+)")


class Role(Enum):
    """What a tag does."""

    OPENS = auto()
    CLOSES = auto()
    SINGLE = auto()


class Tag(NamedTuple):
    """A tag or a single thing at a place of the block's text.

    Attributes:
        place: where it is [characters].
        role: what it is.
        number: the same number for both tags of a pair.
        text: how it is written.
        is_empty: whether its pair encloses no text.
        spaces: whether white space is before and after a single thing.
    """

    place: int
    role: Role
    number: int
    text: str
    is_empty: bool = True
    spaces: tuple[bool, bool] = (False, False)


def tags_of(marks: Sequence[Mark]) -> Iterator[Tag]:
    """Yield the tags and the single things of all marks, in the order in which they are written."""
    opened: list[int] = []

    def closed(until: int) -> Iterator[Tag]:
        while opened and opened[-1] != until:
            number = opened.pop()
            mark = marks[number]
            yield Tag(mark.end, Role.CLOSES, number, mark.closing, mark.start == mark.end)

    for number, mark in enumerate(marks):
        yield from closed(mark.parent)
        if mark.is_single:
            yield Tag(mark.start, Role.SINGLE, number, mark.opening, spaces=(mark.space_before, mark.space_after))
        else:
            yield Tag(mark.start, Role.OPENS, number, mark.opening, mark.start == mark.end)
            opened.append(number)
    yield from closed(-1)


def merged(tags: Sequence[Tag], text: str, kept: Sequence[Kept]) -> list[Tag]:
    """Return the tags of markup and the kept parts, as single things, in order."""
    found: list[Tag] = []
    waiting = list(reversed(tags))
    for number, part in enumerate(kept):
        while waiting and waiting[-1].place <= part.start:
            found.append(waiting.pop())
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
    """Return the tags of a sentence as marks.

    Args:
        tags: the tags, in order.
        in_sentence: turns a place of the block into a place of the sentence.
        length: how long the sentence is [characters].
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
