"""The kinds of files, and which kind a file is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from translane_batch.errors import BatchError
from translane_batch.records.line_files import LineFiles
from translane_batch.records.line_forms import ColumnForm, ObjectForm, TextForm
from translane_batch.records.record import RecordFiles

KindName = Literal["auto", "text", "tsv", "jsonl", "parquet"]

ENDINGS = {
    ".txt": "text",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
}
"""End of a file's name → name of its kind. All but Parquet may also end in .gz."""


@dataclass(frozen=True)
class Fields:
    """What of a record is translated, and where its translation goes."""

    column: int
    field: str
    output_field: str


def kind_of(path: Path, chosen: KindName) -> str:
    """Return the name of a file's kind; "" if its name does not say."""
    if chosen != "auto":
        return chosen
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
        if suffixes and suffixes[-1] == ".parquet":
            return ""
    return ENDINGS.get(suffixes[-1], "") if suffixes else ""


def files_of(kind: str, fields: Fields) -> RecordFiles:
    """Return what reads and writes the files of a kind.

    Raises:
        BatchError: a package is missing.
    """
    if kind == "parquet":
        try:
            from translane_batch.records.parquet_files import ParquetFiles
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != "pyarrow":
                raise
            raise BatchError("files of Parquet need pyarrow: install translane[batch]") from None
        return ParquetFiles(fields.field, fields.output_field)
    if kind == "tsv":
        return LineFiles(ColumnForm(fields.column))
    if kind == "jsonl":
        return LineFiles(ObjectForm(fields.field, fields.output_field))
    return LineFiles(TextForm())
