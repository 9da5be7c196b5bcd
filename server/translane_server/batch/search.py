"""A sentence while it is decoded: how its rows get their tokens, and which hypotheses it has."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, fields

import numpy as np

from translane_server.arrays import BoolArray
from translane_server.decoding.beam import HypothesisPool
from translane_server.decoding.phrases import SuppressedPhrases
from translane_server.decoding.required_phrases import RequiredPhrases
from translane_server.options import DecodingOptions
from translane_server.sentence import Hypothesis, Sentence, Task, Timing

# A step sorts as many candidates for every row as one of them needs; who samples among more looks at the logits.
_MOST_CANDIDATES = 256
# Candidates that a row with rules asks for beyond those it needs, in place of banned ones.
_SPARE_CANDIDATES = 8

_ALWAYS = np.iinfo(np.int32).max

# What a sentence and its options may say without rules for every token. Whatever else they say takes the general way
# through a step, so that an option which is new to this file is not passed over.
_UNRULED_OPTIONS = {
    "max_length", "min_length", "beam_size", "num_hypotheses", "length_penalty", "early_stopping", "patience",
    "coverage_penalty", "sampling", "alternatives", "alignment", "scores",
}  # fmt: skip
_RULED_OPTIONS = [(each.name, each.default) for each in fields(DecodingOptions) if each.name not in _UNRULED_OPTIONS]
_UNRULED_FIELDS = {"source_ids", "options", "forced_ids", "counted_ids", "word_follows"}
_RULED_FIELDS = [(name, Sentence._field_defaults[name]) for name in Sentence._fields if name not in _UNRULED_FIELDS]


class Kind(enum.Enum):
    """How a row gets its next token."""

    GREEDY = "greedy"
    SAMPLE_CANDIDATES = "sample among the best candidates"
    SAMPLE_VOCABULARY = "sample among all tokens"
    BEAM = "beam"


# The last token of a hypothesis, its natural log-probability, and the hypothesis before it; None is one without tokens.
# Hypotheses that begin with the same tokens share them.
Path = tuple[int, float, "Path"] | None


@dataclass(slots=True)
class LiveBeams:
    """The hypotheses of beams, in the order of their search's rows: best first.

    Attributes:
        pool: those that have ended.
        length: how many tokens each live one has, forced ones included.
        scores: of each live one.
        paths: the tokens of each live one.
    """

    pool: HypothesisPool[Hypothesis]
    length: int = 0
    scores: list[float] = field(default_factory=lambda: [0.0])
    paths: list[Path] = field(default_factory=lambda: [None])


@dataclass(eq=False, slots=True)
class Search:
    """The decoding of one sentence. It begins with one row, which may become several when a token is generated.

    Attributes:
        task: the sentence.
        rows: its live hypotheses; beams best first.
        kind: how its rows get their tokens.
        limit: how many tokens a row has at most, forced ones included.
        uncounted: how many forced tokens do not count as generated.
        eos_from: how many tokens a row has before the sentence may end.
        special_until: up to how many tokens of a row the best candidates are not enough: the row needs logits.
        keeps_history: whether the row table has the tokens and the attention weights of its beams.
        branches: how many rows the first one still has to become, where these are no beams; 1 when that is done.
        banned: tokens that are never generated, [V].
        banned_first: tokens that are not the first generated one, [V].
        phrases: what may not occur in the text.
        required: what has to occur in it.
        beams: its hypotheses, where they are beams.
        ended: its ended hypotheses, where rows are independent of each other.
        certain: how many tokens were reported as certain.
        admitted_at: when it was taken to be encoded [seconds].
        encoded_at: when it was, and got its row [seconds].
    """

    task: Task
    rows: list[int]
    kind: Kind
    limit: int
    uncounted: int
    eos_from: int
    special_until: int
    keeps_history: bool
    branches: int = 1
    banned: BoolArray | None = None
    banned_first: BoolArray | None = None
    phrases: SuppressedPhrases | None = None
    required: RequiredPhrases | None = None
    beams: LiveBeams | None = None
    ended: list[Hypothesis] = field(default_factory=list)
    certain: int = 0
    admitted_at: float = 0.0
    encoded_at: float = 0.0

    @classmethod
    def begin(cls, task: Task, row: int) -> Search:
        """Begin with one row; what has to do with the vocabulary is not set."""
        sentence, options = task.sentence, task.sentence.options
        forced, kind = len(sentence.forced_ids), _kind_of(options)
        uncounted = forced - sentence.counted_ids
        special_until = _special_until(sentence, kind, uncounted)
        search = cls(
            task,
            [row],
            kind,
            limit=max(uncounted + options.max_length, forced + min(options.max_length, 1)),
            uncounted=uncounted,
            eos_from=uncounted + options.min_length,
            special_until=special_until,
            keeps_history=special_until > 0 or options.attention,
        )
        if kind is Kind.BEAM:
            search.beams = LiveBeams(HypothesisPool(options))
        elif options.sampling or options.alternatives:
            search.branches = options.num_hypotheses
        return search

    def is_greedy_from(self, position: int) -> bool:
        """Whether its rows take the best candidate of every step, whatever it is, from `position` tokens on."""
        return (
            self.kind is Kind.GREEDY
            and self.branches == 1
            and position >= self.special_until
            and position >= len(self.task.sentence.forced_ids)
        )

    @property
    def needed_candidates(self) -> int:
        """How many candidates decide its next tokens."""
        options = self.task.sentence.options
        if self.kind is Kind.BEAM:
            return 2 * options.beam_size
        if self.kind is Kind.SAMPLE_CANDIDATES:
            assert options.sampling is not None
            return options.sampling.top_k
        return self.branches if self.kind is Kind.GREEDY else 1

    @property
    def asked_candidates(self) -> int:
        """How many candidates its rows ask for: some are banned where there are rules."""
        ruled = self.special_until > len(self.task.sentence.forced_ids)
        return self.needed_candidates + (_SPARE_CANDIDATES if ruled else 0)

    def timing(self, now: float) -> Timing:
        """Where its time went; it is decoded."""
        return Timing(
            self.admitted_at - self.task.submitted_at, self.encoded_at - self.admitted_at, now - self.encoded_at
        )

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The ended hypotheses, best first."""
        count = self.task.sentence.options.num_hypotheses
        if self.beams:
            return tuple(self.beams.pool.hypotheses[:count])
        if len(self.ended) == 1:
            return tuple(self.ended)
        return tuple(sorted(self.ended, key=lambda hypothesis: (-(hypothesis.score or 0.0), hypothesis.token_ids)))


def _kind_of(options: DecodingOptions) -> Kind:
    if options.beam_size > 1:
        return Kind.BEAM
    if options.sampling:
        few = 0 < options.sampling.top_k <= _MOST_CANDIDATES
        return Kind.SAMPLE_CANDIDATES if few else Kind.SAMPLE_VOCABULARY
    return Kind.GREEDY


def _special_until(sentence: Sentence, kind: Kind, uncounted: int) -> int:
    options, forced = sentence.options, len(sentence.forced_ids)
    if kind is Kind.SAMPLE_VOCABULARY or _has_rules(sentence, options):
        return _ALWAYS
    told = forced if options.scores else 0  # a forced token's log-probability is of the logits
    first = forced + 1 if sentence.word_follows else 0
    return max(told, first, uncounted + options.min_length if options.min_length else 0)


def _has_rules(sentence: Sentence, options: DecodingOptions) -> bool:
    return any(getattr(options, name) != default for name, default in _RULED_OPTIONS) or any(
        getattr(sentence, name) != default for name, default in _RULED_FIELDS
    )
