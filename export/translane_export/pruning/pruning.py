"""What an export leaves out of a checkpoint, as its settings say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from msgspec.structs import replace
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.pruning.tokenizer_models import JsonModel, SentencePieceModel
from translane_server.bundle.manifest import (
    JsonTokenizerEntry,
    Languages,
    LanguageTemplates,
    LanguageTokens,
    SentencePieceTokenizerEntry,
)
from translane_server.core.files import MOST_BYTES, check_regular, open_regular, parse_json
from translane_server.core.terminal import listed, shown
from translane_server.text.language_tags import lookup

_SOURCE = ("encoder.embedding.tokens.weight",)
_TARGET = ("decoder.embedding.tokens.weight", "output_projection.weight", "output_projection.bias")


@dataclasses.dataclass(frozen=True)
class Pruning:
    """What stays of a checkpoint: languages, as the whole model is told them, and ids; None if all do."""

    languages: Languages
    vocabulary: SmallerVocabulary | None = None

    def apply(self, checkpoint: Checkpoint) -> Checkpoint:
        """Return what stays of `checkpoint`, the one that the pruning is of."""
        if self.vocabulary is None:
            gone = language_ids(checkpoint.languages.templates) - language_ids(self.languages.templates)
            tokenizer = _without(checkpoint.tokenizer, gone) if gone else checkpoint.tokenizer
            return dataclasses.replace(checkpoint, languages=self.languages, tokenizer=tokenizer)
        return _with_vocabulary(checkpoint, self.languages, self.vocabulary)


def summary(whole: Checkpoint, pruned: Checkpoint) -> str:
    """A line for people about what became of a checkpoint's vocabulary."""
    before, after = whole.config, pruned.config
    parameters = _parameters(whole)
    saved = parameters - _parameters(pruned)
    return (
        f"vocabulary: {before.source_vocab_size:,} source pieces become {after.source_vocab_size:,},"
        f" {before.target_vocab_size:,} target pieces {after.target_vocab_size:,};"
        f" {saved:,} of {parameters:,} parameters fewer, {4 * saved / 1e6:,.1f} MB in float32"
    )


def plan_pruning(settings: ExportSettings, checkpoint: Checkpoint) -> Pruning:
    """Return what stays of `checkpoint`. Raises ExportError where a setting does not fit it."""
    languages = checkpoint.languages
    if settings.languages:
        languages = keep_languages(languages, settings.languages)
    if not settings.vocabulary_from:
        return Pruning(languages)
    if checkpoint.ranges:
        raise ExportError(
            f"--vocabulary-from: {settings.checkpoint} is int8, and what its report says is of its whole vocabulary;"
            " export the checkpoint that it is from"
        )
    return Pruning(languages, shrink_vocabulary(checkpoint, languages, _lines(settings.vocabulary_from)))


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    """The lines of text files, without empty ones."""
    for path in paths:
        lines = 0
        try:
            if check_regular(path).st_size > MOST_BYTES:
                raise ExportError(f"--vocabulary-from {path}: it has more than {MOST_BYTES:,} bytes")
            with open_regular(path) as file:
                for lines, line in enumerate(file, start=1):  # noqa: B007 (the error names it)
                    if text := line.decode().strip():
                        yield text
        except UnicodeDecodeError:
            raise ExportError(f"--vocabulary-from {path}: line {lines} is not UTF-8 text") from None
        except OSError as error:
            raise ExportError(f"--vocabulary-from {path}: it cannot be read: {error.strerror}") from None


def _without(tokenizer: TokenizerFiles, gone: set[int]) -> TokenizerFiles:
    """The tokenizer without the names of the ids `gone`. In a tokenizer.json they are special, and no text has them."""
    if not isinstance(tokenizer.entry, SentencePieceTokenizerEntry):
        return tokenizer
    files = dict(tokenizer.files)
    for name in filter(None, {tokenizer.entry.source_ids, tokenizer.entry.target_ids}):
        ids = parse_json(tokenizer.read(name))
        kept = {piece: id_ for piece, id_ in ids.items() if id_ not in gone}
        files[name] = json.dumps(kept, ensure_ascii=False).encode()
    return dataclasses.replace(tokenizer, files=files)


def _with_vocabulary(checkpoint: Checkpoint, languages: Languages, vocabulary: SmallerVocabulary) -> Checkpoint:
    config = checkpoint.config
    source, target = ({old: new for new, old in enumerate(side)} for side in (vocabulary.source, vocabulary.target))
    smaller = config.changed(
        source_vocab_size=len(source),
        target_vocab_size=len(target),
        pad_id=source[config.pad_id],
        unk_id=target[config.unk_id],
        bos_id=target[config.bos_id],
        eos_id=target[config.eos_id],
        decoder_start_id=None if config.decoder_start_id is None else target[config.decoder_start_id],
        suppressed_ids=tuple(sorted(target[id_] for id_ in config.suppressed_ids if id_ in target)),
    )
    sizes = {"source_vocab_size": config.source_vocab_size, "target_vocab_size": config.target_vocab_size}
    return dataclasses.replace(
        checkpoint,
        config=smaller,
        state_dict=gathered(checkpoint.state_dict, vocabulary.source, vocabulary.target),
        tokenizer=vocabulary.tokenizer,
        languages=_renumbered(languages, source, target),
        metadata=_metadata(checkpoint.metadata) | {"pruned_from": sizes},
        shortlist=None,
    )


def gathered(state: dict[str, Tensor], source: tuple[int, ...], target: tuple[int, ...]) -> dict[str, Tensor]:
    """Return the weights, with these rows of the source's and of the target's tables. Tied tables stay one."""
    made: dict[tuple[int, tuple[int, ...]], Tensor] = {}
    found = dict(state)
    for names, order in ((_SOURCE, source), (_TARGET, target)):
        rows = torch.tensor(order)
        for name in names:
            if name in state:
                key = (state[name].data_ptr(), order)
                if key not in made:
                    made[key] = state[name][rows]
                found[name] = made[key]
    return found


def _renumbered(languages: Languages, source: dict[int, int], target: dict[int, int]) -> Languages:
    def tokens(old: LanguageTokens) -> LanguageTokens:
        return LanguageTokens(
            source_prefix=tuple(source[id_] for id_ in old.source_prefix),
            source_suffix=tuple(source[id_] for id_ in old.source_suffix),
            forced=tuple(target[id_] for id_ in old.forced),
        )

    templates = languages.templates
    changed = LanguageTemplates(
        source={tag: tokens(each) for tag, each in templates.source.items()},
        target={tag: tokens(each) for tag, each in templates.target.items()},
        text_prefix=templates.text_prefix,
        pair_prefixes=templates.pair_prefixes,
    )
    return replace(languages, templates=changed)


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """How the model was trained, without old ids among the settings that it generated with."""
    generation = metadata.get("generation")
    if not isinstance(generation, dict):
        return metadata
    kept = {name: value for name, value in generation.items() if not name.endswith("_token_id")}
    return {**metadata, "generation": kept}


def _parameters(checkpoint: Checkpoint) -> int:
    """How many numbers the weights have; tied tables count once."""
    tying = checkpoint.config.tie_embeddings
    tied = {"none": (), "two-way": _TARGET[1:2], "three-way": (*_SOURCE, *_TARGET[1:2])}[tying]
    return sum(tensor.numel() for name, tensor in checkpoint.state_dict.items() if name not in tied)


_SOURCE_IDS, _TARGET_IDS = "source.pieces.json", "target.pieces.json"


@dataclasses.dataclass(frozen=True)
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
    given: dict[str | None, dict[str, int]] = {  # ids by file
        name: parse_json(files.read(name)) for name in (entry.source_ids, entry.target_ids) if name
    }
    models = {
        name: SentencePieceModel(files.read(name), name, given.get(ids_name))
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
    numbered = [given.get(ids_name, models[name].places) for name, ids_name, _ in sides]
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
    smaller = replace(entry, source_ids=names[0], target_ids=names[1])
    return SmallerVocabulary(orders[0], orders[1], TokenizerFiles(smaller, made))


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
    return {
        id_
        for tokens in (*templates.source.values(), *templates.target.values())
        for id_ in (*tokens.source_prefix, *tokens.source_suffix, *tokens.forced)
    }


def _kept(available: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    if len(available) == 1:
        return tuple(available)
    return tuple(dict.fromkeys(tag for tag in (lookup(each, available) for each in wanted) if tag))
