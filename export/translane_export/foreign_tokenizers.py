"""Tokenizers and languages of the folders that Hugging Face's models come in, one function for each kind."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from translane_export.tokenizers import TokenizerFiles
from translane_server.bundle import Languages


class ForeignTokenizer(NamedTuple):
    """What a folder has beside weights and sizes."""

    tokenizer: TokenizerFiles
    languages: Languages


def marian(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of MarianMT: source.spm, target.spm, vocab.json and, with separate vocabularies, target_vocab.json.

    Args:
        folder: with the files.
        config: its config.json.

    Raises:
        ExportError: naming the file that is missing or wrong.
    """
    raise NotImplementedError


def m2m100(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of M2M100: sentencepiece.bpe.model and vocab.json. See `marian`."""
    raise NotImplementedError


def nllb(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of NLLB: sentencepiece.bpe.model or tokenizer.json. See `marian`."""
    raise NotImplementedError


def mbart(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of mBART-25. See `marian`."""
    raise NotImplementedError


def mbart50(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of mBART-50. See `marian`."""
    raise NotImplementedError


def t5(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of T5, mT5 and FLAN-T5: spiece.model or tokenizer.json. See `marian`."""
    raise NotImplementedError


def bart(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of BART: tokenizer.json, or vocab.json and merges.txt. See `marian`."""
    raise NotImplementedError
