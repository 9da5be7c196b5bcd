"""A sentence while it is decoded: which rows hold its live hypotheses, and which hypotheses have ended."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from translane_server.decoding.beam import HypothesisPool
from translane_server.decoding.phrases import SuppressedPhrases
from translane_server.decoding.terminology import Requirements
from translane_server.job import Job
from translane_server.request import Hypothesis
from translane_server.vocabulary import TargetVocabulary

# A step sorts as many candidates for every row as one of them needs; who samples among more looks at the logits.
_MOST_CANDIDATES = 256


class Kind(enum.IntEnum):
    """How a row gets its next token."""

    GREEDY = 0
    SAMPLE_CANDIDATES = 1  # among the best ones
    SAMPLE_VOCABULARY = 2
    BEAM = 3


@dataclass(eq=False, slots=True)
class Search:
    """The decoding of one sentence.

    Attributes:
        job: the sentence.
        rows: its live hypotheses; beams best first.
        ended: its ended hypotheses, where rows are independent of each other.
        pool: its ended hypotheses, where they are beams.
        branches: how many rows the first one still has to become; 1 when that is done.
        phrases: what may not occur in the text.
        requirements: what has to occur in it.
        agreed: how many tokens were reported as certain.
    """

    job: Job
    rows: list[int]
    pool: HypothesisPool[Hypothesis] | None = None
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
        is_beam = options.beam_size > 1
        search = cls(job, [row], phrases=phrases)
        if is_beam:
            search.pool = HypothesisPool(options)
        elif options.sampling or options.alternatives:
            search.branches = options.num_hypotheses
        if sentence.required_phrases:
            search.requirements = Requirements(sentence.required_phrases, vocabulary.surfaces, vocabulary.eos)
        return search

    @property
    def kind(self) -> Kind:
        """How its rows get their tokens."""
        options = self.job.sentence.options
        if options.beam_size > 1:
            return Kind.BEAM
        if options.sampling:
            few = 0 < options.sampling.top_k <= _MOST_CANDIDATES
            return Kind.SAMPLE_CANDIDATES if few else Kind.SAMPLE_VOCABULARY
        return Kind.GREEDY

    @property
    def goes_on_in_groups(self) -> bool:
        """Whether its next tokens are chosen for all its rows together, or make several rows of one."""
        return self.pool is not None or self.branches > 1

    @property
    def num_candidates(self) -> int:
        """How many candidates a row of it takes."""
        options = self.job.sentence.options
        if options.beam_size > 1:
            return 2 * options.beam_size
        if options.sampling:
            return options.sampling.top_k if self.kind is Kind.SAMPLE_CANDIDATES else 1
        return self.branches

    def hypotheses(self) -> tuple[Hypothesis, ...]:
        """The ended hypotheses, best first."""
        count = self.job.sentence.options.num_hypotheses
        if self.pool:
            return tuple(self.pool.hypotheses[:count])
        return tuple(sorted(self.ended, key=lambda hypothesis: (-(hypothesis.score or 0.0), hypothesis.token_ids)))
