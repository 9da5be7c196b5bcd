"""Records of files: what is read of each, and what is written with its answer. Text, TSV and JSON, a record a line."""

from __future__ import annotations

import gzip
import json
import string
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol, cast

from translane_batch.settings import BatchError, BatchSettings, KindName
from translane_client.cli.outputs import on_a_line
from translane_server.core.files import open_regular

MOST_RECORDS = 1024
"""Records of a block."""

LONGEST_LINE = 1 << 24
"""Bytes of the longest line. A file without line ends must not fill the memory."""

UNREADABLE, REFUSED, FAILED = "unreadable", "refused", "decoding failed"
"""Why a record has no translation: its text cannot be read, the service refuses the text, or decoding it fails."""

ENDINGS = {
    ".txt": "text",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""End of a file's name → name of its kind. All but Parquet may also end in .gz."""

_BLOCK_BYTES = 1 << 20
_GZIP_LEVEL = 6
_TABS = str.maketrans("\t", " ")
# Made once: json.dumps makes an encoder for each call that does not take the defaults.
_encode, _decode = json.JSONEncoder(ensure_ascii=False).encode, json.JSONDecoder().decode


class Answer(NamedTuple):
    """The translation of a text, or why it is left out.

    Attributes:
        text: the translation; "" if there is none.
        reason: why the translation is left out; "" if it is not. One of few sentences, so that they can be counted.
        detail: more about the reason.
        others: further translations, the best first.
    """

    text: str
    reason: str = ""
    detail: str = ""
    others: Sequence[str] = ()

    @property
    def encoded(self) -> str:
        """The answer as JSON."""
        return _encode(self if self.others else self[:3] if self.reason else self[:1])

    def value(self, *, as_list: bool) -> str | list[str] | None:
        """The value of a new field: a translation or a list of them, or None where it is left out."""
        if self.reason and not self.text:
            return None
        if as_list:
            return [self.text, *self.others] if self.text else []
        return self.text

    @classmethod
    def decoded(cls, text: str) -> Answer:
        """Return the answer of `encoded`."""
        return cls(*_decode(text))


class Record(NamedTuple):
    """The text to translate, which may be empty, or why it cannot be read."""

    source: str
    problem: str = ""


BLANK, BLANK_RECORD = Answer(""), Record("")


class Block(NamedTuple):
    """Records of a file, one after the other; `first` is the number of the first one, from 1."""

    first: int
    records: Sequence[Record]
    content: Any
    """What the output needs of them."""


Write = Callable[[Block, Sequence[Answer]], object]
"""Writes the records of a block, each with its answer."""


class RecordFiles(Protocol):
    """A kind of file."""

    def blocks(self, path: Path, *, whole: bool) -> Iterator[Block]:
        """Yield the records of a file; `whole` says whether with what the output needs.

        A first record that is not what the settings say is refused, because then all of them are. A later one is noted.
        """

    def output(self, path: Path, file: BinaryIO) -> AbstractContextManager[Write]:
        """Write to `file` what belongs to the records of the file at `path`, block by block."""


def kind_of(path: Path, chosen: KindName) -> str:
    """Return the name of a file's kind; "" if its name does not say."""
    if chosen != "auto":
        return chosen
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes[-1:] == [".gz"]:
        suffixes.pop()
        if suffixes[-1:] == [".parquet"]:
            return ""
    return ENDINGS.get(suffixes[-1], "") if suffixes else ""


def files_of(kind: str, settings: BatchSettings) -> RecordFiles:
    """Return what reads and writes the files of a kind."""
    lists = (settings.num_hypotheses or 1) > 1
    if lists and kind in ("text", "tsv"):
        raise BatchError(
            "--num-hypotheses: a line holds one translation; JSON lines and Parquet hold lists", exit_code=2
        )
    if kind == "parquet":
        from translane_batch.parquet_files import ParquetFiles  # pyarrow is an extra

        return ParquetFiles(settings.field, settings.output_field, lists)
    if kind == "tsv":
        return ColumnFiles(settings.column)
    if kind == "jsonl":
        return ObjectFiles(settings.field, settings.output_field, lists)
    return LineFiles()


def record_of(text: str) -> Record:
    """Return the record of a text. White space alone is nothing to translate."""
    return Record(text) if text.strip() else BLANK_RECORD


def not_utf8(error: UnicodeDecodeError) -> Record:
    """Return the record of bytes that are no text."""
    return Record("", f"it is not UTF-8, from its byte {error.start + 1} on")


class LineFiles:
    r"""Files of lines, each a text. The output has the translations alone.

    A line ends with "\n" or "\r\n", and with nothing else; in the output with "\n".
    """

    def blocks(self, path: Path, *, whole: bool) -> Iterator[Block]:  # noqa: ARG002 - a line is there as a whole
        first, lines, records, size = 1, list[bytes](), list[Record](), 0
        for line in _lines_of(path):
            record = self._record(line)
            if first == 1 and not records and record.problem:
                raise BatchError(f"{path}, line 1: {record.problem}")
            records.append(record)
            lines.append(line or b"")
            size += len(line or b"")
            if len(records) == MOST_RECORDS or size >= _BLOCK_BYTES:
                yield Block(first, records, lines)
                first, lines, records, size = first + len(records), [], [], 0
        if records:
            yield Block(first, records, lines)

    @contextmanager
    def output(self, path: Path, file: BinaryIO) -> Iterator[Write]:
        """The output is gzipped if the file is."""
        with ExitStack() as stack:
            if _is_gzipped(path):  # neither a name nor a time, so that equal outputs are equal files
                compressed = gzip.GzipFile("", "wb", _GZIP_LEVEL, fileobj=file, mtime=0)
                file = cast(BinaryIO, stack.enter_context(compressed))
            yield lambda block, answers: file.writelines(
                self.line(*each) + b"\n" for each in zip(block.content, block.records, answers, strict=True)
            )

    def _record(self, line: bytes | None) -> Record:
        if line is None:
            return Record("", f"it has more than {LONGEST_LINE} bytes")
        try:
            return self.record(line.decode())
        except UnicodeDecodeError as error:
            return not_utf8(error)

    def record(self, text: str) -> Record:
        """Read a line, without its end."""
        return record_of(text)

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:  # noqa: ARG002 - other kinds look at them
        """Return the line of the output, without its end. A line that was too long is b""."""
        return on_a_line(answer.text).encode()


@dataclass(frozen=True)
class ColumnFiles(LineFiles):
    """Files of TSV: a line has columns. The translation of one of them, counted from 1, is a new column at the end."""

    column: int

    def record(self, text: str) -> Record:
        if not text:
            return BLANK_RECORD
        cells = text.split("\t")
        if len(cells) < self.column:
            return Record("", f"it has {len(cells)} column{'s' * (len(cells) > 1)}, and --column is {self.column}")
        return record_of(cells[self.column - 1])

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:
        """A blank line stays as it is."""
        if not line and not record.problem:
            return line
        return line + b"\t" + on_a_line(answer.text).translate(_TABS).encode()


@dataclass(frozen=True)
class ObjectFiles(LineFiles):
    """Files of JSON lines: a line is an object. The translation of `field` is its new last field, `output_field`.

    The rest of the object stays as it is, byte for byte. The new field is null where a translation is left out. With
    `lists` it has all translations, the best first.
    """

    field: str
    output_field: str
    lists: bool = False

    def record(self, text: str) -> Record:
        if not text.strip(string.whitespace):
            return BLANK_RECORD
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return Record("", "it is not JSON")
        if not isinstance(value, dict):
            return Record("", "it is not a JSON object")
        if self.output_field in value:
            return Record("", f"it has a field {self.output_field!r} already; --output-field names another")
        if self.field not in value:
            return Record("", f"it has no field {self.field!r}; --field names another")
        found = value[self.field]
        if found is None:
            return BLANK_RECORD
        if not isinstance(found, str):
            return Record("", f"its field {self.field!r} is not a text")
        try:
            found.encode()  # JSON can say "\ud800", which is half of a pair
        except UnicodeEncodeError:
            return Record("", f"its field {self.field!r} holds half a character")
        return record_of(found)

    def line(self, line: bytes, record: Record, answer: Answer) -> bytes:
        """A blank line stays as it is, and so does an object that has the new field already."""
        body = line.strip()
        if not body and not record.problem:
            return line
        if record.problem:
            try:
                value = json.loads(body.decode())
            except (ValueError, RecursionError):
                value = None
            if not isinstance(value, dict):
                body = b"{}"
            elif self.output_field in value:
                return line
        member = f"{_encode(self.output_field)}: {_encode(answer.value(as_list=self.lists))}"
        start = body[:-1].rstrip()
        return start + (b"" if start == b"{" else b", ") + member.encode() + b"}"


def _is_gzipped(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _lines_of(path: Path) -> Iterator[bytes | None]:
    """Yield the lines of a file without their ends; None for a line that is too long."""
    number = 0
    try:
        with ExitStack() as stack:
            file: BinaryIO = stack.enter_context(open_regular(path))
            if _is_gzipped(path):
                file = cast(BinaryIO, stack.enter_context(gzip.open(file, "rb")))
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE and not line.endswith(b"\n"):
                    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        pass
                    yield None
                    continue
                line = line.removesuffix(b"\n").removesuffix(b"\r")
                yield line.removeprefix(BOM_UTF8) if number == 1 else line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BatchError(f"{path}: the gzip data is broken after line {number} ({error})") from error
    except OSError as error:
        raise BatchError(f"{path}: {error.strerror or error}") from error
