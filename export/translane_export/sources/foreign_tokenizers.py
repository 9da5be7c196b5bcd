"""Tokenizers and languages of the folders that Hugging Face's models come in, one function for each kind.

Where a folder has several, the tokenizer is the one that transformers' AutoTokenizer takes. That is tokenizer.json, but
for MarianMT and M2M100, whose tokenizers are SentencePiece's. Where there is SentencePiece's file alone, that is the
tokenizer, numbered as the model's vocabulary is: it is what the model was trained with. Sources get the templates of
transformers' tokenizers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers
from msgspec.structs import replace

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import (
    broken_file,
    ids_of_pieces,
    is_there,
    load_sentencepiece,
    read_json,
    read_json_if_any,
)
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.sources import language_codes
from translane_server.bundle.manifest import (
    MOST_PIECES,
    JsonTokenizerEntry,
    Languages,
    LanguageTemplates,
    LanguageTokens,
    SentencePieceTokenizerEntry,
)
from translane_server.core.files import check_regular, read_regular
from translane_server.core.terminal import printable, shown
from translane_server.text.language_tags import UNDETERMINED, standard_tag
from translane_server.text.vocabularies import is_of_tokenizers

_SOURCE, _TARGET, _IDS, _TARGET_IDS = "source.spm", "target.spm", "pieces.json", "target.pieces.json"
_CONFIG = "tokenizer_config.json"
# SentencePiece's first ids, whose place fairseq's take.
_SENTENCEPIECE_FIRST = ("<unk>", "<s>", "</s>")
_FAIRSEQ_MODELS = ("sentencepiece.bpe.model", "sentencepiece.model")
_T5_MODELS = ("spiece.model",)
MARIAN_CODE = re.compile(r">>(.+)<<")
_MADLAD_CODE = re.compile(r"<2([a-z]{2,3}(?:_\w+)?)>")
_T5_TASK = re.compile(r"translation_([a-z]{2,3})_to_([a-z]{2,3})")


class ForeignTokenizer(NamedTuple):
    """What a folder has beside weights and sizes."""

    tokenizer: TokenizerFiles
    languages: Languages


def marian(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:  # noqa: ARG001 (as its siblings)
    """Of MarianMT: source.spm, target.spm, vocab.json and, with separate vocabularies, target_vocab.json.

    A model of many target languages has tokens such as ``>>fra<<`` for them, which stand before the source.

    Raises:
        ExportError: naming the file that is missing or wrong.
    """
    source, target, vocabulary = (_needed(folder / name) for name in ("source.spm", "target.spm", "vocab.json"))
    ids, settings = _read_ids(vocabulary), read_json_if_any(folder / _CONFIG)
    entry = SentencePieceTokenizerEntry(source=_SOURCE, target=_TARGET, source_ids=_IDS, target_ids=_IDS)
    files: dict[str, Path | bytes] = {_SOURCE: source, _TARGET: target, _IDS: vocabulary}
    if settings.get("separate_vocabs"):
        entry = replace(entry, target_ids=_TARGET_IDS)
        files[_TARGET_IDS] = _needed(folder / "target_vocab.json")
    for model in (source, target):
        load_sentencepiece(model)
    sides = (_marian_language(folder, settings, f"{side}_lang") for side in ("source", "target"))
    return ForeignTokenizer(TokenizerFiles(entry, files), languages_of_pieces(ids, MARIAN_CODE, *sides))


def m2m100(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of M2M100: sentencepiece.bpe.model and vocab.json; languages are numbered after them. See `marian`."""
    if "Nllb" in _class(folder):
        return nllb(folder, config)
    model, vocabulary = _needed(folder / _FAIRSEQ_MODELS[0]), _needed(folder / "vocab.json")
    load_sentencepiece(model)
    pieces = _read_ids(vocabulary)
    wmt21 = read_json_if_any(folder / _CONFIG).get("language_codes") == "wmt21"
    codes = language_codes.WMT21 if wmt21 else language_codes.M2M100
    ids = {code: len(pieces) + place for place, code in enumerate(codes)}
    named = {**pieces, **{f"__{code}__": id_ for code, id_ in ids.items()}}
    return ForeignTokenizer(_numbered(model, named), _many_to_many(ids))


def nllb(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of NLLB: tokenizer.json or sentencepiece.bpe.model. See `marian`."""
    return _fairseq(folder, config, language_codes.NLLB200)


def mbart50(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of mBART-50: as NLLB. See `marian`."""
    return _fairseq(folder, config, language_codes.MBART50)


def mbart(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of mBART-25, which translates to the one language that its decoder starts with. See `marian`.

    The source's language comes after the end of the sentence. mBART-50 has a reader of its own: see `mbart50`.
    """
    if "MBart50" in _class(folder):
        return mbart50(folder, config)
    tokenizer, ids = _fairseq_pieces(folder, config, language_codes.MBART25)
    start = config.get("decoder_start_token_id")
    target = next((code for code, id_ in ids.items() if id_ == start), None)
    if target is None:
        raise ExportError(
            f"{folder / 'config.json'}: decoder_start_token_id is {shown(start)}, and mBART's decoder starts with the"
            f" id of its language, {min(ids.values())} to {max(ids.values())}"
        )
    templates = LanguageTemplates(source={code: LanguageTokens(source_suffix=(id_,)) for code, id_ in ids.items()})
    return ForeignTokenizer(tokenizer, Languages(source=tuple(ids), target=(target,), templates=templates))


def t5(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of T5, mT5, FLAN-T5 and MADLAD-400: tokenizer.json or spiece.model. See `marian`.

    Languages are those of the translations among the configuration's tasks, or, as MADLAD-400 has them, pieces such as
    ``<2fr>``; where there are neither, the text itself says what to do.
    """
    model = _first(folder, _T5_MODELS)
    if model and not is_there(folder / TOKENIZER_JSON):
        entry = SentencePieceTokenizerEntry(source=_SOURCE, target=_SOURCE)
        tokenizer = TokenizerFiles(entry, {_SOURCE: model})
        ids = ids_of_pieces(load_sentencepiece(model))
    else:
        tokenizer = json_tokenizer(folder, _T5_MODELS)
        ids = json_ids(folder / TOKENIZER_JSON)
    languages = languages_of_pieces(ids, _MADLAD_CODE)
    if tasks := _t5_tasks(config):
        targets = tuple(dict.fromkeys(target for by_target in tasks.values() for target in by_target))
        templates = LanguageTemplates(pair_prefixes=tasks)
        languages = Languages(source=tuple(tasks), target=targets, templates=templates)
    return ForeignTokenizer(tokenizer, languages)


def bart(folder: Path, config: Mapping[str, Any]) -> ForeignTokenizer:
    """Of BART: tokenizer.json, or vocab.json and merges.txt. See `marian`."""
    if is_there(folder / TOKENIZER_JSON):
        tokenizer = json_tokenizer(folder)
    else:
        space = bool(read_json_if_any(folder / _CONFIG).get("add_prefix_space"))
        vocabulary, merges = _needed(folder / "vocab.json"), _needed(folder / "merges.txt")
        _read_ids(vocabulary)  # of larger ids the library would count up to each
        content = byte_level(vocabulary, merges, add_prefix_space=space)
        tokenizer = TokenizerFiles(JsonTokenizerEntry(file=TOKENIZER_JSON), {TOKENIZER_JSON: content})
    beginning = LanguageTokens(source_prefix=(config.get("bos_token_id", 0),))
    templates = LanguageTemplates(source={UNDETERMINED: beginning})
    return ForeignTokenizer(tokenizer, Languages(source=(UNDETERMINED,), target=(UNDETERMINED,), templates=templates))


# Languages


def languages_of_pieces(
    ids: Mapping[str, int], code: re.Pattern[str], source: str = UNDETERMINED, target: str = UNDETERMINED
) -> Languages:
    """From ``source`` to the languages that pieces before the source name, or to ``target`` without any."""
    codes = {match[1]: id_ for piece, id_ in ids.items() if (match := code.fullmatch(piece))}
    templates = LanguageTemplates(target=_before_source(codes))
    return Languages(source=(source,), target=tuple(codes) or (target,), templates=templates)


def _before_source(ids: Mapping[str, int]) -> dict[str, LanguageTokens]:
    """Languages whose token stands before the source."""
    return {code: LanguageTokens(source_prefix=(id_,)) for code, id_ in ids.items()}


def _many_to_many(ids: Mapping[str, int]) -> Languages:
    """The source's language stands before the source, the target's is what decoders are forced to generate."""
    codes = tuple(ids)
    templates = LanguageTemplates(
        source=_before_source(ids),
        target={code: LanguageTokens(forced=(id_,)) for code, id_ in ids.items()},
    )
    return Languages(source=codes, target=codes, templates=templates)


def _marian_language(folder: Path, settings: Mapping[str, Any], key: str) -> str:
    """What tokenizer_config.json says, or the folder's name does where it is as OPUS-MT names them."""
    code = settings.get(key)
    if not code:
        name = re.fullmatch(r"opus-mt-(?:tc-\w+-)?([A-Za-z_]+)-([A-Za-z_]+)", folder.resolve().name)
        code = name[1 if key == "source_lang" else 2] if name else UNDETERMINED
    language, *rest = standard_tag(str(code)).split("-")
    return "-".join([language, *(subtag.title() for subtag in rest)])


def _t5_tasks(config: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    tasks: dict[str, dict[str, str]] = {}
    for name, task in (config.get("task_specific_params") or {}).items():
        if (match := _T5_TASK.fullmatch(name)) and isinstance(task, dict) and isinstance(task.get("prefix"), str):
            tasks.setdefault(match[1], {})[match[2]] = task["prefix"]
    return tasks


# Tokenizers


def _fairseq(folder: Path, config: Mapping[str, Any], codes: Sequence[str]) -> ForeignTokenizer:
    tokenizer, ids = _fairseq_pieces(folder, config, codes)
    return ForeignTokenizer(tokenizer, _many_to_many(ids))


def _fairseq_pieces(
    folder: Path, config: Mapping[str, Any], codes: Sequence[str]
) -> tuple[TokenizerFiles, dict[str, int]]:
    """The tokenizer, and the ids of languages: as tokenizer.json says, or else after the pieces."""
    model = _first(folder, _FAIRSEQ_MODELS)
    if model is None or is_there(folder / TOKENIZER_JSON):
        tokenizer, known = json_tokenizer(folder, _FAIRSEQ_MODELS), json_ids(folder / TOKENIZER_JSON)
        ids = {code: known[code] for code in codes if code in known}
        if not ids:
            raise ExportError(f"{folder / TOKENIZER_JSON}: it has none of the model's languages, such as {codes[0]}")
        return tokenizer, ids
    names = [*ids_of_pieces(load_sentencepiece(model))]
    first = len(_SENTENCEPIECE_FIRST)
    if tuple(names[:first]) != _SENTENCEPIECE_FIRST:
        raise ExportError(f"{model}: its first pieces are {names[:first]}, not {list(_SENTENCEPIECE_FIRST)}")
    numbered = {name: id_ for id_, name in enumerate([*FAIRSEQ_FIRST, *names[first:]])}
    ids = {code: len(numbered) + place for place, code in enumerate(codes)}
    size = config.get("vocab_size")
    if isinstance(size, int) and max(*ids.values(), *numbered.values()) >= size:
        raise ExportError(
            f"{model}: with {len(ids)} languages it makes {max(ids.values()) + 1} ids, and the model has {size}"
        )
    return _numbered(model, {**numbered, **ids}), ids


def _numbered(model: Path, ids: Mapping[str, int]) -> TokenizerFiles:
    entry = SentencePieceTokenizerEntry(source=_SOURCE, target=_SOURCE, source_ids=_IDS, target_ids=_IDS)
    return TokenizerFiles(entry, {_SOURCE: model, _IDS: json.dumps(ids, ensure_ascii=False).encode()})


# Files


def _class(folder: Path) -> str:
    """What tokenizer_config.json calls the tokenizer; "" where it does not."""
    return str(read_json_if_any(folder / _CONFIG).get("tokenizer_class") or "")


def _first(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if is_there(folder / name)), None)


def _needed(path: Path) -> Path:
    if not path.is_file():
        raise ExportError(f"{path}: the file is missing")
    return path


def _read_ids(path: Path) -> dict[str, int]:
    content = read_json(path)
    if not content or not all(type(id_) is int and 0 <= id_ < MOST_PIECES for id_ in content.values()):
        raise ExportError(f"{path}: it is not a JSON object of ids by piece")
    return content


TOKENIZER_JSON = "tokenizer.json"
_MOST_OF_A_REASON = 200  # characters; the library may quote half a file
FAIRSEQ_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
"""The pieces that are numbered first in fairseq's vocabularies."""


def json_tokenizer(folder: Path, instead_of: Sequence[str] = ()) -> TokenizerFiles:
    """The tokenizer.json of a folder, for which the files `instead_of` could stand in. Raises ExportError."""
    path = folder / TOKENIZER_JSON
    if not path.is_file():
        raise ExportError(f"checkpoint {folder}: it has no tokenizer: {' or '.join([*instead_of, TOKENIZER_JSON])}")
    return TokenizerFiles(JsonTokenizerEntry(file=TOKENIZER_JSON), {TOKENIZER_JSON: path})


def json_ids(path: Path) -> dict[str, int]:
    """The ids of a tokenizer.json by piece, added tokens among them. Raises ExportError."""
    try:
        made = tokenizers.Tokenizer.from_buffer(read_regular(path))
        ids: dict[str, int] = made.get_vocab(with_added_tokens=True)
    except BaseException as error:
        if not is_of_tokenizers(error):
            raise
        reason = printable(str(error), _MOST_OF_A_REASON)
        raise broken_file(path, TOKENIZER_JSON, f"it is not a tokenizer.json: {reason}") from None
    return ids


def byte_level(vocabulary: Path, merges: Path, *, add_prefix_space: bool) -> bytes:
    """The content of a tokenizer.json for a byte-level BPE in two files. Raises ExportError."""
    try:
        for path in (vocabulary, merges):
            check_regular(path)
        model = tokenizers.models.BPE.from_file(str(vocabulary), str(merges))
    except BaseException as error:
        if not is_of_tokenizers(error):
            raise
        reason = printable(str(error), _MOST_OF_A_REASON)
        raise ExportError(f"{vocabulary} and {merges.name}: they are no vocabulary and merges: {reason}") from None
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    special = [name for name in (*FAIRSEQ_FIRST, "<mask>") if tokenizer.token_to_id(name) is not None]
    tokenizer.add_special_tokens(special)
    return tokenizer.to_str().encode()
