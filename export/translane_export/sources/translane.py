"""Reads the checkpoints that `translane train` writes."""

from __future__ import annotations

from pathlib import Path

from translane_export.checkpoint import FORMAT, Checkpoint, load_checkpoint
from translane_export.errors import ExportError
from translane_export.file_readers import read_json


class TranslaneReader:
    """See `translane_export.checkpoint` for the folder."""

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
