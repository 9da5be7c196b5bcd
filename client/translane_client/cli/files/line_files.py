"""Files of lines: plain text, columns with tabs between, and JSON objects. They are read as they are translated."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from translane.results import Translation
from translane_client.cli.files.part import Part, Render
from translane_client.cli.formats import TranslationFormat
from translane_client.cli.text_files import FileError, Line, lines_of, on_a_line


def text_parts(file: BinaryIO, name: str, form: TranslationFormat) -> Iterator[Part]:
    """Each line is a text. The lines of its translation are those of `form`."""
    for index, line in enumerate(lines_of(file, name)):
        yield Part(line.raw, index + 1, (line.text,), _lines(index, form))


def _lines(index: int, form: TranslationFormat) -> Render:
    def render(translations: Sequence[Translation]) -> bytes:
        return "".join(f"{on_a_line(line)}\n" for line in form.lines(index, translations[0])).encode()

    return render


def column_parts(file: BinaryIO, name: str, columns: Sequence[int]) -> Iterator[Part]:
    """Each line has columns. The translations of `columns`, counted from 1, are new columns at the line's end.

    Raises:
        FileError: a line has too few columns, or cannot be read. A line without any text stays as it is.
    """
    for number, line in enumerate(lines_of(file, name), start=1):
        cells = line.text.split("\t")
        if not line.text:
            yield _unchanged(line, number)
            continue
        if len(cells) < max(columns):
            have = "1 column" if len(cells) == 1 else f"{len(cells)} columns"
            raise FileError(f"{name}, line {number}: {have}, where --columns asks for column {max(columns)}")
        yield Part(line.raw, number, tuple(cells[column - 1] for column in columns), _cells(line))


def _cells(line: Line) -> Render:
    def render(translations: Sequence[Translation]) -> bytes:
        cells = (on_a_line(translation.text).replace("\t", " ") for translation in translations)
        return line.start + "\t".join([line.text, *cells]).encode() + line.end

    return render


def object_parts(file: BinaryIO, name: str, field: str, output_field: str) -> Iterator[Part]:
    """Each line is a JSON object. The translation of `field` is a new last field, `output_field`.

    Raises:
        FileError: a line holds no object with a text in `field`, or has `output_field` already, or cannot be read. A
            line without any text stays as it is.
    """
    for number, line in enumerate(lines_of(file, name), start=1):
        if not line.text.strip():
            yield _unchanged(line, number)
            continue
        place = f"{name}, line {number}"
        try:
            value = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            raise FileError(f"{place}: no valid JSON ({error})") from error
        if not isinstance(value, dict):
            raise FileError(f"{place}: a JSON object is needed")
        if not isinstance(value.get(field), str):
            problem = "is no text" if field in value else "is missing"
            raise FileError(f"{place}: the field {field!r} {problem}; --field chooses another")
        if output_field in value:
            raise FileError(f"{place}: there is a field {output_field!r} already; --output-field chooses another")
        yield Part(line.raw, number, (value[field],), _object(line, output_field))


def _object(line: Line, field: str) -> Render:
    body, brace, rest = line.text.rpartition("}")

    def render(translations: Sequence[Translation]) -> bytes:
        member = f"{json.dumps(field, ensure_ascii=False)}: {json.dumps(translations[0].text, ensure_ascii=False)}"
        return line.start + f"{body}, {member}{brace}{rest}".encode() + line.end

    return render


def _unchanged(line: Line, number: int) -> Part:
    """A line without text. It is sent as an empty text, so that few lines wait for the lines before them."""
    return Part(line.raw, number, ("",), lambda _: line.raw)
