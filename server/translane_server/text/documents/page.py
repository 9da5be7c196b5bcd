"""HTML pages and Markdown documents: each block is a text.

A block means the same alone as in its page: its text is without the page's escapes, and its tags are in order. So it
travels as the content of an XLIFF <source>, where a number stands for each tag of the page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import unescape

from translane.options import Format
from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.documents.document import Document, DocumentError, DocumentText, TextFile, texts_at
from translane_server.text.marked_text import Role, TaggedText
from translane_server.text.markup.document import Document as Page
from translane_server.text.markup.document import MarkupError
from translane_server.text.markup.xliff import escape_xml

HTML_CHARSET = re.compile(rb"<meta\s[^<>]*?charset\s*+=\s*+[\"']?\s*+([A-Za-z0-9_:.-]+)", re.IGNORECASE)
"""Finds the name of the encoding of a page."""

_TAG = re.compile("(<[^<>]*>)")  # in what is escaped, nothing else looks like one
# What stands for a tag with a number.
_CODES = {Role.OPENS: '<bpt i="{}"/>', Role.CLOSES: '<ept i="{}"/>', Role.SINGLE: '<x id="{}"/>'}

ParsePage = Callable[[str, Budget], Page]


@dataclass(frozen=True)
class PageDocument(Document):
    """A page."""

    file: TextFile
    texts: Sequence[DocumentText]
    page: Page
    parse: ParsePage

    @classmethod
    def of(cls, parse: ParsePage, file: TextFile, budget: Budget) -> PageDocument:
        """Return the page in a file. DocumentError: it has too many parts."""
        try:
            page = parse(file.text, budget)
        except MarkupError as error:
            raise DocumentError(f"the document {error}") from None
        contents = zip(page.starts, map(_content, page.blocks), strict=True)
        return cls(file, texts_at(contents, file, Format.XLIFF, budget), page, parse)

    def render(self, translations: Sequence[str], budget: Budget = UNLIMITED) -> bytes:
        """See `Document`. A block stays, but for its white space, if its translation is blank."""
        blocks = []
        for block, text, translation in zip(self.page.blocks, self.texts, translations, strict=True):
            budget.check()
            blocks.append(self._tagged(block, translation if translation.strip() else text.text, text.line))
        written = self.page.render(blocks)
        self._check(written, budget)
        return self.file.mark + self.file.encode(written)

    def _check(self, written: str, budget: Budget) -> None:
        """Read the result once more, because a part that is new would be markup that a translation has become."""
        try:
            number = len(self.parse(written, budget).blocks)
        except MarkupError:  # it has grown beyond what is read, and is whole
            return
        if number > len(self.texts):
            raise DocumentError("the translation would break the file")

    def _tagged(self, block: TaggedText, translation: str, line: int) -> str:
        """Return a translation with the tags of its block in place of their numbers."""
        tags = {_CODES[tag.role].format(tag.number): tag.text for tag in block.tags}
        parts = _TAG.split(translation)
        if sorted(parts[1::2]) != sorted(tags):
            raise DocumentError("the translation has other tags than the document", line)
        return "".join(tags[part] if i % 2 else self.page.escape(unescape(part)) for i, part in enumerate(parts))


def _content(block: TaggedText) -> str:
    """Return a block as the content of a <source>, with the white space that was around its single things."""
    written, done = [], 0
    for tag in block.tags:
        before, after = (" " if there else "" for there in tag.spaces)
        code = _CODES[tag.role].format(tag.number)
        written += [escape_xml(block.text[done : tag.place]), before, code, after]
        done = tag.place
    return re.sub(" {2,}", " ", "".join([*written, escape_xml(block.text[done:])]))
