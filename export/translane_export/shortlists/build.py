"""`translane shortlist`: parallel text to a file of rules, and how well the rules cover the text."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.shortlists.alignments import TokenPair, align
from translane_export.shortlists.settings import ShortlistSettings
from translane_export.shortlists.vmap import vmap_lines
from translane_export.sources.readers import find_reader, read_checkpoint
from translane_export.train.data import Columns, SentencePair, read_parallel_text
from translane_export.train.errors import DataError
from translane_server.bundle.shortlist import Shortlist
from translane_server.core.files import replaced_whole
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.languages import LanguagePairs

_LONGEST = 256  # tokens of a side: pairs of tokens grow as the square of it
_ENCODED_AT_ONCE = 10_000  # sentence pairs
_COUNTED = 10_000  # sentence pairs whose lists are compared with their translations

Log = Callable[[str], None]


class Coverage(NamedTuple):
    """How the lists of sentences suit their translations.

    Attributes:
        found: share of the translations' tokens that are in the list of their sentence.
        tokens: mean number of tokens of a list.
    """

    found: float
    tokens: float


def build_shortlist(settings: ShortlistSettings, log: Log = lambda _line: None) -> str:
    """Write the rules that `settings` ask for; return what to say about them.

    Raises:
        ExportError: the checkpoint or the text cannot be read, or the file is in the way.
    """
    if os.path.lexists(settings.output) and not settings.force:
        raise ExportError(f"{settings.output}: it is there already; --force replaces it")
    checkpoint = read_checkpoint(find_reader(settings.checkpoint), settings.checkpoint)
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    pairs = _encode(settings, checkpoint, tokenizer, _read(settings))
    log(f"aligning {len(pairs):,} sentence pairs")
    sizes = checkpoint.config.source_vocab_size, checkpoint.config.target_vocab_size
    rules = align(pairs, *sizes, settings.iterations).best(settings.max_per_piece, settings.min_probability)
    always = _most_frequent(pairs, sizes[1], settings.always)
    source, target = tokenizer.source_pieces(range(sizes[0])), tokenizer.target_pieces(range(sizes[1]))
    named = [((source[one],), [target[other] for other in others]) for one, others in sorted(rules.items())]
    _write(settings.output, [((), [target[other] for other in always]), *named])
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


def _read(settings: ShortlistSettings) -> Sequence[SentencePair]:
    try:
        return read_parallel_text(settings.text, Columns(), "refuse").pairs[: settings.max_pairs]
    except DataError as error:
        raise ExportError(f"--text {error}") from None


def _encode(
    settings: ShortlistSettings, checkpoint: Checkpoint, tokenizer: Tokenizer, text: Sequence[SentencePair]
) -> list[TokenPair]:
    """Return the pairs as ids, as the model takes them, without pairs that are too long or have an empty side."""
    languages = LanguagePairs(checkpoint.languages, tokenizer)
    pair, wrong = languages.find(settings.source_language, settings.target_language)
    if wrong:
        raise ExportError(f"--{wrong[0].field.replace('_', '-')} {wrong[0].description}")
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


def _write(path: Path, rules: Sequence[tuple[Sequence[str], Sequence[str]]]) -> None:
    try:
        with replaced_whole(path) as new, new.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(vmap_lines(rules))
    except OSError as error:
        raise ExportError(f"{path}: it cannot be written: {error.strerror}") from None
