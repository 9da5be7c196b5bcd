"""HTML and Markdown: the server knows the markup, so that the whole document is one text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

from translane_client.cli.files.document import Edit, parts_of, read_document
from translane_client.cli.files.part import Part, trimmed

_HTML_ENCODING = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]+)", re.IGNORECASE)


def html_parts(file: BinaryIO, name: str) -> Iterator[Part]:
    """The page. FileError: it cannot be read, or is not in the encoding that it names."""
    return _whole(file, name, _HTML_ENCODING)


def markdown_parts(file: BinaryIO, name: str) -> Iterator[Part]:
    """The document. FileError: it cannot be read, or is not UTF-8."""
    return _whole(file, name, None)


def _whole(file: BinaryIO, name: str, declared: re.Pattern[bytes] | None) -> Iterator[Part]:
    document = read_document(file, name, declared)
    before, text, _ = trimmed(document.text)
    edits = [Edit(len(before), len(before) + len(text), (text,), lambda translations: translations[0])]
    return parts_of(document, edits if text else [])
