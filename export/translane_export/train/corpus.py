"""What a run trains on: the two texts, their vocabularies, and the ids of each epoch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from translane_export.model import Transformer
from translane_export.train.batches import EncodedPair
from translane_export.train.data import Columns, ParallelText, read_parallel_text
from translane_export.train.errors import DataError
from translane_export.train.settings import TrainSettings
from translane_export.train.stand_ins import Replacements
from translane_export.train.vocabulary import SegmentationSampler, Vocabulary, train_vocabulary
from translane_export.train.word_vectors import load_word_vectors


@dataclass(frozen=True)
class Corpus:
    """Parallel text with vocabularies, of source and target, trained on its training part alone."""

    settings: TrainSettings
    train: ParallelText
    valid: ParallelText
    vocabularies: tuple[Vocabulary, Vocabulary]

    def epoch_pairs(self, epoch: int) -> list[EncodedPair]:
        """Return the ids of every training pair that fits; with subword sampling, drawn anew for each epoch."""
        seed = self.settings.seed
        if self.settings.sampling_alpha:
            sides = [sampler.draw((seed, epoch, side)) for side, sampler in enumerate(self._samplers)]
        else:
            sides = self._best_ids
        if self.settings.stand_ins:
            replaced = self._replacements.draw((seed, epoch))
            sides = [
                _with(ids, vocabulary, {row: pair[side] for row, pair in replaced.items()})
                for side, (ids, vocabulary) in enumerate(zip(sides, self.vocabularies, strict=True))
            ]
        most, positions = self.settings.max_length, self.settings.max_positions
        limit = min(most, positions - 1)
        encoded = [EncodedPair(source, target) for source, target in zip(*sides, strict=True)]
        fitting = [pair for pair in encoded if pair.width <= limit + 1]
        if not fitting:
            flag = f"--max-length {most}" if limit == most else f"--max-positions {positions}"
            raise DataError(f"{self.train.path}: every pair is longer than {flag}")
        return fitting

    def load_word_vectors(self, model: Transformer) -> None:
        """Start the embeddings from the word vectors that the settings name."""
        paths = self.settings.source_word_vectors, self.settings.target_word_vectors
        for path, vocabulary, stack in zip(paths, self.vocabularies, (model.encoder, model.decoder), strict=True):
            if path is not None:
                pieces, deviation = vocabulary.pieces(), model.config.d_model**-0.5
                try:
                    load_word_vectors(path, stack.embedding.tokens, pieces, standard_deviation=deviation)
                except (OSError, ValueError) as error:
                    raise DataError(f"word vectors: {error}") from error

    @cached_property
    def _best_ids(self) -> list[list[list[int]]]:
        return [
            vocabulary.encode(texts) for vocabulary, texts in zip(self.vocabularies, self.train.sides(), strict=True)
        ]

    @cached_property
    def _replacements(self) -> Replacements:
        source, target = self.vocabularies
        pairs = [(source.normalize(pair.source), target.normalize(pair.target)) for pair in self.train.pairs]
        return Replacements(pairs, self.settings.stand_ins)

    @cached_property
    def _samplers(self) -> list[SegmentationSampler]:
        alpha, nbest = self.settings.sampling_alpha, self.settings.sampling_nbest
        sides = zip(self.vocabularies, self.train.sides(), strict=True)
        return [SegmentationSampler(*side, alpha=alpha, nbest=nbest) for side in sides]


def _with(ids: list[list[int]], vocabulary: Vocabulary, texts: dict[int, str]) -> list[list[int]]:
    """Return the ids, with those of other `texts` in some rows."""
    changed = dict(zip(texts, vocabulary.encode(list(texts.values())), strict=True))
    return [changed.get(row, old) for row, old in enumerate(ids)]


def read_texts(settings: TrainSettings, train: Path, valid: Path) -> tuple[ParallelText, ParallelText]:
    """Read the training and the validation text. Raises DataError."""
    columns = Columns(settings.source_column, settings.target_column)
    return (
        read_parallel_text(train, columns, settings.bad_lines),
        read_parallel_text(valid, columns, settings.bad_lines),
    )


def build_corpus(
    settings: TrainSettings,
    train: ParallelText,
    valid: ParallelText,
    output: Path,
    *,
    reuse: bool = False,
    given: Sequence[bytes] = (),
) -> Corpus:
    """Train the vocabularies into `output`, or write those `given`, source and target, or `reuse` what is there.

    Raises:
        DataError: the text cannot carry such vocabularies.
        TrainError: those to reuse cannot be read.
    """
    if given and not reuse:
        for model, name in zip(given, ("source", "target"), strict=True):
            (output / f"{name}.spm").write_bytes(model)
    sources, targets = train.sides()
    if reuse or given:
        names = ("joint", "joint") if settings.joint_vocabulary else ("source", "target")
        source, target = (Vocabulary(output / f"{name}.spm") for name in names)
    elif settings.joint_vocabulary:
        source = target = _train(settings, "source", itertools.chain(sources, targets), output / "joint.spm")
    else:
        source = _train(settings, "source", sources, output / "source.spm")
        target = _train(settings, "target", targets, output / "target.spm")
    return Corpus(settings, train, valid, (source, target))


def _train(
    settings: TrainSettings, side: Literal["source", "target"], sentences: Iterable[str], path: Path
) -> Vocabulary:
    return train_vocabulary(
        sentences,
        path,
        kind=settings.vocabulary,
        size=getattr(settings, f"{side}_vocabulary_size"),
        normalization=getattr(settings, f"{side}_normalization"),
        character_coverage=settings.character_coverage,
        stand_ins=settings.stand_ins > 0,
        seed=settings.seed,
    )
