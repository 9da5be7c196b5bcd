"""Tokenizers of projects that split texts with SentencePiece and number the pieces in a vocabulary of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from translane_export.errors import ExportError
from translane_export.file_readers import load_sentencepiece
from translane_export.tokenizer_files import TokenizerFiles
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.core.files import read_regular

_SOURCE, _TARGET = "source.spm", "target.spm"
_SOURCE_IDS, _TARGET_IDS = "source.pieces.json", "target.pieces.json"
_SUFFIXES = (".model", ".spm")
_MERGES = ("bpecodes", "codes", "code", "bpe.codes", "merges.txt")  # of subword-nmt, fastBPE and GPT-2
_FEWEST_KNOWN = 0.5  # share of a vocabulary that is pieces; those of another model have far fewer in common


def find_sentencepiece(folder: Path, source_words: set[str], target_words: set[str]) -> tuple[Path, Path]:
    """Find the models that split source and target texts: files that end in .model or .spm.

    One model serves both sides. Of two, each side's has one of the side's words in its name, between dots, dashes or
    underscores.

    Raises:
        ExportError: there is none, or it is not clear which is whose.
    """
    models = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    if not models:
        merges = sorted(path.name for path in folder.iterdir() if path.name in _MERGES)
        raise ExportError(
            f"{folder / merges[0]}: subword-nmt, fastBPE and byte-level merges are not supported, only SentencePiece is"
            if merges
            else f"checkpoint {folder}: it has no SentencePiece model, a file that ends in .model or .spm"
        )
    if len(models) == 1:
        return models[0], models[0]
    sides = []
    for side, words in (("source", source_words), ("target", target_words)):
        found = [path for path in models if words & set(re.split(r"[._-]", path.name))]
        if len(found) != 1:
            names = ", ".join(path.name for path in models)
            raise ExportError(
                f"checkpoint {folder}: of {names} it is not clear which is the {side} side's SentencePiece model;"
                f" one must have {' or '.join(sorted(words))} in its name"
            )
        sides.append(found[0])
    return sides[0], sides[1]


def numbered_pieces(
    source: Path, target: Path, source_ids: Mapping[str, int], target_ids: Mapping[str, int], *, source_eos: bool
) -> TokenizerFiles:
    """The tokenizer of the SentencePiece models `source` and `target`, with pieces numbered as the ids say.

    Raises:
        ExportError: a file is no SentencePiece model, or not the one that the vocabulary is of.
    """
    for path, ids in ((source, source_ids), (target, target_ids)):
        _check_fit(path, ids)
    files: dict[str, Path | bytes] = {_SOURCE: source, _SOURCE_IDS: _dump(source_ids)}
    target_name, target_ids_name = _SOURCE, _SOURCE_IDS
    if target != source and read_regular(target) != read_regular(source):
        files[target_name := _TARGET] = target
    if dict(target_ids) != dict(source_ids):
        files[target_ids_name := _TARGET_IDS] = _dump(target_ids)
    entry = SentencePieceTokenizerEntry(
        source=_SOURCE,
        target=target_name,
        source_ids=_SOURCE_IDS,
        target_ids=target_ids_name,
        source_eos=source_eos,
    )
    return TokenizerFiles(entry, files)


def _check_fit(path: Path, ids: Mapping[str, int]) -> None:
    processor = load_sentencepiece(path)
    pieces = {processor.id_to_piece(number) for number in range(processor.get_piece_size())}
    if len(pieces & ids.keys()) < _FEWEST_KNOWN * min(len(pieces), len(ids)):
        raise ExportError(
            f"{path}: only {len(pieces & ids.keys())} of its {len(pieces)} pieces are in the model's vocabulary, so"
            " that is of another tokenizer"
        )


def _dump(ids: Mapping[str, int]) -> bytes:
    return json.dumps(dict(ids), ensure_ascii=False).encode()
