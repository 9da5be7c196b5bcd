"""A marked-up text: its items, and its blocks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from translane_server.text.marked_text import Role, TaggedText

# White space of HTML, which a browser shows as one space.
SPACE = " \t\r\n\f"


class Kind(Enum):
    """What an item is."""

    TEXT = auto()
    OPEN = auto()
    CLOSE = auto()
    SINGLE = auto()
    BREAK = auto()  # where a line is cut


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a line."""

    kind: Kind
    start: int  # where it starts in the source [characters]
    end: int  # where it ends
    text: str = ""  # of a text: what it says, without entities
    name: str = ""  # of a tag: what it shares with its partner
    is_word: bool = False  # of a single thing: whether readers read it as a part of the sentence, as they do code


# A text with more blocks, tags in a block, or tags within each other is refused.
MOST_BLOCKS = 10_000
MOST_TAGS = 10_000
MOST_DEPTH = 100

# Unicode keeps these characters from all texts that programs exchange, but does not forbid them.
_NONCHARACTERS = [*map(chr, range(0xFDD0, 0xFDF0))]
_CODE_POINT = re.compile("&#(?:[xX]([0-9A-Fa-f]{1,8})|([0-9]{1,8}))")


class MarkupError(ValueError):
    """A text is not well-formed, or has more parts than it may have. The message goes on after the field's name."""


@dataclass(frozen=True, slots=True)
class References:
    """How the marks of a document's blocks name its tags: by a number between two characters that its text lacks.

    So all else that comes back, translated or preserved, is text and is escaped.
    """

    start: str = _NONCHARACTERS[0]  # the character before a number
    end: str = _NONCHARACTERS[1]  # the character after a number

    @classmethod
    def absent_from(cls, text: str) -> References:
        """Return references that `text` cannot contain, neither as characters nor by their code points.

        Raises:
            MarkupError: the text has nearly all noncharacters.
        """
        named = {int(match[1], 16) if match[1] else int(match[2]) for match in _CODE_POINT.finditer(text)}
        free = (each for each in _NONCHARACTERS if each not in text and ord(each) not in named)
        start, end = next(free, ""), next(free, "")
        if not end:
            raise MarkupError("has the noncharacters U+FDD0 to U+FDEF, of which two must be left for marks")
        return cls(start, end)

    def escape(self, text: str) -> str:
        """Return text that can be taken for no reference. A translation hardly ever has something to escape."""
        return text.replace(self.start, "\ufffd").replace(self.end, "\ufffd")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a block's translation: a tag, or the text between two tags."""

    text: str  # the tag, or the text without escapes
    is_tag: bool = False
    is_closing: bool = False  # whether it is the second tag of a pair


# Source text, and the numbers of blocks between.
Template = Sequence[str | int]
# Makes the parts of the block with a number one text. Text is escaped, a tag is not.
Write = Callable[[int, Sequence[Part]], str]


@dataclass(frozen=True, slots=True)
class Document:
    """A text as blocks to translate."""

    # n blocks: a paragraph, a heading, a table's cell, an attribute. Their texts are plain: entities are decoded,
    # and white space is collapsed. Their tags are references
    blocks: Sequence[TaggedText]
    starts: Sequence[int]  # where each block starts in the text [characters]
    template: Template  # the text with the blocks' numbers in their places
    # what the blocks' tags stand for. A tag with a translated attribute has the number of its block
    tags: Sequence[Template]
    write: Write  # writes a block's translation in the text's format. It can be pickled
    references: References  # how marks name tags

    def escape(self, text: str) -> str:
        """Return text that can be taken for no mark of a block."""
        return self.references.escape(text)

    def render(self, translations: Sequence[str]) -> str:
        """Return the text with n translations in place of the blocks.

        Each translation has the marks of its block. All that is no mark is text, which has been through `escape` and
        which the format's own rules escape here.
        """
        assert len(translations) == len(self.blocks)
        written: dict[int, str] = {}

        def block(number: int) -> str:
            if number not in written:
                written[number] = self.write(number, list(self._parts(number, translations[number], fill)))
            return written[number]

        def fill(template: Template) -> str:
            return "".join(part if isinstance(part, str) else block(part) for part in template)

        return fill(self.template)

    def _parts(self, number: int, translation: str, fill: Callable[[Template], str]) -> Iterator[Part]:
        place = 0
        expected = {tag.text: tag.role for tag in self.blocks[number].tags}
        for match in re.finditer(f"{self.references.start}([0-9]{{1,9}}){self.references.end}", translation):
            if role := expected.pop(match[0], None):
                if place < match.start():
                    yield Part(translation[place : match.start()])
                yield Part(fill(self.tags[int(match[1])]), is_tag=True, is_closing=role is Role.CLOSES)
                place = match.end()
        if place < len(translation):
            yield Part(translation[place:])
