"""A sentence while it is decoded: which rows hold its live hypotheses, and which hypotheses have ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from translane_server.decoding.beam import HypothesisPool
from translane_server.decoding.phrases import SuppressedPhrases
from translane_server.decoding.required_phrases import Requirements
from translane_server.job import Job
from translane_server.options import DecodingOptions
from translane_server.request import Hypothesis, Sentence
from translane_server.vocabulary import TargetVocabulary

# A step sorts as many candidates for every row as one of them needs; who samples among more looks at the logits.
_MOST_CANDIDATES = 256


class Kind(enum.IntEnum):
    """How a row gets its next token."""

    GREEDY = 0
    SAMPLE_CANDIDATES = 1  # among the best ones
    SAMPLE_VOCABULARY = 2
    BEAM = 3


# The last token of a hypothesis, its natural log-probability where that is told, and the hypothesis before it; None is
# one without tokens. Hypotheses that begin with the same tokens share them.
Path = tuple[int, float, "Path"] | None


@dataclass(slots=True)
class LiveBeams:
    """The hypotheses of plain beams, in the order of their search's rows: best first.

    Attributes:
        length: how many tokens each has.
        scores: of each.
        paths: the tokens of each.
    """

    length: int = 0
    scores: list[float] = field(default_factory=lambda: [0.0])
    paths: list[Path] = field(default_factory=lambda: [None])


@dataclass(eq=False, slots=True)
class Search:
    """The decoding of one sentence.

    Attributes:
        job: the sentence.
        rows: its live hypotheses; beams best first.
        kind: how its rows get their tokens.
        plain: whether its rows take nothing of a step but their best tokens, and it has one row or is beams.
        ended: its ended hypotheses, where rows are independent of each other.
        pool: its ended hypotheses, where they are beams.
        beams: its live hypotheses, where they are plain beams; others are in the row table.
        branches: how many rows the first one still has to become; 1 when that is done.
        phrases: what may not occur in the text.
        requirements: what has to occur in it.
        agreed: how many tokens were reported as certain.
    """

    job: Job
    rows: list[int]
    kind: Kind
    plain: bool
    pool: HypothesisPool[Hypothesis] | None = None
    beams: LiveBeams | None = None
    branches: int = 1
    phrases: SuppressedPhrases | None = None
    requirements: Requirements | None = None
    ended: list[Hypothesis] = field(default_factory=list)
    agreed: int = 0

    @classmethod
    def begin(
        cls, job: Job, row: int, vocabulary: TargetVocabulary, phrases: SuppressedPhrases | None = None
    ) -> Search:
        """Begin with one row; it becomes more when the first token is generated."""
        sentence = job.sentence
        options = sentence.options
        search = cls(job, [row], _kind_of(options), _is_plain(sentence), phrases=phrases)
        if search.kind is Kind.BEAM:
            search.pool = HypothesisPool(options)
            search.beams = LiveBeams() if search.plain else None
        elif options.sampling or options.alternatives:
            search.branches = options.num_hypotheses
        if sentence.required_phrases:
            search.requirements = Requirements(sentence.required_phrases, vocabulary.surfaces, vocabulary.eos)
        return search

    @property
    def goes_on_in_groups(self) -> bool:
        """Whether its next tokens are chosen for all its rows together, or make several rows of one."""
        return self.pool is not None or self.branches > 1

    @property
    def beam_size(self) -> int:
        """How many hypotheses it keeps, where they are beams."""
        return self.job.sentence.options.beam_size

    @property
    def num_candidates(self) -> int:
        """How many candidates a row of it takes."""
        options = self.job.sentence.options
        if self.kind is Kind.BEAM:
            return 2 * self.beam_size
        if options.sampling:
            return options.sampling.top_k if self.kind is Kind.SAMPLE_CANDIDATES else 1
        return self.branches

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The ended hypotheses, best first."""
        count = self.job.sentence.options.num_hypotheses
        if self.pool:
            return tuple(self.pool.hypotheses[:count])
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


def _is_plain(sentence: Sentence) -> bool:
    options = sentence.options
    return (
        (options.rows == 1 or options.beam_size > 1)
        and options.sampling is None
        and not options.attention
        and sentence.on_progress is None
        and not sentence.forced_ids
        and not sentence.word_follows
        and not sentence.required_phrases
        and not options.min_length
        and options.repetition_penalty == 1
        and not options.no_repeat_ngram_size
        and not options.suppressed_ids
        and not options.suppressed_phrases
    )
