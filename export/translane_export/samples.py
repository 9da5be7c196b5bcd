"""Sentences of the kind a model is for, as source ids: what an export is verified with and looks for alignments in."""

from __future__ import annotations

from pathlib import Path

import sentencepiece

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError


def sample_sources(checkpoint: Checkpoint, file: Path | None) -> list[list[int]]:
    """Return the source ids of each sample, ended by the end-of-sentence id: of `file`, or else the checkpoint's.

    Raises:
        ExportError: the file or the source tokenizer cannot be read.
    """
    texts = checkpoint.samples if file is None else _read_lines(file)
    processor = sentencepiece.SentencePieceProcessor()
    try:
        entry = checkpoint.tokenizer.entry
        assert entry.kind == "sentencepiece"
        processor.LoadFromSerializedProto(checkpoint.tokenizer.read(entry.source))
    except (OSError, RuntimeError):
        raise ExportError(f"{checkpoint.tokenizer.files[entry.source]} is not a SentencePiece model") from None
    encoded = processor.encode(list(texts), out_type=int, num_threads=1)
    return [[*ids, checkpoint.config.eos_id] for ids in encoded if ids]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ExportError(f"--samples {path}: it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ExportError(f"--samples {path}: it is not UTF-8 text") from None
