"""The kinds of documents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from translane.options import Format
from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.documents.document import Document, PlacesDocument, ReadPlaces
from translane_server.text.documents.encoding import decode
from translane_server.text.documents.errors import DocumentError
from translane_server.text.documents.gettext_catalog import CHARSET, read_catalog
from translane_server.text.documents.plain_lines import read_lines
from translane_server.text.documents.subtitles import CUE_TAGS, read_subrip, read_webvtt
from translane_server.text.documents.xliff_file import ENCODING, read_xliff


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document.

    Attributes:
        read: finds the places of the texts.
        format: what the texts are written in.
        declared: finds the name of the encoding at the start of a file.
        has_translations: whether a file may have translations already, which can be replaced.
        preserve: regular expressions of what is preserved in the texts, beside what the caller says.
    """

    read: ReadPlaces
    format: Format = Format.TEXT
    declared: re.Pattern[bytes] | None = None
    has_translations: bool = False
    preserve: tuple[str, ...] = ()


KINDS: Mapping[str, Kind] = {
    "text/plain": Kind(read_lines),
    "application/xliff+xml": Kind(read_xliff, Format.XLIFF, ENCODING, has_translations=True),
    "text/x-gettext-translation": Kind(read_catalog, declared=CHARSET, has_translations=True),
    "application/x-subrip": Kind(read_subrip, preserve=CUE_TAGS),
    "text/vtt": Kind(read_webvtt, preserve=CUE_TAGS),
}
"""The kinds by their MIME types."""


def parse(
    content: bytes, mime_type: str, *, replace_translations: bool = False, budget: Budget = UNLIMITED
) -> Document:
    """Find what is translated in a file.

    Args:
        content: the file.
        mime_type: its kind, a key of `KINDS`.
        replace_translations: translate also what has a translation already. Only some kinds have any.
        budget: how long this may take; it is checked between the pieces of the work.

    Raises:
        DocumentError: the file is not of its kind or cannot be decoded, has too many texts, is of no known kind, or
            can have no translations to replace.
        OverBudgetError, WorkEndedError: see `Budget.check`.
    """
    kind = KINDS.get(mime_type)
    if kind is None:
        raise DocumentError(f"documents are of one of the types {', '.join(KINDS)}")
    if replace_translations and not kind.has_translations:
        raise DocumentError(f"a document of the type {mime_type} has no translations to replace")
    budget.check()
    file = decode(content, kind.declared)
    return PlacesDocument.of(file, kind.read, kind.format, replace_translations, budget)
