"""The kinds of files, and which kind a file is. The reader of a kind is imported when such a file is read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from translane.options import Format
from translane_client.cli.files.cue_tags import CUE_TAGS
from translane_client.cli.files.part import Part
from translane_client.cli.formats import TranslationFormat


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


def _lines(file: BinaryIO, name: str, settings: Settings) -> Iterator[Part]:
    from translane_client.cli.files.line_files import text_parts

    return text_parts(file, name, settings.form)


def _columns(file: BinaryIO, name: str, settings: Settings) -> Iterator[Part]:
    from translane_client.cli.files.line_files import column_parts

    return column_parts(file, name, settings.columns)


def _objects(file: BinaryIO, name: str, settings: Settings) -> Iterator[Part]:
    from translane_client.cli.files.line_files import object_parts

    return object_parts(file, name, settings.field, settings.output_field)


def _srt(file: BinaryIO, name: str, _: Settings) -> Iterator[Part]:
    from translane_client.cli.files.subtitles import srt_parts

    return srt_parts(file, name)


def _vtt(file: BinaryIO, name: str, _: Settings) -> Iterator[Part]:
    from translane_client.cli.files.subtitles import vtt_parts

    return vtt_parts(file, name)


def _po(file: BinaryIO, name: str, settings: Settings) -> Iterator[Part]:
    from translane_client.cli.files.gettext_catalogs import po_parts

    return po_parts(file, name, replace=settings.replace)


def _xliff(file: BinaryIO, name: str, settings: Settings) -> Iterator[Part]:
    from translane_client.cli.files.xliff_files import xliff_parts

    return xliff_parts(file, name, replace=settings.replace)


def _html(file: BinaryIO, name: str, _: Settings) -> Iterator[Part]:
    from translane_client.cli.files.markup_files import html_parts

    return html_parts(file, name)


def _markdown(file: BinaryIO, name: str, _: Settings) -> Iterator[Part]:
    from translane_client.cli.files.markup_files import markdown_parts

    return markdown_parts(file, name)


_ALL = frozenset({"all"})

KINDS: Mapping[str, Kind] = {
    "lines": Kind((".txt",), _lines, is_document=False),
    "tsv": Kind((".tsv", ".tab"), _columns, frozenset({"columns"}), is_document=False),
    "jsonl": Kind((".jsonl", ".ndjson"), _objects, frozenset({"field", "output_field"}), is_document=False),
    "srt": Kind((".srt",), _srt, preserve=CUE_TAGS),
    "vtt": Kind((".vtt",), _vtt, preserve=CUE_TAGS),
    "po": Kind((".po", ".pot"), _po, _ALL),
    "xliff": Kind((".xliff", ".xlf"), _xliff, _ALL, format=Format.XLIFF),
    "html": Kind((".html", ".htm"), _html, format=Format.HTML),
    "markdown": Kind((".md", ".markdown"), _markdown, format=Format.MARKDOWN),
}
"""Name of a kind, as --file-format takes it → the kind."""

_BY_EXTENSION = {extension: name for name, kind in KINDS.items() for extension in kind.extensions}


# Kinds of files whose lines are no texts. A translation of their lines is broken.
_NO_LINES = frozenset(
    {
        ".arb",
        ".ass",
        ".csv",
        ".docx",
        ".epub",
        ".gz",
        ".ini",
        ".json",
        ".odt",
        ".pdf",
        ".pptx",
        ".properties",
        ".resx",
        ".rtf",
        ".sbv",
        ".ssa",
        ".strings",
        ".tbx",
        ".tex",
        ".tmx",
        ".toml",
        ".ts",
        ".xlsx",
        ".xml",
        ".yaml",
        ".yml",
        ".zip",
    }
)


def kind_of(path: Path | None) -> str:
    """The name of the kind that the file's extension says: lines, where the extension says nothing.

    Raises:
        ValueError: the extension is of a kind that there is no reader for.
    """
    if path and path.suffix.lower() in _NO_LINES:
        raise ValueError(
            f"{path}: {path.suffix} is no kind of file that is read; --file-format is one of {', '.join(KINDS)}"
        )
    return _BY_EXTENSION.get(path.suffix.lower(), "lines") if path else "lines"
