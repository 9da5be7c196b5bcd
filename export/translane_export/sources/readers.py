"""Readers of checkpoints, one module per format; each recognises its own folders.

Reading a format means two things: its configuration as a `TransformerConfig`, and its weights under the names
`Transformer` gives them. A further architecture of Hugging Face's is one more `Architecture`, and one more name in
`ARCHITECTURES`; a further format is one more reader.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from translane_export.core.checkpoint import FORMAT, Checkpoint, load_checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import read_json
from translane_export.sources.architectures import BART, M2M100, MARIAN, MBART, MT5, T5
from translane_export.sources.bundle import BundleReader
from translane_export.sources.fairseq import FairseqReader
from translane_export.sources.huggingface import CONFIG, HuggingFaceReader, model_type
from translane_export.sources.marian import MarianReader
from translane_export.sources.opennmt import OpenNmtReader
from translane_server.bundle.bundle import MANIFEST
from translane_server.core.errors import is_about_memory
from translane_server.core.terminal import printable


class Reader(Protocol):
    """Reads one format of checkpoints."""

    @property
    def format(self) -> str:
        """What the format is called."""

    @property
    def family(self) -> str:
        """What the bundle's manifest calls the architecture."""

    def recognises(self, folder: Path) -> bool:
        """Whether `folder` is of this format, judged by the files it has; it may still be broken."""

    def read(self, folder: Path) -> Checkpoint:
        """Read `folder`. Raises ExportError with one sentence for whatever is wrong."""


class TranslaneReader:
    """Reads what `translane train` writes; see `translane_export.core.checkpoint`."""

    format = "Translane checkpoint"
    family = "transformer"

    def recognises(self, folder: Path) -> bool:
        """Whether config.json names the format."""
        try:
            return read_json(folder / "config.json").get("format") == FORMAT
        except ExportError:
            return False

    def read(self, folder: Path) -> Checkpoint:
        """Read the folder."""
        return load_checkpoint(folder)


ARCHITECTURES = (MARIAN, M2M100, MBART, BART, T5, MT5)
READERS: tuple[Reader, ...] = (
    TranslaneReader(),
    BundleReader(),
    *(HuggingFaceReader(architecture) for architecture in ARCHITECTURES),
    FairseqReader(),
    OpenNmtReader(),
    MarianReader(),
)


def read_checkpoint(reader: Reader, folder: Path) -> Checkpoint:
    """Read `folder`, as `Reader.read` does, where anybody may have written its files.

    Raises:
        ExportError: for whatever is wrong, as one sentence. A file may be wrong in ways that no reader foresees: a
            pickle holds any plain values, and a graph any nodes.
    """
    try:
        return reader.read(folder)
    except (ExportError, OSError, MemoryError):
        raise
    except Exception as error:
        if is_about_memory(error):
            raise MemoryError from error
        problem = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise ExportError(
            f"checkpoint {folder}: its files do not make a {reader.format} ({printable(problem, 200)})"
        ) from error


def find_reader(folder: Path) -> Reader:
    """Return the reader for the checkpoint in `folder`.

    Raises:
        ExportError: there is no such folder, or no reader recognises it.
    """
    if not folder.is_dir():
        what = "it is a file; name the folder that it is in" if folder.is_file() else "there is no such folder"
        raise ExportError(f"checkpoint {folder}: {what}")
    for reader in READERS:
        if reader.recognises(folder):
            return reader
    if found := model_type(folder):
        known = ", ".join(architecture.model_type for architecture in ARCHITECTURES)
        raise ExportError(
            f"checkpoint {folder}: its {CONFIG} says model_type {printable(found, 60)}, and the models that are read"
            f" are encoder-decoders: {known}"
        )
    if bundles := sorted(path.parent.name for path in folder.glob(f"*/{MANIFEST}")):
        raise ExportError(
            f"checkpoint {folder}: it is a folder of model bundles, one for each precision; name one of them:"
            f" {' or '.join(bundles)}"
        )
    config = folder / CONFIG
    if config.is_file() and not {"model_type", "format"} & read_json(config).keys():
        raise ExportError(f"{config}: the key model_type is missing")
    known = ", ".join(reader.format for reader in READERS)
    raise ExportError(f"checkpoint {folder}: no known format (known: {known})")
