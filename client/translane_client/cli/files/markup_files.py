"""HTML and Markdown: the server knows the markup, so that a page or a document is one text, or one for each piece."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from translane_client.cli.files import html_sections, markdown_sections
from translane_client.cli.files.document import Document, Edit, parts_of, read_document
from translane_client.cli.files.part import Part, trimmed

_HTML_ENCODING = re.compile(rb"<meta\s[^<>]*?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)


def html_parts(file: BinaryIO, name: str) -> Iterator[Part]:
    """The page, or the pieces of a long one. FileError: it cannot be read, or is not in the encoding that it names."""
    document = read_document(file, name, _HTML_ENCODING)
    return _parts(document, html_sections.sections(document.text))


def markdown_parts(file: BinaryIO, name: str) -> Iterator[Part]:
    """The document, or the sections of a long one. FileError: it cannot be read, or is not UTF-8."""
    document = read_document(file, name)
    return _parts(document, markdown_sections.sections(document.text))


def _parts(document: Document, texts: Iterable[str]) -> Iterator[Part]:
    return parts_of(document, _edits(texts))


def _edits(texts: Iterable[str]) -> Iterator[Edit]:
    begun = 0
    for text in texts:
        before, core, _ = trimmed(text)
        start = begun + len(before)
        if core:
            yield Edit(start, start + len(core), (core,), lambda translations: translations[0])
        begun += len(text)
