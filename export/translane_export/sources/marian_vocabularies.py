"""The vocabularies in a folder of Marian's, and the tokenizer that they make."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from translane_export.errors import ExportError
from translane_export.file_readers import is_there, load_sentencepiece, read_json, read_text
from translane_export.sources.flat_yaml import read_ids, read_settings
from translane_export.sources.numbered_pieces import find_sentencepiece, numbered_pieces
from translane_export.tokenizer_files import TokenizerFiles, sentencepiece_files
from translane_server.bundle.manifest import MOST_PIECES, Languages, LanguageTemplates, LanguageTokens
from translane_server.text.language_tags import UNDETERMINED

_DECODER = "decoder.yml"
_EOS, _UNK = "</s>", "<unk>"
_WORDS = {"source": {"source", "src", "srcvocab"}, "target": {"target", "tgt", "trg", "trgvocab"}}
_CODE = re.compile(r">>(.+)<<")


@dataclass(frozen=True, kw_only=True)
class MarianVocabularies:
    """What the vocabularies of a folder say.

    Attributes:
        tokenizer: makes the vocabularies' ids.
        languages: those that the source vocabulary has tokens for, or one that is not known.
        source_size: one more than the largest source id.
        target_size: one more than the largest target id.
        eos: the id that ends sentences.
        unk: the id of what has no piece.
    """

    tokenizer: TokenizerFiles
    languages: Languages
    source_size: int
    target_size: int
    eos: int
    unk: int


def read_decoder_settings(folder: Path) -> dict[str, Any]:
    """Return what decoder.yml says; nothing where there is none. Raises ExportError."""
    path = folder / _DECODER
    if not is_there(path):
        return {}
    try:
        return read_settings(read_text(path))
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None


def find_vocabularies(folder: Path, decoder: Mapping[str, Any]) -> MarianVocabularies:
    """Return the vocabularies that decoder.yml names, or else those that the folder has.

    Raises:
        ExportError: there are none, it is not clear which is whose, or a file is wrong.
    """
    source, target = _files(folder, decoder)
    if source.suffix == ".spm":
        return _of_sentencepiece(source, target)
    ids = [_read_ids(path) for path in (source, target)]
    for name in (_EOS, _UNK):
        for path, pieces in zip((source, target), ids, strict=True):
            if name not in pieces:
                raise ExportError(f"{path}: it has no {name}")
        if ids[0][name] != ids[1][name]:
            raise ExportError(f"{target}: {name} is not the same id as in {source.name}, which is not supported")
    models = find_sentencepiece(folder, _WORDS["source"], _WORDS["target"])
    codes = {match[1]: id_ for piece, id_ in ids[0].items() if (match := _CODE.fullmatch(piece))}
    return MarianVocabularies(
        tokenizer=numbered_pieces(*models, *ids, source_eos=True),
        languages=_languages(codes),
        source_size=1 + max(ids[0].values()),
        target_size=1 + max(ids[1].values()),
        eos=ids[0][_EOS],
        unk=ids[0][_UNK],
    )


def _of_sentencepiece(source: Path, target: Path) -> MarianVocabularies:
    one, other = (load_sentencepiece(path) for path in (source, target))
    for kind in ("eos_id", "unk_id"):
        ids = [getattr(model, kind)() for model in (one, other)]
        if ids[0] != ids[1] or ids[0] < 0:
            raise ExportError(f"{target}: its {kind} is {ids[1]}, and that of {source.name} is {ids[0]}")
    names = {number: one.id_to_piece(number) for number in range(len(one))}
    codes = {match[1]: id_ for id_, piece in names.items() if (match := _CODE.fullmatch(piece))}
    return MarianVocabularies(
        tokenizer=sentencepiece_files(source, target),
        languages=_languages(codes),
        source_size=len(one),
        target_size=len(other),
        eos=one.eos_id(),
        unk=one.unk_id(),
    )


def _languages(codes: Mapping[str, int]) -> Languages:
    """The target's token stands before the source."""
    return Languages(
        source=(UNDETERMINED,),
        target=tuple(codes) or (UNDETERMINED,),
        templates=LanguageTemplates(target={code: LanguageTokens(source_prefix=(id_,)) for code, id_ in codes.items()}),
    )


def _files(folder: Path, decoder: Mapping[str, Any]) -> tuple[Path, Path]:
    """The vocabularies of both sides."""
    named = decoder.get("vocabs")
    if isinstance(named, list) and len(named) == 2:
        source, target = (folder / Path(str(name)).name for name in named)
    else:
        found = sorted(path for path in folder.iterdir() if re.search(r"vocab.*\.(ya?ml|json|spm)$", path.name))
        if not found:
            raise ExportError(f"checkpoint {folder}: it has no vocabulary, such as vocab.yml or vocab.spm")
        source, target = (_side(folder, found, side) for side in ("source", "target"))
    for path in (source, target):
        if not path.is_file():
            raise ExportError(f"{path}: the file is missing, a vocabulary")
        if path.suffix not in (".yml", ".yaml", ".json", ".spm") or path.suffix != source.suffix:
            raise ExportError(f"{path}: vocabularies are .yml, .json or .spm files, both of one kind")
    return source, target


def _side(folder: Path, found: list[Path], side: str) -> Path:
    if len(found) == 1:
        return found[0]
    mine = [path for path in found if _WORDS[side] & set(re.split(r"[._-]", path.name))]
    if len(mine) != 1:
        names = ", ".join(path.name for path in found)
        raise ExportError(
            f"checkpoint {folder}: of {names} it is not clear which is the {side} side's vocabulary; decoder.yml may"
            " say so under vocabs"
        )
    return mine[0]


def _read_ids(path: Path) -> dict[str, int]:
    try:
        ids: dict[str, Any] = read_json(path) if path.suffix == ".json" else read_ids(read_text(path))
    except ValueError as error:
        raise ExportError(f"{path}: {error}") from None
    if not ids or not all(type(id_) is int and 0 <= id_ < MOST_PIECES for id_ in ids.values()):
        raise ExportError(f"{path}: it is no vocabulary, which gives pieces their ids")
    return ids
