"""Inline markup: items become marked texts, and marked texts become items."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter

from translane_server.text.marked_text import Role, Tag, TaggedText
from translane_server.text.markup.document import (
    MOST_BLOCKS,
    MOST_DEPTH,
    MOST_TAGS,
    SPACE,
    Document,
    Item,
    Kind,
    MarkupError,
    References,
    Template,
    Write,
)

_WORD = re.compile(r"[ \t\r\n\f]+|[^ \t\r\n\f]+")
_TAKES_NO_SPACE_BEFORE = frozenset(["", *".,;:!?)]}»”’…。，、；：！？）】」』"])
_TAKES_NO_SPACE_AFTER = frozenset("([{«“‘„¿¡（【「『")


class Marking:
    """Writes the text of a block's items, collapses white space, and notes where tags are."""

    def __init__(self, items: Sequence[Item], refer: Callable[[int, int], str]) -> None:
        self._items = items
        self._refer = refer  # returns what stands for a part of the source, from a place to another
        self._text: list[str] = []
        self._length = 0
        self._last = ""  # the last character of the text
        self._space = False  # whether white space waits for the next word
        self._tags: list[Tag] = []
        self._number = 0  # how many pairs and single things there are
        self._open: list[int] = []  # the numbers of pairs whose end has not come
        self._unset = 0  # how many tags, the last ones, wait for the next word to start with

    def tagged_text(self) -> TaggedText:
        following = self._following()
        for item, (next_to, after_things) in zip(self._items, following, strict=True):
            match item.kind:
                case Kind.TEXT:
                    self._write(item.text)
                case Kind.OPEN:
                    if len(self._open) == MOST_DEPTH:
                        raise MarkupError(f"has more than {MOST_DEPTH} pairs of tags within each other")
                    self._open.append(self._add(Role.OPENS, item))
                    self._unset += 1
                case Kind.CLOSE:
                    written = self._refer(item.start, item.end)
                    self._tags.append(Tag(self._length, Role.CLOSES, self._open.pop(), written))
                case Kind.SINGLE:
                    self._add_single(item, next_to, after_things)
        return TaggedText("".join(self._text), self._tags)

    def _following(self) -> list[tuple[str, str]]:
        """Return, for each item, the character after it, and the one after it and all single things that follow."""
        found = []
        next_to = after_things = ""
        for item in reversed(self._items):
            found.append((next_to, after_things))
            if item.kind is Kind.TEXT and item.text.strip(SPACE):
                next_to = after_things = item.text[0]
            elif item.kind is Kind.TEXT and item.text:
                next_to, after_things = " ", after_things and " "
            elif item.kind is Kind.SINGLE:
                next_to = ""
        return found[::-1]

    def _write(self, text: str) -> None:
        for word in _WORD.findall(text):
            if word[0] in SPACE:
                self._space = self._length > 0 and self._last != " "
                continue
            self._write_space()
            self._set_starts()
            self._put(word)

    def _put(self, text: str) -> None:
        self._text.append(text)
        self._length += len(text)
        self._last = text[-1]

    def _write_space(self) -> None:
        if self._space:
            self._put(" ")
            self._space = False

    def _set_starts(self) -> None:
        for i in range(len(self._tags) - self._unset, len(self._tags)):
            self._tags[i] = self._tags[i]._replace(place=self._length)
        self._unset = 0

    def _add(self, role: Role, item: Item, spaces: tuple[bool, bool] = (False, False)) -> int:
        """Add the first tag of a pair, or a single thing; return its number."""
        if self._number == MOST_TAGS:
            raise MarkupError(f"has more than {MOST_TAGS} tags in one block")
        self._tags.append(Tag(self._length, role, self._number, self._refer(item.start, item.end), spaces))
        self._number += 1
        return self._number - 1

    def _add_single(self, item: Item, next_to: str, after_things: str) -> None:
        space_before = self._space or self._last == " "
        space_after = next_to != "" and next_to in SPACE
        if after_things in _TAKES_NO_SPACE_BEFORE or (self._last in _TAKES_NO_SPACE_AFTER and after_things in SPACE):
            self._space = False
        self._write_space()
        self._set_starts()
        self._add(Role.SINGLE, item, (space_before, space_after))


# White space at the edges of a block stays there, the kind that does not break lines, too.
_EDGE = re.compile(r"(?:[ \t\r\n\f\u00a0]|&(?:nbsp|#160|#[xX][aA]0);)*")
_EDGE_AT_END = re.compile(r";0[aA][xX]#&|;061#&|;psbn&|[ \t\r\n\f\u00a0]")  # of the text in reverse


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the source that is translated as one."""

    start: int  # where it starts in the source [characters]
    end: int  # where it ends
    tagged: TaggedText


def fixed(items: Sequence[Item]) -> list[Item]:
    """Return the tags that cannot move, and those of pairs around nothing to translate."""
    partners, texts = _partners(items), _counts(map(_is_to_translate, items))
    return [
        item
        for i, (item, partner) in enumerate(zip(items, partners, strict=True))
        if partner is None or texts[min(i, partner)] == texts[max(i, partner) + 1]
    ]


def _counts(flags: Iterable[bool]) -> list[int]:
    """Return how many flags are true before each one, and of all."""
    return list(accumulate(flags, initial=0))


def _is_to_translate(item: Item) -> bool:
    return item.kind is Kind.TEXT and not _stays_at_edge(item)


def _partners(items: Sequence[Item]) -> list[int | None]:
    """Return the number of each tag's partner; its own for other items, and None for a tag that cannot move."""
    partners: list[int | None] = list(range(len(items)))
    waiting: list[int] = []
    names: defaultdict[str, int] = defaultdict(int)
    for i, item in enumerate(items):
        if item.kind is Kind.OPEN:
            waiting.append(i)
            names[item.name] += 1
        elif item.kind is Kind.CLOSE and names[item.name]:
            while True:
                other = waiting.pop()
                names[items[other].name] -= 1
                if items[other].name == item.name:
                    break
                partners[other] = None
            partners[i], partners[other] = other, i
        elif item.kind in (Kind.CLOSE, Kind.BREAK):
            partners[i] = None
    for other in waiting:
        partners[other] = None
    # A pair around a tag that cannot move cannot move either.
    fixed_before = _counts(partner is None for partner in partners)
    return [
        None if partner is not None and fixed_before[max(i, partner)] != fixed_before[min(i, partner)] else partner
        for i, partner in enumerate(partners)
    ]


def _stays_at_edge(item: Item) -> bool:
    if item.kind is Kind.TEXT:
        return not item.text.strip(SPACE + "\u00a0")
    return item.kind is Kind.SINGLE and not item.is_word


def _without_empty_pairs(items: Sequence[Item], partners: Sequence[int]) -> tuple[list[Item], list[int]]:
    """Make single things of the outermost pairs around nothing to translate, such as anchors, or links around code."""
    texts, words = _counts(map(_is_to_translate, items)), _counts(item.is_word for item in items)
    kept: list[Item] = []
    numbers: list[int] = []  # of partners
    waiting: list[int] = []
    i = 0
    while i < len(items):
        item, end = items[i], partners[i] + 1
        numbers.append(len(kept))
        if item.kind is Kind.OPEN and texts[i] == texts[end]:
            is_word = words[i] != words[end]
            kept.append(Item(Kind.SINGLE, item.start, items[end - 1].end, is_word=is_word))
            if not is_word and any(inner.kind is Kind.TEXT for inner in items[i:end]):
                # White space within the pair separates the words around it.
                numbers.append(len(kept))
                kept.append(Item(Kind.TEXT, items[end - 1].end, items[end - 1].end, " "))
            i = end
            continue
        if item.kind is Kind.OPEN:
            waiting.append(len(kept))
        elif item.kind is Kind.CLOSE:
            numbers[-1] = waiting.pop()
            numbers[numbers[-1]] = len(kept)
        kept.append(item)
        i += 1
    return kept, numbers


class Builder:
    """Collects the blocks of a source, in the order in which they are there.

    If a tag means the same whatever tags are beside it (`free`), tags around all of a block stay there.

    Raises:
        MarkupError: there are too many blocks, or a block has too many tags, or too many within each other.
    """

    def __init__(self, source: str, *, free: bool = True) -> None:
        self._source = source
        self._free = free
        self._references = References.absent_from(source)
        self._blocks: list[TaggedText] = []
        self._starts: list[int] = []
        self._tags: list[Template] = []
        # Parts of the source, in order: start, end, and what stands in a template for each. Attributes and what is
        # written in another way come before the lines around them.
        self._lines: list[tuple[int, int, int]] = []
        self._attributes: list[tuple[int, int, int | str]] = []

    def add_line(self, items: Sequence[Item]) -> dict[int, Block]:
        """Add what is translated of a line of the source; return its blocks by their numbers.

        All else, such as white space at the ends, stays where it is. A tag whose partner is missing, or crosses another
        pair, cannot move. So the line is cut there.
        """
        found = {}
        partners = _partners(items)
        start = 0
        for place in [i for i, partner in enumerate(partners) if partner is None] + [len(items)]:
            block = self._block(items[start:place], [(p or 0) - start for p in partners[start:place]])
            start = place + 1
            if block is not None:
                number = self._add(block.tagged, block.start)
                self._lines.append((block.start, block.end, number))
                found[number] = block
        return found

    def add_attribute(self, start: int, end: int, text: str) -> int:
        """Add an attribute's value; return the number of its block."""
        number = self._add(TaggedText(" ".join(text.split())), start)
        self._attributes.append((start, end, number))
        return number

    def rewrite(self, start: int, end: int, text: str) -> None:
        """Write `text` for a part of the source that is in a tag."""
        self._attributes.append((start, end, text))

    def document(self, write: Write) -> Document:
        template: list[str | int] = []
        place = 0
        for start, end, number in self._lines:
            template += [*self._template(place, start), number]
            place = end
        template += self._template(place, len(self._source))
        return Document(
            tuple(self._blocks), tuple(self._starts), tuple(template), tuple(self._tags), write, self._references
        )

    def _block(self, items: Sequence[Item], partners: Sequence[int]) -> Block | None:
        items, partners = _without_empty_pairs(items, partners)
        pairs = _counts(item.kind is Kind.OPEN for item in items)
        low, high = 0, len(items)
        while low < high:
            if _stays_at_edge(items[low]):
                low += 1
            elif _stays_at_edge(items[high - 1]):
                high -= 1
            elif (
                items[low].kind is Kind.OPEN
                and partners[low] == high - 1
                and (self._free or pairs[low + 1] == pairs[high])
            ):
                low, high = low + 1, high - 1
            else:
                break
        items = list(items[low:high])
        if not any(char.isalnum() for item in items if item.kind is Kind.TEXT for char in item.text):
            return None
        start, end = items[0].start, items[-1].end
        if items[0].kind is Kind.TEXT:
            match = _EDGE.match(self._source, start, items[0].end)
            start = match.end() if match else start
            items[0] = replace(items[0], text=items[0].text.lstrip(SPACE + "\u00a0"))
        if items[-1].kind is Kind.TEXT:
            backwards, place = self._source[items[-1].start : end][::-1], 0
            while match := _EDGE_AT_END.match(backwards, place):
                place = match.end()
            end -= place
            items[-1] = replace(items[-1], text=items[-1].text.rstrip(SPACE + "\u00a0"))
        return Block(start, end, Marking(items, self._refer).tagged_text())

    def _add(self, block: TaggedText, start: int) -> int:
        if len(self._blocks) == MOST_BLOCKS:
            raise MarkupError(f"has more than {MOST_BLOCKS} parts to translate")
        self._blocks.append(block._replace(text=self._references.escape(block.text)))
        self._starts.append(start)
        return len(self._blocks) - 1

    def _refer(self, start: int, end: int) -> str:
        """Return what stands for a tag in the marks of a block."""
        self._tags.append(self._template(start, end))
        return f"{self._references.start}{len(self._tags) - 1}{self._references.end}"

    def _template(self, start: int, end: int) -> Template:
        """Return a part of the source, with what stands in it for attributes."""
        template: list[str | int] = []
        first, last = (bisect_left(self._attributes, place, key=itemgetter(0)) for place in (start, end))
        for begin, after, value in self._attributes[first:last]:
            template += [self._source[start:begin], value]
            start = after
        return (*template, self._source[start:end])
