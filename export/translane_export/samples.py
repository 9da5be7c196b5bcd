"""Sentences of the kind a model is for, as source ids: what an export is verified with and looks for alignments in."""

from __future__ import annotations

from pathlib import Path

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_server.language_pairs import LanguagePairs


def sample_sources(checkpoint: Checkpoint, file: Path | None) -> list[list[int]]:
    """Return the source ids of each sample, as the model takes them: of `file`, or else the checkpoint's.

    A model of several languages takes them for its first ones.

    Raises:
        ExportError: the file or the tokenizer cannot be read.
    """
    texts = checkpoint.samples if file is None else _read_lines(file)
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    pair = LanguagePairs(checkpoint.languages, tokenizer).default()
    return [ids for ids in pair.tokenizer.encode(texts) if ids]


def _read_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ExportError(f"--samples {path}: it cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ExportError(f"--samples {path}: it is not UTF-8 text") from None
