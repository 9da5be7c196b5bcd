"""The state of a sentence while it decodes, and the hypotheses that it ends in, with their alignment.

The committed tokens of a streamed translation are those with which all its hypotheses begin.
"""

from __future__ import annotations

import bisect
import math
from collections import abc
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import BoolArray, FloatArray
from translane_server.engine.options import DecodingOptions, Kind
from translane_server.engine.phrases import RequiredPhrases, SuppressedPhrases, SurfaceIndex
from translane_server.engine.rows import RowTable
from translane_server.engine.sequence import (
    AlignedToken,
    CommittedTokens,
    Hypothesis,
    Sentence,
    Sequence,
    TargetVocabulary,
    Timing,
)
from translane_server.runtime.backend import Align

# Additional candidates for a row with rules that ban tokens.
_SPARE_CANDIDATES = 8

# exp() of a much larger exponent overflows a float64.
_MOST_EXPONENT = 700.0

_ALWAYS = np.iinfo(np.int32).max

# Fields of a sentence that need no rule for every token; see `DecodingOptions.rules`.
_WITHOUT_RULES = {"source_ids", "options", "forced_ids", "counted_ids", "word_follows"}
_RULED = [(name, Sentence._field_defaults[name]) for name in Sentence._fields if name not in _WITHOUT_RULES]


# A hypothesis as a linked list: the last token, its natural log-probability, the row in which it was chosen, and the
# path before this token. None has no tokens. Hypotheses share the paths of their common beginning.
Path = tuple[int, float, int, "Path"] | None


class Ended(NamedTuple):
    """An ended hypothesis, and the row in which each of its tokens was chosen; no rows if it is not aligned.

    It has no alignment yet: `returned_hypotheses` aligns those that are returned.
    """

    hypothesis: Hypothesis
    chosen_in: abc.Sequence[int]


class HypothesisPool:
    """The best ended hypotheses of a sentence, best first. It holds max(1, round(patience * beam_size)).

    `patience` is that of Kasai et al. 2022, https://arxiv.org/abs/2204.05424.
    """

    def __init__(self, options: DecodingOptions) -> None:
        self._options = options
        self.capacity = max(1, round(options.patience * options.beam_size))
        self.scores: list[float] = []  # negative scores, in ascending order
        self.hypotheses: list[Ended] = []

    @property
    def is_full(self) -> bool:
        """Whether the pool has reached its capacity."""
        return len(self.hypotheses) >= self.capacity

    def normalise(self, score: float, length: int) -> float:
        """The score for ranking a hypothesis of `length` generated tokens, whose log-probabilities sum to `score`."""
        exponent = self._options.length_penalty * math.log(length)
        return score / math.exp(min(max(exponent, -_MOST_EXPONENT), _MOST_EXPONENT))

    def accepts(self, score: float) -> bool:
        """Whether `add` would keep a hypothesis of this normalised score."""
        return not self.is_full or score > -self.scores[-1]

    def add(self, score: float, hypothesis: Ended) -> None:
        """Add a hypothesis by its normalised score. Earlier hypotheses come first between equal scores."""
        place = bisect.bisect_right(self.scores, -score)
        self.scores.insert(place, -score)
        self.hypotheses.insert(place, hypothesis)
        del self.scores[self.capacity :], self.hypotheses[self.capacity :]

    def is_final(self, best_live_score: float, length: int) -> bool:
        """Whether the search is over. The best live hypothesis has this score, and `length` generated tokens."""
        if not self.is_full:
            return False
        return self._options.early_stopping or not self.normalise(best_live_score, length) > -self.scores[-1]


@dataclass(slots=True)
class LiveBeams:
    """The live beams of a search, best first, in the order of the search's rows."""

    pool: HypothesisPool
    length: int = 0  # number of tokens of each live beam, with forced tokens
    scores: list[float] = field(default_factory=lambda: [0.0])  # score of each live beam
    paths: list[Path] = field(default_factory=lambda: [None])  # tokens of each live beam


@dataclass(eq=False, slots=True)
class Search:
    """The decoding of one sentence. A search begins with one row, and may get more with its first generated token."""

    sequence: Sequence
    options: DecodingOptions
    forced_ids: tuple[int, ...]  # the tokens that the translation starts with
    # rows of the live hypotheses; beams are best first. When the search has ended, rows with its source.
    rows: list[int]
    limit: int  # maximum number of tokens of a row, with forced tokens
    uncounted: int  # number of forced tokens that do not count as generated
    eos_from: int  # number of tokens before the end-of-sentence token may follow
    logits_until: int  # a row with fewer tokens than this needs logits, because the best candidates are not enough
    keeps_history: bool  # whether the row table keeps the tokens of the beams
    branches: int = 1  # number of samples or alternatives that the first row will become; 1 once they have their rows
    banned: BoolArray | None = None  # whether a token is never generated, [V]
    banned_first: BoolArray | None = None  # whether a token may not be the first generated token, [V]
    phrases: SuppressedPhrases | None = None  # phrases that may not occur in the text
    required: RequiredPhrases | None = None  # phrases that must occur in the text
    beams: LiveBeams | None = None  # the live beams; None if the rows are independent
    ended: list[Ended] = field(default_factory=list)  # ended hypotheses of independent rows
    reported: int = 0  # number of tokens that were reported as committed
    admitted_at: float = 0.0  # `entered_at` minus the duration of its encoder run [seconds]
    entered_at: float = 0.0  # when the sentence got its row [seconds]
    entered_step: int = 0  # how many steps had been made then
    entered_row_steps: int = 0  # how many rows these steps had, in all

    def is_greedy_from(self, position: int) -> bool:
        """Whether all rows take the best candidate of every step, once they have `position` tokens."""
        return (
            self.options.kind is Kind.GREEDY
            and self.branches == 1
            and position >= self.logits_until
            and position >= len(self.forced_ids)
        )

    @property
    def needed_candidates(self) -> int:
        """Number of allowed candidates that each row needs to choose its next token."""
        options = self.options
        if options.kind is Kind.BEAM:
            return 2 * options.beam_size
        if options.kind is Kind.SAMPLE_CANDIDATES:
            assert options.sampling is not None
            return options.sampling.top_k
        return self.branches if options.kind is Kind.GREEDY else 1

    @property
    def asked_candidates(self) -> int:
        """Number of candidates that each row requests. A step finds as many for all rows, so no row asks for surplus.

        Rows with rules that ban tokens, or lower their scores, request more.
        """
        sentence = self.sequence.sentence
        may_ban = self.options.rules or self.options.min_length > 0 or sentence.word_follows
        spares = may_ban and self.options.kind is not Kind.SAMPLE_VOCABULARY  # which reads the logits alone
        return self.needed_candidates + (_SPARE_CANDIDATES if spares else 0)

    def timing(self, now: float, steps: int = 0, row_steps: int = 0) -> Timing:
        """The time in each phase of a search that ends `now` [seconds], after so many steps and rows in all."""
        return Timing(
            self.admitted_at - self.sequence.submitted_at,
            self.entered_at - self.admitted_at,
            now - self.entered_at,
            steps - self.entered_step,
            row_steps - self.entered_row_steps,
        )


_SHARED_PHRASES = 16  # sets of suppressed phrases in the cache; each takes masks of the vocabulary's size


class SearchFactory:
    """Makes searches."""

    def __init__(self, vocabulary: TargetVocabulary) -> None:
        self._vocabulary = vocabulary
        self._index = SurfaceIndex(vocabulary.surfaces)
        self._continues_word: BoolArray = np.ones(len(vocabulary.surfaces), np.bool_)
        self._continues_word[self._index.starting(b" ")] = False
        self._continues_word[vocabulary.eos : vocabulary.eos + 1] = False
        self._phrases = lru_cache(_SHARED_PHRASES)(lambda phrases: SuppressedPhrases(phrases, self._index))

    def begin(self, sequence: Sequence, row: int) -> Search:
        """Make the search of a sequence. It begins in `row`."""
        sentence, options = sequence.sentence, sequence.sentence.options
        forced = len(sentence.forced_ids)
        uncounted = forced - sentence.counted_ids
        logits_until = _logits_until(sentence, uncounted)
        search = Search(
            sequence,
            options,
            sentence.forced_ids,
            [row],
            limit=max(uncounted + options.max_length, forced + min(options.max_length, 1)),
            uncounted=uncounted,
            eos_from=uncounted + options.min_length,
            logits_until=logits_until,
            keeps_history=logits_until > 0,
        )
        if options.kind is Kind.BEAM:
            search.beams = LiveBeams(HypothesisPool(options))
        elif options.sampling or options.alternatives:
            search.branches = options.num_hypotheses
        if logits_until:
            self._set_rules(search)
        return search

    def _set_rules(self, search: Search) -> None:
        sentence, vocabulary = search.sequence.sentence, self._vocabulary
        options = sentence.options
        if options.suppressed_ids:
            search.banned = np.zeros(len(vocabulary.surfaces), np.bool_)
            search.banned[list(options.suppressed_ids)] = True
        if sentence.word_follows:
            search.banned_first = self._continues_word
        if options.suppressed_phrases:
            search.phrases = self._phrases(options.suppressed_phrases)
        if sentence.required_phrases:
            search.required = RequiredPhrases(sentence.required_phrases, vocabulary.surfaces, vocabulary.eos)


def _logits_until(sentence: Sentence, uncounted: int) -> int:
    """The number of tokens with which a row has enough in the best candidates; before, it needs logits."""
    options, forced = sentence.options, len(sentence.forced_ids)
    has_rules = options.rules or any(getattr(sentence, name) != default for name, default in _RULED)
    if has_rules or options.kind is Kind.SAMPLE_VOCABULARY:
        return _ALWAYS
    told = forced if options.scores else 0  # the log-probability of a forced token comes from the logits
    first = forced + 1 if sentence.word_follows else 0
    return max(told, first, uncounted + options.min_length if options.min_length else 0)


# Least coverage of a source token, so that its logarithm is finite.
LEAST_COVERAGE = 1e-9


def aligned_tokens(attention: FloatArray, source_length: int) -> tuple[AlignedToken, ...]:
    """The source token to which each target token attends most; the first one between equal weights.

    The source's end-of-sentence token is ignored unless it is the only token: target tokens without a counterpart
    attend to it. `attention` is [T, S] for T target tokens, with S ≥ `source_length` ≥ 1.
    """
    weights = attention[:, : max(source_length - 1, 1)]
    sources = weights.argmax(axis=1)
    best = np.take_along_axis(weights, sources[:, None], axis=1)[:, 0]
    return tuple(map(AlignedToken, sources.tolist(), best.tolist()))


def coverage_penalty(attention_sum: npt.NDArray[np.floating[Any]], source_length: int) -> float:
    """The coverage penalty: 0 if the whole source is covered, and negative otherwise.

    Wu et al. 2016, https://arxiv.org/abs/1609.08144 (14), without the factor: the sum of log(min(coverage, 1)) over all
    source tokens. `attention_sum`, over the target tokens, is [S] with S ≥ `source_length`.
    """
    coverage = attention_sum[:source_length].astype(np.float64)
    return float(np.log(coverage.clip(LEAST_COVERAGE, 1.0)).sum())


def row_hypothesis(table: RowTable, search: Search, row: int, eos: int) -> Ended:
    """The hypothesis in `row`, which its last token has ended."""
    options, length = search.options, table.positions.item(row)
    token = table.next_ids.item(row)
    return _hypothesis(
        options,
        table.history[row, 1:length].tolist(),
        table.log_probs[row, :length].tolist() if options.scores else (),
        None if token == eos else token,
        table.scores.item(row),
        table.chosen_in[row, :length].tolist() if options.alignment else (),
    )


def beam_hypothesis(search: Search, beam: int, last: int | None, log_prob: float, score: float) -> Ended:
    """The hypothesis that ends a live beam with one more token, `last`, which is None at the end of the sentence."""
    beams, options = search.beams, search.options
    assert beams is not None
    tokens, log_probs, chosen_in = unrolled(beams.paths[beam])
    chosen_in = [*chosen_in, search.rows[beam]] if options.alignment else []
    return _hypothesis(options, tokens, [*log_probs, log_prob], last, score, chosen_in)


def unrolled(path: Path) -> tuple[list[int], list[float], list[int]]:
    """The tokens of a path, their log-probabilities, and the rows in which they were chosen, from first to last."""
    tokens: list[int] = []
    log_probs: list[float] = []
    rows: list[int] = []
    while path is not None:
        token, log_prob, row, path = path
        tokens.append(token)
        log_probs.append(log_prob)
        rows.append(row)
    return tokens[::-1], log_probs[::-1], rows[::-1]


def _hypothesis(
    options: DecodingOptions,
    token_ids: abc.Sequence[int],
    log_probs: abc.Sequence[float],
    last: int | None,
    score: float,
    chosen_in: abc.Sequence[int],
) -> Ended:
    hypothesis = Hypothesis(
        tuple(token_ids) if last is None else (*token_ids, last),
        score if options.scores else None,
        last is None,
        tuple(log_probs) if options.scores else (),
    )
    return Ended(hypothesis, chosen_in[: len(hypothesis.token_ids)])


def returned_hypotheses(search: Search, align: Align) -> tuple[Hypothesis, ...]:
    """The hypotheses of an ended search that are returned, best first, with their alignments."""
    if search.beams:
        ended = search.beams.pool.hypotheses[: search.options.num_hypotheses]
    else:
        ended = sorted(search.ended, key=lambda each: (-(each.hypothesis.score or 0.0), each.hypothesis.token_ids))
    if not search.options.alignment:
        return tuple([each.hypothesis for each in ended])
    return tuple([each.hypothesis._replace(alignment=_alignment(search, 0, each.chosen_in, align)) for each in ended])


def _alignment(search: Search, start: int, chosen_in: abc.Sequence[int], align: Align) -> tuple[AlignedToken, ...]:
    """The alignment of a hypothesis's tokens from `start` on, which were chosen in these rows."""
    if not chosen_in:
        return ()
    attention = align(search.rows[0], search.entered_step + start, chosen_in)
    return aligned_tokens(attention, len(search.sequence.sentence.source_ids))


def new_committed_tokens(search: Search, table: RowTable, align: Align) -> CommittedTokens | None:
    """The tokens of a live search that have become committed since the last call; None if there are none."""
    row, start = search.rows[0], search.reported
    if search.beams is None:
        end = table.positions.item(row)
        tokens, chosen_in = table.tokens(row, start, end), table.chosen_in[row, start:end].tolist()
    else:
        end, path = _shared(search.beams)
        if end <= start:
            return None
        whole, _, rows = unrolled(path)
        end = _agreed(search.beams, whole)
        tokens, chosen_in = whole[start:end], rows[start:end]
    if not tokens:
        return None
    search.reported = end
    alignment = _alignment(search, start, chosen_in, align) if search.options.alignment else ()
    return CommittedTokens(tuple(tokens), alignment)


def _shared(beams: LiveBeams) -> tuple[int, Path]:
    """The common beginning of the live beams, and its length. Beams have equal lengths, and share equal beginnings."""
    length, paths = beams.length, {id(path): path for path in beams.paths}
    while len(paths) > 1:
        length -= 1
        paths = {id(path[3]): path[3] for path in paths.values() if path is not None}
    (path,) = paths.values()
    return length, path


def _agreed(beams: LiveBeams, tokens: list[int]) -> int:
    """The number of `tokens` with which the best ended hypothesis begins; all if no hypothesis has ended."""
    if not beams.pool.hypotheses:
        return len(tokens)
    ended = beams.pool.hypotheses[0].hypothesis.token_ids
    return next(
        (place for place, pair in enumerate(zip(tokens, ended, strict=False)) if pair[0] != pair[1]),
        min(len(tokens), len(ended)),
    )
