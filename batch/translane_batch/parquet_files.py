"""Parquet files: a column of texts, and in the output a column more. This module alone imports pyarrow for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
from pyarrow import parquet

from translane_batch.records import BLANK_RECORD, MOST_RECORDS, Answer, Block, Record, Write, not_utf8, record_of
from translane_batch.settings import BatchError
from translane_server.core.files import check_regular
from translane_server.core.terminal import listed

_GROUP_ROWS, _GROUP_BYTES = 1 << 16, 1 << 26  # of a row group in the output


@dataclass(frozen=True)
class ParquetFiles:
    """Files of Parquet. The translation of the column `field` is a new last column, `output_field`.

    The new column is null where a translation is left out, and where the source is null. With `lists` it has all
    translations, the best first.
    """

    field: str
    output_field: str
    lists: bool = False

    def blocks(self, path: Path, *, whole: bool) -> Iterator[Block]:
        first = 1
        try:
            check_regular(path)
            with parquet.ParquetFile(path) as file:
                self._check(path, file.schema_arrow)
                columns = None if whole else [self.field]
                for batch in file.iter_batches(batch_size=MOST_RECORDS, columns=columns):
                    contents = batch.column(self.field).cast(pyarrow.large_binary()).to_pylist()
                    yield Block(first, [_record(content) for content in contents], batch)
                    first += batch.num_rows
        except OSError as error:
            raise BatchError(f"{path}: {error.strerror or error}") from error
        except pyarrow.ArrowException as error:
            raise BatchError(f"{path}: it cannot be read as Parquet ({error})") from error

    @contextmanager
    def output(self, path: Path, file: BinaryIO) -> Iterator[Write]:
        """The output has the schema of the file, its compression, and the new column."""
        with parquet.ParquetFile(path) as read:
            schema = read.schema_arrow
            groups = read.metadata.num_row_groups
            compression = read.metadata.row_group(0).column(0).compression if groups else "ZSTD"
        kind = schema.field(self.field).type
        schema = schema.append(pyarrow.field(self.output_field, pyarrow.list_(kind) if self.lists else kind))
        compression = "NONE" if compression == "UNCOMPRESSED" else compression
        with parquet.ParquetWriter(file, schema, compression=compression) as writer:
            waiting: list[Any] = []  # blocks of the next row group

            def flush() -> None:
                if waiting:
                    table = pyarrow.Table.from_batches(waiting)
                    writer.write_table(table, row_group_size=table.num_rows)
                    waiting.clear()

            def write(block: Block, answers: Sequence[Answer]) -> None:
                nulls = block.content.column(self.field).is_null().to_pylist()
                texts = [
                    None if null else answer.value(as_list=self.lists)
                    for null, answer in zip(nulls, answers, strict=True)
                ]
                columns = [*block.content.columns, pyarrow.array(texts, schema.types[-1])]
                waiting.append(pyarrow.RecordBatch.from_arrays(columns, schema=schema))
                if sum(each.num_rows for each in waiting) >= _GROUP_ROWS or (
                    sum(each.nbytes for each in waiting) >= _GROUP_BYTES
                ):
                    flush()

            yield write
            flush()

    def _check(self, path: Path, schema: Any) -> None:
        if self.field not in schema.names:
            raise BatchError(f"{path}: it has no column {self.field!r}, but {listed(schema.names)}; --field names one")
        if schema.names.count(self.field) > 1:
            raise BatchError(f"{path}: it has several columns {self.field!r}; --field names another")
        kind = schema.field(self.field).type
        if kind not in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
            raise BatchError(f"{path}: its column {self.field!r} has {kind}, not texts; --field names another")
        if self.output_field in schema.names:
            raise BatchError(f"{path}: it has a column {self.output_field!r} already; --output-field names another")


def _record(content: bytes | None) -> Record:
    if content is None:
        return BLANK_RECORD
    try:
        return record_of(content.decode())
    except UnicodeDecodeError as error:  # Parquet's writers may put any bytes into a column of texts
        return not_utf8(error)
