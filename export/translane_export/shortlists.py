"""`translane shortlist`: parallel text to a file of rules, and how well the rules cover the text; and such files.

They are CTranslate2's vmap (https://opennmt.net/CTranslate2/decoding.html). A line is a source n-gram, a tab, and the
target tokens of the n-gram. Tokens are separated by single spaces. The tokens after an empty n-gram are always allowed.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from translane_export.core.checkpoint import Checkpoint, find_pair
from translane_export.core.errors import ExportError
from translane_export.core.settings import ShortlistSettings
from translane_export.sources.readers import find_reader
from translane_export.train.data import SentencePair, read_pairs
from translane_server.bundle.shortlist import Shortlist, longest_ngram
from translane_server.core.arrays import Int32Array, IntArray
from translane_server.core.files import open_regular, replaced_whole
from translane_server.text.tokenizer import Tokenizer

_LONGEST = 256  # tokens of a side: pairs of tokens grow as the square of it
_ENCODED_AT_ONCE = 10_000  # sentence pairs
_COUNTED = 10_000  # sentence pairs whose lists are compared with their translations

Log = Callable[[str], None]


class Coverage(NamedTuple):
    """The share of translations' tokens that are ``found`` in the list of their sentence, and a list's mean size."""

    found: float
    tokens: float


def build_shortlist(settings: ShortlistSettings, log: Log = lambda _line: None) -> str:
    """Write the rules that `settings` ask for; return what to say about them.

    Raises:
        ExportError: the checkpoint or the text cannot be read, or the file is in the way or cannot be written.
        SettingsError: the model has no such pair of languages.
    """
    if os.path.lexists(settings.output) and not settings.force:
        raise ExportError(f"{settings.output}: it is there already; --force replaces it")
    checkpoint = find_reader(settings.checkpoint).read(settings.checkpoint)
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    pairs = _encode(settings, checkpoint, tokenizer, read_pairs(settings.text, "--text", settings.max_pairs))
    log(f"aligning {len(pairs):,} sentence pairs")
    sizes = checkpoint.config.source_vocab_size, checkpoint.config.target_vocab_size
    rules = align(pairs, *sizes, settings.iterations).best(settings.max_per_piece, settings.min_probability)
    always = _most_frequent(pairs, sizes[1], settings.always)
    source, target = tokenizer.source_pieces(range(sizes[0])), tokenizer.target_pieces(range(sizes[1]))
    named = [("", always), *((source[one], others) for one, others in sorted(rules.items()))]
    try:
        with replaced_whole(settings.output) as new, new.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{piece}\t{' '.join(target[other] for other in others)}\n" for piece, others in named)
    except OSError as error:  # which names the new file
        raise ExportError(f"{settings.output}: it cannot be written: {error.strerror}") from None
    shortlist = Shortlist.of({(one,): others for one, others in rules.items()}, always, sizes[0])
    covered = coverage(shortlist, pairs[:_COUNTED])
    return (
        f"{settings.output}: {len(rules):,} source pieces, {len(always):,} pieces always;"
        f" a sentence's list has {covered.tokens:,.0f} of {sizes[1]:,} pieces,"
        f" and {100 * covered.found:.2f}% of its translation's pieces are among them"
    )


def coverage(shortlist: Shortlist, pairs: Sequence[TokenPair]) -> Coverage:
    """Compare the lists of sentences with their translations."""
    found = tokens = total = 0
    for pair in pairs:
        own = shortlist.tokens(pair.source)
        found += int(np.isin(pair.target, own).sum())
        total += len(pair.target)
        tokens += len(own)
    return Coverage(found / total, tokens / len(pairs))


def _encode(
    settings: ShortlistSettings, checkpoint: Checkpoint, tokenizer: Tokenizer, text: Sequence[SentencePair]
) -> list[TokenPair]:
    """Return the pairs as ids, as the model takes them, without pairs that are too long or have an empty side."""
    pair = find_pair(checkpoint.languages, tokenizer, settings.source_language, settings.target_language)
    pairs: list[TokenPair] = []
    for start in range(0, len(text), _ENCODED_AT_ONCE):
        part = text[start : start + _ENCODED_AT_ONCE]
        sources = pair.encode([each.source for each in part])
        targets = pair.tokenizer.encode_target([each.target for each in part])
        pairs += [
            TokenPair(array("i", source), array("i", target))  # a list takes nine times the memory
            for source, target in zip(sources, targets, strict=True)
            if 0 < len(source) <= _LONGEST and 0 < len(target) <= _LONGEST
        ]
    if not pairs:
        raise ExportError(f"--text {settings.text}: no pair has tokens on both sides, and at most {_LONGEST} of them")
    return pairs


def _most_frequent(pairs: Sequence[TokenPair], target_size: int, count: int) -> list[int]:
    counts = np.bincount(np.concatenate([np.array(pair.target) for pair in pairs]), minlength=target_size)
    best = np.argsort(-counts, kind="stable")[:count]
    return [id_ for id_ in best.tolist() if counts[id_]]


Floats = npt.NDArray[np.float64]

_CELLS_OF_A_CHUNK = 1 << 22


class TokenPair(NamedTuple):
    """The ids of a sentence and of its translation."""

    source: Sequence[int]
    target: Sequence[int]


@dataclass(frozen=True)
class Translations:
    """t(target | source) of each pair of tokens that occurs, [P], ordered by source; `empty` is the empty token."""

    source: IntArray
    target: IntArray
    probability: Floats
    empty: int

    def best(self, count: int, least: float) -> dict[int, list[int]]:
        """Return the `count` most probable targets of each source token, of at least the probability `least`."""
        order = np.lexsort((self.target, -self.probability, self.source))
        source, target = self.source[order], self.target[order]
        rank = np.arange(len(source)) - np.searchsorted(source, source)
        kept = (rank < count) & (self.probability[order] >= least) & (source != self.empty)
        found: dict[int, list[int]] = {}
        for one, other in zip(source[kept].tolist(), target[kept].tolist(), strict=True):
            found.setdefault(one, []).append(other)
        return found


def align(pairs: Sequence[TokenPair], source_size: int, target_size: int, iterations: int) -> Translations:
    """Find the probabilities by expectation maximization: IBM model 1 (Brown et al. 1993).

    Every target token comes from one of the source tokens of its sentence, or from none: the empty token, of its own
    id. https://aclanthology.org/J93-2003
    """
    parts = _parts(pairs)
    keys: IntArray = np.empty(0, np.int64)
    for part in parts:
        keys = np.union1d(keys, _Chunk.of(part, source_size, target_size).keys)
    source, target = np.divmod(keys, target_size)
    probability = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for part in parts:  # made anew each time, because all chunks together may be larger than the memory
            chunk = _Chunk.of(part, source_size, target_size)
            place = np.searchsorted(keys, chunk.keys)
            given = probability[place]
            totals = np.bincount(chunk.words, given)
            counts += np.bincount(place, given / totals[chunk.words], len(keys))
        probability = counts / np.bincount(source, counts)[source]
    return Translations(source, target, probability, source_size)


@dataclass(frozen=True)
class _Chunk:
    """Every pair of tokens of some sentences: its key, and the number of the target token in the chunk, both [C]."""

    keys: IntArray
    words: Int32Array

    @classmethod
    def of(cls, pairs: Sequence[TokenPair], source_size: int, target_size: int) -> _Chunk:
        keys: list[IntArray] = []
        words: list[Int32Array] = []
        first = 0
        for pair in pairs:
            source, target = np.array([*pair.source, source_size]), np.array(pair.target)
            keys.append((source[:, None] * target_size + target).ravel())
            words.append(np.tile(np.arange(first, first + len(target), dtype=np.int32), len(source)))
            first += len(target)
        return cls(np.concatenate(keys), np.concatenate(words))


def _parts(pairs: Sequence[TokenPair]) -> list[Sequence[TokenPair]]:
    """Divide the text into parts of some millions of pairs of tokens."""
    parts, start, cells = [], 0, 0
    for number, pair in enumerate(pairs):
        cells += (len(pair.source) + 1) * len(pair.target)
        if cells >= _CELLS_OF_A_CHUNK:
            parts.append(pairs[start : number + 1])
            start, cells = number + 1, 0
    return [*parts, pairs[start:]] if start < len(pairs) else parts


_LONGEST_LINE = 1 << 20  # bytes
_MOST_TOKENS = 100_000_000  # of all lines

Ids = Mapping[str, int]


class ReadShortlist(NamedTuple):
    """A shortlist, and how many rules of its file name tokens that the model does not know."""

    shortlist: Shortlist
    left_out: int


def read_vmap(path: Path, source: Ids, target: Ids, source_size: int) -> ReadShortlist:
    """Return the shortlist of a file, for a model whose tokens have these ids.

    A rule for a source token that the model does not know never applies, and is left out. An unknown target token is
    left out of its rule.

    Raises:
        ExportError: the file cannot be read, a line has no tab or is too long, or no rule fits the model.
    """
    rules: dict[tuple[int, ...], list[int]] = {}
    always: list[int] = []
    left_out = tokens = 0
    longest = longest_ngram(source_size)
    for number, line in enumerate(_lines(path), start=1):
        ngram, tab, targets = line.partition("\t")
        if not tab:
            raise ExportError(f"--shortlist {path}:{number}: the line has no tab between an n-gram and its tokens")
        names = targets.split(" ") if targets else []
        ids = [target[name] for name in names if name in target]
        tokens += len(names)
        if tokens > _MOST_TOKENS:
            raise ExportError(f"--shortlist {path}:{number}: there are more than {_MOST_TOKENS:,} target tokens")
        words = ngram.split(" ") if ngram else []
        if len(words) > longest:
            raise ExportError(
                f"--shortlist {path}:{number}: the n-gram has {len(words)} tokens, and at most {longest} are possible"
            )
        left_out += len(ids) < len(names) or not all(word in source for word in words)
        if not words:
            always += ids
        elif ids and all(word in source for word in words):
            rules.setdefault(tuple(source[word] for word in words), []).extend(ids)
    if not rules:
        raise ExportError(f"--shortlist {path}: no rule has a source token of this model; is it of another vocabulary?")
    if not always:
        raise ExportError(
            f"--shortlist {path}: no line has tokens that are always allowed: an empty n-gram, a tab, tokens"
        )
    return ReadShortlist(Shortlist.of(rules, always, source_size), left_out)


def _lines(path: Path) -> Iterator[str]:
    try:
        with open_regular(path) as file:
            number = 0
            while line := file.readline(_LONGEST_LINE + 1):
                number += 1
                if len(line) > _LONGEST_LINE:
                    raise ExportError(f"--shortlist {path}:{number}: the line has more than {_LONGEST_LINE:,} bytes")
                yield line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ExportError(f"--shortlist {path}: it is not UTF-8 text") from None
    except OSError as error:
        raise ExportError(f"--shortlist {path}: it cannot be read: {error.strerror}") from None
