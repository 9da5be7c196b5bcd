"""The kinds of documents. The simplest one is here: of plain text, each line is a text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from translane.options import Format
from translane_server.core.budget import UNLIMITED, Budget
from translane_server.text.documents.document import (
    Document,
    DocumentError,
    Place,
    PlacesDocument,
    ReadPlaces,
    TextFile,
    decode,
    is_worth_translating,
    on_a_line,
    trimmed,
)
from translane_server.text.documents.gettext_catalog import CHARSET, read_catalog
from translane_server.text.documents.page import HTML_CHARSET, PageDocument, ParsePage
from translane_server.text.documents.subtitles import CUE_TAGS, read_subrip, read_webvtt
from translane_server.text.documents.xliff_file import ENCODING, read_xliff
from translane_server.text.markup.html import parse_html
from translane_server.text.markup.markdown import parse_markdown

# Signs of markup in a Markdown document at most. The parser finds all blocks in one go, which takes some 4 seconds for
# so many items of lists.
_MOST_SIGNS = 60_000

# Reads a file. The second argument says whether translations that are there are replaced.
Read = Callable[[TextFile, bool, Budget], Document]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document."""

    read: Read
    declared: re.Pattern[bytes] | None = None  # finds the name of the encoding at the start of a file
    errors: str = "strict"  # how `str.encode` treats a character that the file's encoding lacks
    has_translations: bool = False  # whether a file may have translations already, which can be replaced
    preserve: tuple[str, ...] = ()  # regular expressions of what is preserved in the texts, beside what the caller says


def _line(translations: Sequence[str]) -> str:
    return on_a_line(translations[0])


def _read_lines(file: TextFile, _: bool, budget: Budget) -> Iterator[Place]:
    """Yield the lines of plain text that are not blank. See `ReadPlaces`."""
    for line in file.lines():
        budget.check()
        before, core, _after = trimmed(file.text[line.start : line.end])
        if core:
            start = line.start + len(before)
            yield Place(start, start + len(core), ((start, core),) if is_worth_translating(core) else (), _line)


def _places(read: ReadPlaces, form: Format = Format.TEXT) -> Read:
    return partial(PlacesDocument.of, read, form)


def _page(parse: ParsePage) -> Read:
    return lambda file, _, budget: PageDocument.of(parse, file, budget)


KINDS: Mapping[str, Kind] = {
    "text/plain": Kind(_places(_read_lines)),
    "text/html": Kind(_page(parse_html), HTML_CHARSET, "xmlcharrefreplace"),
    "text/markdown": Kind(_page(partial(parse_markdown, most_signs=_MOST_SIGNS))),
    "application/xliff+xml": Kind(
        _places(read_xliff, Format.XLIFF), ENCODING, "xmlcharrefreplace", has_translations=True
    ),
    "text/x-gettext-translation": Kind(_places(read_catalog), CHARSET, has_translations=True),
    "application/x-subrip": Kind(_places(read_subrip), preserve=CUE_TAGS),
    "text/vtt": Kind(_places(read_webvtt), preserve=CUE_TAGS),
}
"""The kinds by their MIME types."""


def parse(
    content: bytes, mime_type: str, *, replace_translations: bool = False, budget: Budget = UNLIMITED
) -> Document:
    """Find what is translated in a file of the kind `mime_type`, a key of `KINDS`.

    With `replace_translations`, what has a translation already is translated, too. Only some kinds have any. The budget
    is checked between the pieces of the work.

    Raises:
        DocumentError: the file is not of its kind or cannot be decoded, has too many texts, is of no known kind, or can
            have no translations to replace.
        OverBudgetError, WorkEndedError: see `Budget.check`.
    """
    kind = KINDS.get(mime_type)
    if kind is None:
        raise DocumentError(f"documents are of one of the types {', '.join(KINDS)}")
    if replace_translations and not kind.has_translations:
        raise DocumentError(f"a document of the type {mime_type} has no translations to replace")
    budget.check()
    file = decode(content, kind.declared, kind.errors, is_html=mime_type == "text/html")
    return kind.read(file, replace_translations, budget)
