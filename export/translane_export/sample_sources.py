"""Sentences of the kind a model is for, as source ids: what an export is verified with and looks for alignments in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.file_readers import read_text
from translane_server.translation.languages import LanguagePairs


def sample_sources(checkpoint: Checkpoint, file: Path | None) -> list[list[int]]:
    """Return the source ids of each sample, as the model takes them: of `file`, or else the checkpoint's.

    A model of several languages takes them for its first ones.

    Raises:
        ExportError: the file or the tokenizer cannot be read.
    """
    texts: Sequence[str] = checkpoint.samples
    if file is not None:
        try:
            texts = read_text(file).splitlines()
        except ExportError as error:
            raise ExportError(f"--samples {error}") from None
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    pair = LanguagePairs(checkpoint.languages, tokenizer).default()
    return [ids for ids in pair.encode(texts) if ids]
