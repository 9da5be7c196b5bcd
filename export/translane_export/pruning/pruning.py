"""What an export leaves out of a checkpoint, as its settings say."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.core.tokenizer_files import TokenizerFiles
from translane_export.pruning.vocabulary import SmallerVocabulary, keep_languages, language_ids, shrink_vocabulary
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens, SentencePieceTokenizerEntry
from translane_server.core.files import MOST_BYTES, check_regular, open_regular, parse_json

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

    def summary(self, checkpoint: Checkpoint) -> str:
        """A line for people about the vocabulary: what it was in `checkpoint`, and what it is."""
        if self.vocabulary is None:
            return ""
        config = checkpoint.config
        smaller, before = self.apply(checkpoint), _parameters(checkpoint)
        saved = before - _parameters(smaller)
        return (
            f"vocabulary: {config.source_vocab_size:,} source pieces become {smaller.config.source_vocab_size:,},"
            f" {config.target_vocab_size:,} target pieces {smaller.config.target_vocab_size:,};"
            f" {saved:,} of {before:,} parameters fewer, {4 * saved / 1e6:,.1f} MB in float32"
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
    return languages.model_copy(update={"templates": changed})


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
