"""Makes blocks of what stands in a line: text, tags in pairs, and single things."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from translane_server.text.marks import MarkedText
from translane_server.text.markup.items import SPACE, Item, Kind, Refer
from translane_server.text.markup.marking import Marking

# White space at the edges of a block stays there, the kind that does not break lines, too.
_EDGE = re.compile(r"(?:[ \t\r\n\f\u00a0]|&(?:nbsp|#160|#[xX][aA]0);)*")
_EDGE_AT_END = re.compile(r";0[aA][xX]#&|;061#&|;psbn&|[ \t\r\n\f\u00a0]")  # of the text in reverse


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of the source that is a block.

    Attributes:
        start: where it starts in the source [characters].
        end: where it ends.
        marked: what is translated.
    """

    start: int
    end: int
    marked: MarkedText


def segments(source: str, items: Sequence[Item], refer: Refer, *, free: bool = True) -> Iterator[Segment]:
    """Yield what is translated of a line. All else, such as white space and images at the ends, stays where it is.

    A tag whose partner is missing, or crosses another pair, cannot move. So the line is cut there.

    Args:
        source: the text that the line is of.
        items: the line.
        refer: gives what stands for a tag.
        free: whether a tag means the same whatever tags are beside it. If so, tags around all of a block stay there.

    Raises:
        MarkupError: a block has too many marks, or too many within each other.
    """
    partners = _partners(items)
    start = 0
    for place in [i for i, partner in enumerate(partners) if partner is None] + [len(items)]:
        segment = _segment(source, items[start:place], [(p or 0) - start for p in partners[start:place]], refer, free)
        start = place + 1
        if segment is not None:
            yield segment


def fixed(items: Sequence[Item]) -> list[Item]:
    """Return the tags that cannot move, and those of pairs around nothing to translate."""
    partners = _partners(items)
    texts = [0]  # how many items before one are texts
    for item in items:
        texts.append(texts[-1] + (item.kind is Kind.TEXT and not _stays_at_edge(item)))
    return [
        item
        for i, (item, partner) in enumerate(zip(items, partners, strict=True))
        if partner is None or texts[min(i, partner)] == texts[max(i, partner) + 1]
    ]


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
    fixed_before = [0]
    for partner in partners:
        fixed_before.append(fixed_before[-1] + (partner is None))
    return [
        None if partner is not None and fixed_before[max(i, partner)] != fixed_before[min(i, partner)] else partner
        for i, partner in enumerate(partners)
    ]


def _segment(source: str, items: Sequence[Item], partners: Sequence[int], refer: Refer, free: bool) -> Segment | None:
    items, partners = _without_empty_pairs(items, partners)
    pairs = [0]  # how many items before one start pairs
    for item in items:
        pairs.append(pairs[-1] + (item.kind is Kind.OPEN))
    low, high = 0, len(items)
    while low < high:
        if _stays_at_edge(items[low]):
            low += 1
        elif _stays_at_edge(items[high - 1]):
            high -= 1
        elif items[low].kind is Kind.OPEN and partners[low] == high - 1 and (free or pairs[low + 1] == pairs[high]):
            low, high = low + 1, high - 1
        else:
            break
    items = list(items[low:high])
    if not any(char.isalnum() for item in items if item.kind is Kind.TEXT for char in item.text):
        return None
    start, end = items[0].start, items[-1].end
    if items[0].kind is Kind.TEXT:
        match = _EDGE.match(source, start, items[0].end)
        start = match.end() if match else start
        items[0] = replace(items[0], text=items[0].text.lstrip(SPACE + "\u00a0"))
    if items[-1].kind is Kind.TEXT:
        backwards, place = source[items[-1].start : end][::-1], 0
        while match := _EDGE_AT_END.match(backwards, place):
            place = match.end()
        end -= place
        items[-1] = replace(items[-1], text=items[-1].text.rstrip(SPACE + "\u00a0"))
    return Segment(start, end, Marking(items, refer).marked_text())


def _stays_at_edge(item: Item) -> bool:
    if item.kind is Kind.TEXT:
        return not item.text.strip(SPACE + "\u00a0")
    return item.kind is Kind.SINGLE and not item.is_word


def _without_empty_pairs(items: Sequence[Item], partners: Sequence[int]) -> tuple[list[Item], list[int]]:
    """Make single things of the outermost pairs around nothing to translate, such as anchors, or links around code."""
    texts, words = [0], [0]  # how many items before one are texts, and words
    for item in items:
        texts.append(texts[-1] + (item.kind is Kind.TEXT and not _stays_at_edge(item)))
        words.append(words[-1] + item.is_word)
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
