"""Which ids of a model's vocabularies stay, their new numbers, and the tokenizer of these numbers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.narrowing.json_models import JsonModel
from translane_export.narrowing.kept_languages import language_ids
from translane_export.narrowing.sentencepiece_models import SentencePieceModel
from translane_export.tokenizer_files import TokenizerFiles
from translane_server.bundle.manifest import JsonTokenizerEntry, Languages, SentencePieceTokenizerEntry
from translane_server.core.files import parse_json

_SOURCE_IDS, _TARGET_IDS = "source.pieces.json", "target.pieces.json"


@dataclass(frozen=True)
class SmallerVocabulary:
    """The ids that stay.

    Attributes:
        source: old source ids in the order of their new numbers [V].
        target: old target ids in the order of their new numbers [V].
        tokenizer: makes the new numbers.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    tokenizer: TokenizerFiles


def shrink_vocabulary(checkpoint: Checkpoint, languages: Languages, texts: Iterable[str]) -> SmallerVocabulary:
    """Return the vocabularies that `texts` in `languages` need. Every text still has a spelling.

    Args:
        checkpoint: the whole model, with all its languages.
        languages: those that stay; the ids of other languages go.
        texts: sentences of the languages, of sources and of targets alike.

    Raises:
        ExportError: the tokenizer is of a kind whose pieces cannot be left out.
    """
    config, entry = checkpoint.config, checkpoint.tokenizer.entry
    needed = {config.pad_id, config.unk_id, config.bos_id, config.eos_id, config.start_id}
    languages_ids = language_ids(languages.templates)
    dropped = language_ids(checkpoint.languages.templates) - languages_ids - needed
    templates = languages.templates
    prefixes = [templates.text_prefix, *(text for by in templates.pair_prefixes.values() for text in by.values())]
    written = [*prefixes, *texts]
    if len(written) == len(prefixes):
        raise ExportError("--vocabulary-from: the files have no text")
    if isinstance(entry, SentencePieceTokenizerEntry):
        return _sentencepiece(checkpoint, entry, written, needed, languages_ids, dropped)
    return _json(checkpoint, entry, written, needed | languages_ids, dropped)


def _sentencepiece(
    checkpoint: Checkpoint,
    entry: SentencePieceTokenizerEntry,
    texts: Sequence[str],
    needed: set[int],
    languages: set[int],
    dropped: set[int],
) -> SmallerVocabulary:
    files, config = checkpoint.tokenizer, checkpoint.config
    models = {
        name: SentencePieceModel(files.read(name), name, _known(files, ids_name))
        for name, ids_name in {entry.source: entry.source_ids, entry.target: entry.target_ids}.items()
    }
    for model in models.values():
        model.use(texts)
    pieces = {name: model.kept() for name, model in models.items()}
    known = set().union(*(model.names for model in models.values()))
    sides = (
        (entry.source, entry.source_ids, config.source_vocab_size),
        (entry.target, entry.target_ids, config.target_vocab_size),
    )
    numbered = [_ids(files, ids_name, models[name]) for name, ids_name, _ in sides]
    stay = [
        # a name that no model has is a special token, or a language
        {id_ for piece, id_ in ids.items() if id_ < size and (piece in pieces[name] or piece not in known)}
        for (name, _, size), ids in zip(sides, numbered, strict=True)
    ]
    if config.tie_embeddings == "three-way" or numbered[0] == numbered[1]:
        stay = [stay[0] | stay[1]] * 2
    first = sorted(needed)
    orders = [
        tuple(id_ for id_ in [*first, *sorted((side | languages) - needed - dropped)] if id_ < size)
        for side, (_, _, size) in zip(stay, sides, strict=True)
    ]
    made: dict[str, bytes] = {name: model.smaller(pieces[name]) for name, model in models.items()}
    names = (entry.source_ids or _SOURCE_IDS, entry.target_ids or _TARGET_IDS)
    if numbered[0] == numbered[1] and orders[0] == orders[1]:
        names = (names[0], names[0])
    for name, ids, order in zip(names, numbered, orders, strict=True):
        made[name] = _dump(ids, order)
    smaller = entry.model_copy(update={"source_ids": names[0], "target_ids": names[1]})
    return SmallerVocabulary(orders[0], orders[1], TokenizerFiles(smaller, made))


def _ids(files: TokenizerFiles, ids_name: str | None, model: SentencePieceModel) -> dict[str, int]:
    """The ids of the pieces; without a file of ids, those of the model's places."""
    return dict(parse_json(files.read(ids_name))) if ids_name else model.places


def _known(files: TokenizerFiles, ids_name: str | None) -> Collection[str] | None:
    return parse_json(files.read(ids_name)).keys() if ids_name else None


def _dump(ids: Mapping[str, int], order: Sequence[int]) -> bytes:
    numbers = {old: new for new, old in enumerate(order)}
    kept = {piece: numbers[id_] for piece, id_ in ids.items() if id_ in numbers}
    return json.dumps(kept, ensure_ascii=False).encode()


def _json(
    checkpoint: Checkpoint, entry: JsonTokenizerEntry, texts: Sequence[str], needed: set[int], dropped: set[int]
) -> SmallerVocabulary:
    if entry.target:
        raise ExportError("--vocabulary-from: models with a tokenizer.json for each side are not supported")
    model = JsonModel(checkpoint.tokenizer.read(entry.file), entry.file)
    model.use(texts)
    sizes = (checkpoint.config.source_vocab_size, checkpoint.config.target_vocab_size)
    order = tuple(sorted(id_ for id_ in (model.kept() | needed) - dropped if id_ < min(sizes)))
    numbers = {old: new for new, old in enumerate(order)}
    content = model.smaller(numbers)
    before, after = (_numbers(each) for each in (checkpoint.tokenizer.read(entry.file), content))
    if after != {piece: numbers[id_] for piece, id_ in before.items() if id_ in numbers}:
        raise ExportError(f"--vocabulary-from: the pieces of {entry.file} cannot be numbered anew")
    return SmallerVocabulary(order, order, TokenizerFiles(entry, {entry.file: content}))


def _numbers(content: bytes) -> dict[str, int]:
    ids: dict[str, int] = tokenizers.Tokenizer.from_buffer(content).get_vocab(with_added_tokens=True)
    return ids
