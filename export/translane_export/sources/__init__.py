"""Readers of checkpoints, one module per format; each recognises its own folders.

Reading a format means two things: its configuration as a `TransformerConfig`, and its weights under the names
`Transformer` gives them. A further architecture is one more module here and one more line in `READERS`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.sources.bundle import BundleReader
from translane_export.sources.translane import TranslaneReader


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


READERS: tuple[Reader, ...] = (TranslaneReader(), BundleReader())


def find_reader(folder: Path) -> Reader:
    """Return the reader for the checkpoint in `folder`.

    Raises:
        ExportError: there is no such folder, or no reader recognises it.
    """
    if not folder.is_dir():
        raise ExportError(f"checkpoint {folder}: there is no such folder")
    for reader in READERS:
        if reader.recognises(folder):
            return reader
    known = ", ".join(reader.format for reader in READERS)
    raise ExportError(f"checkpoint {folder}: no known format (known: {known}); translane-train writes checkpoints")
