"""The kinds of files, and which kind a file is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from translane_client.cli.files.gettext_catalogs import po_parts
from translane_client.cli.files.line_files import column_parts, object_parts, text_parts
from translane_client.cli.files.markup_files import html_parts, markdown_parts
from translane_client.cli.files.part import Part
from translane_client.cli.files.subtitles import TAGS, srt_parts, vtt_parts
from translane_client.cli.files.xliff_files import xliff_parts
from translane_client.cli.formats import TranslationFormat
from translane_client.options import Format


@dataclass(frozen=True, slots=True)
class Settings:
    """What a user chooses about the files."""

    form: TranslationFormat
    """How translations are written, for kinds that write more than their text."""
    columns: Sequence[int] = (1,)
    """Columns to translate, from 1."""
    field: str = "text"
    output_field: str = "translation"
    replace: bool = False
    """Whether to replace translations that are there already."""


Parts = Callable[[BinaryIO, str, Settings], Iterator[Part]]


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file."""

    extensions: tuple[str, ...]
    parts: Parts
    """Reads an open file of a given name."""
    flags: frozenset[str] = frozenset()
    """The flags that concern this kind, beside those of all kinds."""
    is_document: bool = True
    """Whether a file is read whole, and its translation appears when it is whole."""
    format: Format | None = None
    """What the texts are written in; None: what the user says."""
    preserve: tuple[str, ...] = ()
    """Regular expressions of what is not translated, beside the user's."""


KINDS: Mapping[str, Kind] = {
    "lines": Kind((".txt",), lambda file, name, settings: text_parts(file, name, settings.form), is_document=False),
    "tsv": Kind(
        (".tsv", ".tab"),
        lambda file, name, settings: column_parts(file, name, settings.columns),
        frozenset({"columns"}),
        is_document=False,
    ),
    "jsonl": Kind(
        (".jsonl", ".ndjson"),
        lambda file, name, settings: object_parts(file, name, settings.field, settings.output_field),
        frozenset({"field", "output_field"}),
        is_document=False,
    ),
    "srt": Kind((".srt",), lambda file, name, _: srt_parts(file, name), preserve=TAGS),
    "vtt": Kind((".vtt",), lambda file, name, _: vtt_parts(file, name), preserve=TAGS),
    "po": Kind(
        (".po", ".pot"),
        lambda file, name, settings: po_parts(file, name, replace=settings.replace),
        frozenset({"all"}),
    ),
    "xliff": Kind(
        (".xliff", ".xlf"),
        lambda file, name, settings: xliff_parts(file, name, replace=settings.replace),
        frozenset({"all"}),
        format=Format.XLIFF,
    ),
    "html": Kind((".html", ".htm"), lambda file, name, _: html_parts(file, name), format=Format.HTML),
    "markdown": Kind((".md", ".markdown"), lambda file, name, _: markdown_parts(file, name), format=Format.MARKDOWN),
}
"""Name of a kind, as --file-format takes it → the kind."""

_BY_EXTENSION = {extension: name for name, kind in KINDS.items() for extension in kind.extensions}


def kind_of(path: Path | None) -> str:
    """The name of the kind that the file's extension says: lines, where the extension says nothing."""
    return _BY_EXTENSION.get(path.suffix.lower(), "lines") if path else "lines"
