"""A text with markup: the blocks of it that are translated, and all that stays around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..marks import MarkedText

# A text with more blocks, marks in a block, or marks within each other is refused.
MOST_BLOCKS = 10_000
MOST_MARKS = 10_000
MOST_DEPTH = 100

# A slot is the number of a block between these two. Unicode keeps both from all texts that programs exchange. `escape`
# lets neither into a slot, and a text that has one is refused.
SLOT_START, SLOT_END = "\ufdd0", "\ufdd1"
_SLOT = re.compile(f"{SLOT_START}([0-9]+){SLOT_END}")


class MarkupError(ValueError):
    """A text is not well-formed, or has more parts than a text may have.

    Attributes:
        line: where, the first line being 1; None if the fault is of the whole text.
        column: where in the line, the first column being 1.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(message if line is None else f"line {line}, column {column}: {message}")
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class Document:
    """A text as blocks to translate.

    Attributes:
        blocks: n blocks: a paragraph, a heading, a table's cell. Their texts are plain: entities are decoded, white
            space is collapsed. Their marks are as the format writes them.
        template: the text with a slot for each block.
        escape: makes a run of translated text that stands between marks fit the format. Marks are not escaped.
        finish: makes a block's number and translation, escaped and with its marks, fit the block's surroundings.
    """

    blocks: Sequence[MarkedText]
    template: str
    escape: Callable[[str], str]
    finish: Callable[[int, str], str]

    def render(self, translations: Sequence[str]) -> str:
        """Return the document with n translations in place of the blocks.

        Args:
            translations: for each block, its translation with the block's marks; text between marks is escaped.
        """
        assert len(translations) == len(self.blocks)
        finished = [self.finish(number, translation) for number, translation in enumerate(translations)]

        def fill(slot: re.Match[str]) -> str:
            return finished[int(slot[1])]

        # The second pass fills the slots of attributes, which are in marks.
        return _SLOT.sub(fill, _SLOT.sub(fill, self.template))


def slot(number: int) -> str:
    """Return what stands in a template for a block."""
    return f"{SLOT_START}{number}{SLOT_END}"
