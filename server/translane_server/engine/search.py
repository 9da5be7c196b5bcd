"""The state of a sentence while it decodes."""

from __future__ import annotations

import bisect
import math
from collections import abc
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from translane_server.core.arrays import BoolArray
from translane_server.engine.options import DecodingOptions, Kind
from translane_server.engine.phrases import RequiredPhrases, SuppressedPhrases, SurfaceIndex
from translane_server.engine.sequence import Hypothesis, Sentence, Sequence, TargetVocabulary, Timing

# Additional candidates for a row with rules, because some candidates may be banned.
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

    It has no alignment yet: `hypotheses.returned_hypotheses` aligns those that are returned.
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
        """Number of candidates that each row requests. Rows with rules request more, as some may be banned."""
        ruled = self.logits_until > len(self.forced_ids)
        return self.needed_candidates + (_SPARE_CANDIDATES if ruled else 0)

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
