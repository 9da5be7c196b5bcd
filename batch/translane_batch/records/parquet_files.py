"""Parquet files: a column of texts, and in the output a column more. This module alone imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow import parquet

from translane_batch.answers import Answer
from translane_batch.errors import CorpusError
from translane_batch.records.record import BLANK_RECORD, MOST_RECORDS, Block, Record, record_of
from translane_server.core.files import check_regular
from translane_server.core.terminal import listed

_GROUP_ROWS = 1 << 16  # of a row group in the output
_GROUP_BYTES = 1 << 26
_GAIN = 4  # about how many times as large text is without Parquet's compression


@dataclass(frozen=True)
class ParquetFiles:
    """Files of Parquet. The translation of the column `field` is a new last column, `output_field`.

    The new column is null where a translation is left out, and where the source is null.
    """

    field: str
    output_field: str

    def blocks(self, path: Path, *, whole: bool) -> Iterator[Block]:
        """See `RecordFiles`."""
        first = 1
        try:
            check_regular(path)
            with parquet.ParquetFile(path) as file:
                self._check(path, file.schema_arrow)
                columns = None if whole else [self.field]
                for batch in file.iter_batches(batch_size=MOST_RECORDS, columns=columns):
                    yield Block(first, _records(batch.column(self.field)), batch if whole else None)
                    first += batch.num_rows
        except OSError as error:
            raise CorpusError(f"{path}: {error.strerror or error}") from error
        except pyarrow.ArrowException as error:
            raise CorpusError(f"{path}: it cannot be read as Parquet ({error})") from error

    @contextmanager
    def output(self, path: Path, file: BinaryIO) -> Iterator[_ParquetOutput]:
        """See `RecordFiles`. The output has the schema of the file, its compression, and the new column."""
        with parquet.ParquetFile(path) as read:
            schema = read.schema_arrow
            groups = read.metadata.num_row_groups
            compression = read.metadata.row_group(0).column(0).compression if groups else "ZSTD"
        kind = schema.field(self.field).type
        schema = schema.append(pyarrow.field(self.output_field, kind))
        compression = "NONE" if compression == "UNCOMPRESSED" else compression
        with parquet.ParquetWriter(file, schema, compression=compression) as writer:
            output = _ParquetOutput(writer, schema, self.field)
            yield output
            output.flush()

    def size(self, path: Path, stored: int) -> int:  # noqa: ARG002 - of RecordFiles
        """See `RecordFiles`."""
        return stored * _GAIN

    def _check(self, path: Path, schema: Any) -> None:
        if self.field not in schema.names:
            raise CorpusError(f"{path}: it has no column {self.field!r}, but {listed(schema.names)}; --field names one")
        if schema.names.count(self.field) > 1:
            raise CorpusError(f"{path}: it has several columns {self.field!r}; --field names another")
        kind = schema.field(self.field).type
        if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
            raise CorpusError(f"{path}: its column {self.field!r} has {kind}, not texts; --field names another")
        if self.output_field in schema.names:
            raise CorpusError(f"{path}: it has a column {self.output_field!r} already; --output-field names another")


class _ParquetOutput:
    """Gathers blocks to row groups."""

    def __init__(self, writer: Any, schema: Any, field: str) -> None:
        self._writer, self._schema, self._field = writer, schema, field
        self._waiting: list[Any] = []
        self._rows = self._bytes = 0

    def write(self, block: Block, answers: Sequence[Answer]) -> None:
        nulls = block.content.column(self._field).is_null().to_pylist()
        texts = [
            None if null or (answer.reason and not answer.text) else answer.text
            for null, answer in zip(nulls, answers, strict=True)
        ]
        column = pyarrow.array(texts, self._schema.types[-1])
        batch = pyarrow.RecordBatch.from_arrays([*block.content.columns, column], schema=self._schema)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what waits as a row group."""
        if self._waiting:
            self._writer.write_table(pyarrow.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0


def _records(column: Any) -> list[Record]:
    try:
        return [BLANK_RECORD if text is None else record_of(text) for text in column.to_pylist()]
    except UnicodeDecodeError:  # Parquet's writers may put any bytes into a column of texts
        return [_record(value) for value in column]


def _record(value: Any) -> Record:
    try:
        text = value.as_py()
    except UnicodeDecodeError as error:
        return Record("", f"it is not UTF-8, from its byte {error.start + 1} on")
    return BLANK_RECORD if text is None else record_of(text)
