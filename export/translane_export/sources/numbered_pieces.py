"""Tokenizers of projects that split texts with SentencePiece and number the pieces in a vocabulary of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import ids_of_pieces, load_sentencepiece
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_server.bundle.manifest import SentencePieceTokenizerEntry
from translane_server.core.files import read_regular

Sides = tuple[set[str], set[str]]
"""Words by which files of the source and of the target are known."""

_SOURCE, _TARGET = "source.spm", "target.spm"
_SOURCE_IDS, _TARGET_IDS = "source.pieces.json", "target.pieces.json"
_SUFFIXES = (".model", ".spm")
_MERGES = ("bpecodes", "codes", "code", "bpe.codes", "merges.txt")  # of subword-nmt, fastBPE and GPT-2
_FEWEST_KNOWN = 0.5  # share of a vocabulary that is pieces; those of another model have far fewer in common


def find_sides(folder: Path, found: list[Path], sides: Sides, what: str) -> tuple[Path, Path]:
    """Return the source side's and the target side's of the files that were found, in `folder`, of one kind.

    A single file serves both sides. Of several, each side's has one of the side's words in its name, between dots,
    dashes or underscores.
    """
    if len(found) == 1:
        return found[0], found[0]
    chosen = []
    for side, words in zip(("source", "target"), sides, strict=True):
        mine = [path for path in found if words & set(re.split(r"[._-]", path.name))]
        if len(mine) != 1:
            raise ExportError(
                f"checkpoint {folder}: of {', '.join(path.name for path in found)} it is not clear which is the {side}"
                f" side's {what}; one must have {' or '.join(sorted(words))} in its name"
            )
        chosen.append(mine[0])
    return chosen[0], chosen[1]


def find_sentencepiece(folder: Path, sides: Sides) -> tuple[Path, Path]:
    """Find the models that split source and target texts: files that end in .model or .spm. See `find_sides`."""
    models = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    if not models:
        merges = sorted(path.name for path in folder.iterdir() if path.name in _MERGES)
        raise ExportError(
            f"{folder / merges[0]}: subword-nmt, fastBPE and byte-level merges are not supported, only SentencePiece is"
            if merges
            else f"checkpoint {folder}: it has no SentencePiece model, a file that ends in .model or .spm"
        )
    return find_sides(folder, models, sides, "SentencePiece model")


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
    pieces = ids_of_pieces(load_sentencepiece(path)).keys()
    if len(pieces & ids.keys()) < _FEWEST_KNOWN * min(len(pieces), len(ids)):
        raise ExportError(
            f"{path}: only {len(pieces & ids.keys())} of its {len(pieces)} pieces are in the model's vocabulary, so"
            " that is of another tokenizer"
        )


def _dump(ids: Mapping[str, int]) -> bytes:
    return json.dumps(dict(ids), ensure_ascii=False).encode()
