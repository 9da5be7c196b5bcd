"""The sentences that are decoded: token ids, ordered by length and in batches, alike for every engine."""

from __future__ import annotations

import gzip
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sentencepiece

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import SentencePieceTokenizerEntry

SEARCHES = {"greedy": 1, "beam 4": 4}  # beams of each
LONGEST = 128  # tokens a translation may take where the model ends it


@dataclass(frozen=True)
class Pair:
    """A source sentence as token ids, its end included, and how many tokens its reference has, its end included."""

    source: tuple[int, ...]
    reference_length: int


@dataclass(frozen=True)
class Load:
    """Sentences to decode."""

    sources: tuple[tuple[int, ...], ...]  # token ids, the longest sentences first
    lengths: tuple[int, ...] | None  # of the translations, the same within a batch [tokens]; None: the model ends them
    max_length: int  # most tokens of a translation
    batch: int  # how many sentences are decoded together
    beam_size: int


def read_fields(path: Path) -> list[list[str]]:
    """The fields of each line of a file, plain or gzip, that tabs separate."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return [line.rstrip("\n").split("\t") for line in lines]


def read_texts(path: Path) -> list[str]:
    """The source texts of a file: the first field of each line."""
    return [fields[0] for fields in read_fields(path)]


def read_pairs(path: Path, bundle: Bundle) -> list[Pair]:
    """The pairs of a file of source, tab, reference in the pieces of the bundle's SentencePiece models."""
    entry = bundle.manifest.tokenizer
    if not isinstance(entry, SentencePieceTokenizerEntry):
        raise ValueError(f"model bundle {bundle.folder}: its tokenizer is not SentencePiece")
    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(bundle.path(name))) for name in (entry.source, entry.target)
    )
    end = bundle.manifest.special_ids.eos
    return [
        Pair((*source.encode(text), end), len(target.encode(reference)) + 1)
        for text, reference, *_ in read_fields(path)
    ]


def random_ids(pairs: Sequence[Pair], ids: range, end: int, seed: int = 0) -> list[Pair]:
    """Pairs of the same lengths whose sources are random `ids`, for a model that has no use for text."""
    pick = random.Random(seed)
    return [Pair((*pick.choices(ids, k=len(pair.source) - 1), end), pair.reference_length) for pair in pairs]


def make_load(
    pairs: Sequence[Pair],
    count: int,
    batch: int,
    beam_size: int,
    *,
    fixed: bool,
    max_length: int = LONGEST,
    seed: int = 0,
) -> Load:
    """A load of `count` of the pairs, drawn at random; all of them, and again from the first on, where they are fewer.

    `fixed`: every translation of a batch takes the median of its references' lengths; else the model ends them, or
    `max_length` does.
    """
    order = random.Random(seed).sample(range(len(pairs)), len(pairs))
    drawn = [pairs[order[number % len(order)]] for number in range(count)]
    drawn.sort(key=lambda pair: (len(pair.source), pair.reference_length), reverse=True)
    lengths = None
    if fixed:
        lengths = tuple(batch_lengths([pair.reference_length for pair in drawn], batch))
    longest = max(lengths) if lengths else max_length
    return Load(tuple(pair.source for pair in drawn), lengths, longest, batch, beam_size)


def batch_lengths(lengths: Sequence[int], batch: int) -> list[int]:
    """Each length replaced by the median of its batch, batches being taken in order."""
    result: list[int] = []
    for first in range(0, len(lengths), batch):
        together = lengths[first : first + batch]
        result += [statistics.median_low(together)] * len(together)
    return result
