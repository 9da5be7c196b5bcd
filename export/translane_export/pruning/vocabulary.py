"""Which ids and languages of a model stay, the new numbers of the ids, and the tokenizer of these numbers."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import tokenizers

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.pruning.tokenizer_models import JsonModel, SentencePieceModel
from translane_server.bundle.manifest import (
    JsonTokenizerEntry,
    Languages,
    LanguageTemplates,
    LanguageTokens,
    SentencePieceTokenizerEntry,
)
from translane_server.core.files import parse_json
from translane_server.core.terminal import listed, shown
from translane_server.text.language_tags import lookup

_SOURCE_IDS, _TARGET_IDS = "source.pieces.json", "target.pieces.json"


@dataclass(frozen=True)
class SmallerVocabulary:
    """The ids that stay: old ids of either side in the order of their new numbers [V], which the tokenizer makes."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    tokenizer: TokenizerFiles


def shrink_vocabulary(checkpoint: Checkpoint, languages: Languages, texts: Iterable[str]) -> SmallerVocabulary:
    """Return the vocabularies that `texts` in `languages` need. Every text still has a spelling.

    The ids of other languages go. ``texts`` are sources and targets alike.

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


def keep_languages(languages: Languages, wanted: Sequence[str]) -> Languages:
    """Return the languages that `wanted` names, in its order, with their templates.

    A tag finds a model's language as the tag of a request does: ``de`` finds ``deu_Latn``. A side with one language
    keeps the language.

    Raises:
        ExportError: a tag is not a language of the model, or a side has several languages, and `wanted` names none; or
            the model has one pair of languages, and `wanted` names one of the two.
    """
    source, target = _kept(languages.source, wanted), _kept(languages.target, wanted)
    for tag in wanted:
        if not lookup(tag, languages.source) and not lookup(tag, languages.target):
            known = tuple(dict.fromkeys([*languages.source, *languages.target]))
            raise ExportError(f"--languages: {shown(tag)} is not a language of the model, which has: {listed(known)}")
    for side, found, there in (("from", source, languages.source), ("to", target, languages.target)):
        if not found:
            raise ExportError(f"--languages: the model translates {side} none of them, but {side} {listed(there)}")
    if len(languages.source) == len(languages.target) == 1:
        (one,), (other,) = languages.source, languages.target
        if not all(any(lookup(tag, (each,)) for tag in wanted) for each in (one, other)):
            raise ExportError(f"--languages: the model has one pair of languages, {one} to {other}; leave it out")
    templates = languages.templates
    pairs = {
        one: {other: text for other, text in templates.pair_prefixes.get(one, {}).items() if other in target}
        for one in source
    }
    pairs = {one: others for one, others in pairs.items() if others}
    if templates.pair_prefixes:
        if not pairs:
            possible = [f"{one} to {other}" for one, others in templates.pair_prefixes.items() for other in others]
            raise ExportError(f"--languages: no pair of them is one of the model's, which are {listed(possible)}")
        source = tuple(one for one in source if one in pairs)
        target = tuple(other for other in target if any(other in others for others in pairs.values()))
    return Languages(
        source=source,
        target=target,
        templates=LanguageTemplates(
            source={tag: tokens for tag, tokens in templates.source.items() if tag in source},
            target={tag: tokens for tag, tokens in templates.target.items() if tag in target},
            text_prefix=templates.text_prefix,
            pair_prefixes=pairs,
        ),
    )


def language_ids(templates: LanguageTemplates) -> set[int]:
    """The ids that tell a model its languages."""
    return {id_ for tokens in (*templates.source.values(), *templates.target.values()) for id_ in _ids_of(tokens)}


def _ids_of(tokens: LanguageTokens) -> tuple[int, ...]:
    return (*tokens.source_prefix, *tokens.source_suffix, *tokens.forced)


def _kept(available: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    if len(available) == 1:
        return tuple(available)
    return tuple(dict.fromkeys(tag for tag in (lookup(each, available) for each in wanted) if tag))
