"""Made-up translations of texts with marks: the same text, and random words in a random order."""

import random

from translane_server.text.marked_text import MarkedBlock, MarkedText, TaggedText
from translane_server.text.markup.document import Document
from translane_server.text.tag_projection import AlignedText, place

# What no translation may turn into markup.
WORDS = [
    "cat", "Baum", "树木", "<b>", "</p>", "<!--", "&amp;", "&", '"', "'", "x|y", "*", "_", "**", "[a](b)", "`", "#",
    "1.", "-", "<x", "a>b", "\\", "~~", "]]>", "!", "](", "http://x.y", "&#35;", "+", "=", "---", "…", "“q”", "a*b",
    "_c_", "|", ":", "\u00a0", "\ufdd00\ufdd1",
]  # fmt: skip


def marked(block: TaggedText) -> MarkedText:
    """Return a block as one sentence."""
    return MarkedBlock(block).sentence(0, len(block.text)).marked


def identity(document: Document) -> str:
    """Return the document with each block translated to itself, character by character."""
    return document.render(
        [
            place(
                marked(block),
                AlignedText(block.text, list(block.text), [(i, i + 1) for i in range(len(block.text))]),
                spaced=True,
            )
            for block in document.blocks
        ]
    )


def nonsense(document: Document, generator: random.Random) -> str:
    """Return the document with random words that are aligned to random characters."""
    translations = []
    for block in document.blocks:
        pieces = [f"{generator.choice(['', ' '])}{generator.choice(WORDS)}" for _ in range(generator.randint(1, 12))]
        sources: list[tuple[int, int] | None] = []
        for _ in pieces:
            start = generator.randrange(len(block.text))
            sources.append(generator.choice([None, (start, start + 1), (start, start + 1)]))
        target = AlignedText(document.escape("".join(pieces).strip()), pieces, sources)
        spaced = generator.random() < 0.8
        translations.append(place(marked(block), target, spaced=spaced))
    return document.render(translations)
