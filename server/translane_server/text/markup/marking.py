"""Makes a text with marks of items, and collapses white space as browsers do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from translane_server.text.marks import Mark, MarkedText
from translane_server.text.markup.document import MOST_DEPTH, MOST_TAGS, MarkupError
from translane_server.text.markup.items import SPACE, Item, Kind, Refer

_WORD = re.compile(r"[ \t\r\n\f]+|[^ \t\r\n\f]+")
_TAKES_NO_SPACE_BEFORE = frozenset(["", *".,;:!?)]}»”’…。，、；：！？）】」』"])
_TAKES_NO_SPACE_AFTER = frozenset("([{«“‘„¿¡（【「『")


class Marking:
    """Writes the text of a segment's items, collapses white space, and notes where marks are."""

    def __init__(self, items: Sequence[Item], refer: Refer) -> None:
        self._items = items
        self._refer = refer
        self._text: list[str] = []
        self._length = 0
        self._last = ""  # the last character of the text
        self._space = False  # whether white space waits for the next word
        self._marks: list[Mark] = []
        self._open: list[int] = []  # marks whose end has not come
        self._unset = 0  # how many of them, the innermost ones, wait for the next word to start with

    def marked_text(self) -> MarkedText:
        following = self._following()
        for item, (next_to, after_things) in zip(self._items, following, strict=True):
            match item.kind:
                case Kind.TEXT:
                    self._write(item.text)
                case Kind.OPEN:
                    if len(self._open) == MOST_DEPTH:
                        raise MarkupError(f"has more than {MOST_DEPTH} pairs of tags within each other")
                    self._add(Mark(0, 0, self._refer(item.start, item.end), is_single=False))
                    self._open.append(len(self._marks) - 1)
                    self._unset += 1
                case Kind.CLOSE:
                    number = self._open.pop()
                    self._marks[number] = replace(
                        self._marks[number], end=self._length, closing=self._refer(item.start, item.end)
                    )
                case Kind.SINGLE:
                    self._add_single(self._refer(item.start, item.end), next_to, after_things)
        return MarkedText("".join(self._text), tuple(self._marks))

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
        for number in self._open[len(self._open) - self._unset :]:
            self._marks[number] = replace(self._marks[number], start=self._length, end=self._length)
        self._unset = 0

    def _add(self, mark: Mark) -> None:
        if len(self._marks) == MOST_TAGS:
            raise MarkupError(f"has more than {MOST_TAGS} tags in one block")
        self._marks.append(replace(mark, parent=self._open[-1] if self._open else -1))

    def _add_single(self, written: str, next_to: str, after_things: str) -> None:
        space_before = self._space or self._last == " "
        space_after = next_to != "" and next_to in SPACE
        if after_things in _TAKES_NO_SPACE_BEFORE or (self._last in _TAKES_NO_SPACE_AFTER and after_things in SPACE):
            self._space = False
        self._write_space()
        self._set_starts()
        self._add(Mark(self._length, self._length, written, space_before=space_before, space_after=space_after))
