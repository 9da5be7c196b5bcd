"""Reads the checkpoints that `translane-train` writes."""

from __future__ import annotations

import json
from pathlib import Path

from translane_export.checkpoint import FORMAT, Checkpoint, CheckpointError, load_checkpoint
from translane_export.errors import ExportError


class TranslaneReader:
    """See `translane_export.checkpoint` for the folder."""

    format = "translane-train checkpoint"
    family = "transformer"

    def recognises(self, folder: Path) -> bool:
        """See `Reader.recognises`."""
        try:
            description = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(description, dict) and description.get("format") == FORMAT

    def read(self, folder: Path) -> Checkpoint:
        """See `Reader.read`."""
        try:
            return load_checkpoint(folder)
        except CheckpointError as error:
            raise ExportError(f"checkpoint {error}") from error
