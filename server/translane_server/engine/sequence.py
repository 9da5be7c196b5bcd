"""What the engine is given, and what it gives back: sentences, their results, and measurements.

The types are tuples, because millions of them are made and sent between processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from translane_server.engine.options import DecodingOptions, RequiredPhrase


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The V target tokens.

    Attributes:
        decoder_start: the id that is fed to the decoder first.
        eos: the end-of-sentence id.
        surfaces: the UTF-8 that each token adds to the text, [V]. It may have a leading space, or be a part of a
            character (byte fallback). It is empty for control tokens. The text of a translation is the surfaces of its
            tokens, joined, without a space at the start.
    """

    decoder_start: int
    eos: int
    surfaces: Sequence[bytes] = ()


class Sentence(NamedTuple):
    """One source sentence to decode.

    Attributes:
        source_ids: the S source tokens, the end-of-sentence token included (S ≥ 1).
        options: how to decode it.
        forced_ids: tokens that the translation starts with. Their log-probabilities are reported, but do not count in
            the score. With `options.max_length` 0 they are the whole translation, with its end-of-sentence token: the
            translation is only scored.
        counted_ids: how many of the last forced tokens count as generated, with a score of 0. They count in the lengths
            of the options, and in the length by which beams are ranked.
        word_follows: whether the first generated token must start a word.
        required_phrases: phrases that must occur in the text (beams only).
    """

    source_ids: Sequence[int]
    options: DecodingOptions
    forced_ids: tuple[int, ...] = ()
    counted_ids: int = 0
    word_follows: bool = False
    required_phrases: tuple[RequiredPhrase, ...] = ()

    @property
    def allowed_ids(self) -> tuple[int, ...] | None:
        """The tokens that are allowed beside those of a shortlist; None if every token is."""
        if not self.options.shortlist:
            return None
        return self.forced_ids + tuple(id_ for phrase in self.required_phrases for id_ in phrase.token_ids)


class Task(NamedTuple):
    """A sentence that is sent to a replica.

    Attributes:
        number: number of the task, unique in its dispatcher.
        priority: tasks of higher priority enter the running batch first; equal priorities in order of arrival.
        submitted_at: when the dispatcher accepted it [seconds of the clock of all processes].
        streamed: whether the replica reports tokens as soon as they are certain.
        sentence: the sentence to decode.
    """

    number: int
    priority: int
    submitted_at: float
    streamed: bool
    sentence: Sentence

    @property
    def cost(self) -> int:
        """The work that the sentence is expected to take: source tokens + rows * target tokens."""
        options, source = self.sentence.options, len(self.sentence.source_ids)
        return self.cost_of(
            max(options.min_length, min(options.max_length, 2 * source)) + len(self.sentence.forced_ids)
        )

    def cost_of(self, target_tokens: int) -> int:
        """The work that the sentence takes if its longest hypothesis has this number of tokens."""
        return len(self.sentence.source_ids) + self.sentence.options.rows * target_tokens

    @property
    def rows(self) -> int:
        """Maximum number of rows that the task takes."""
        return self.sentence.options.rows


class AlignedToken(NamedTuple):
    """The source token to which a target token attends most, and the attention weight (0 … 1)."""

    source_token: int
    weight: float


class CertainTokens(NamedTuple):
    """The next tokens on which all hypotheses of a sentence agree.

    Attributes:
        token_ids: T tokens.
        alignment: alignment of each token; empty if it was not requested.
    """

    token_ids: tuple[int, ...]
    alignment: tuple[AlignedToken, ...] = ()


class Hypothesis(NamedTuple):
    """A translation as token ids: the forced and the generated ones, without the end-of-sentence token.

    Attributes:
        token_ids: T tokens.
        score: sum of the natural log-probabilities of the generated tokens, with the end-of-sentence token. Beam search
            divides the sum by length ^ length_penalty and adds the weighted coverage penalty. None if scores were not
            requested.
        is_complete: whether the end-of-sentence token ended the hypothesis; otherwise the maximum length did.
        token_log_probs: natural log-probability of each token under the model alone, [T]; [T + 1] with the
            end-of-sentence token of a complete hypothesis; empty if scores were not requested.
        alignment: alignment of each token, [T]; empty if it was not requested.
    """

    token_ids: tuple[int, ...]
    score: float | None
    is_complete: bool
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[AlignedToken, ...] = ()


class Timing(NamedTuple):
    """Time in each phase [seconds]: waiting for a row, in the encoder, and in the decoder until the last token.

    Attributes:
        queue: seconds of waiting.
        encode: seconds of the encoder run.
        decode: seconds from the row to the last token.
        steps: decoder steps in which the sentence took part.
        row_steps: sum of the rows of these steps, those of other sentences included.
    """

    queue: float
    encode: float
    decode: float
    steps: int = 0
    row_steps: int = 0


class SentenceResult(NamedTuple):
    """The hypotheses of one sentence, best first, and its time in each phase."""

    hypotheses: tuple[Hypothesis, ...]
    timing: Timing


EncodeRun = tuple[float, int]
"""Seconds and source tokens of one encoder run."""

RowRun = tuple[float, int]
"""Seconds and rows of one decode step, or of one copy of rows."""


class Measurements(NamedTuple):
    """Measurements, in the order in which they were taken.

    Attributes:
        encodes: runs of the encoder.
        queue_times: waiting time of each sentence, until it got its row; without the encoder run.
        steps: decode steps. Each row got one token.
        moves: copies of rows between two steps.
        first_token_times: time from the acceptance of each sentence to its first token.
    """

    encodes: list[EncodeRun]
    queue_times: list[float]
    steps: list[RowRun]
    moves: list[RowRun]
    first_token_times: list[float]

    @classmethod
    def none(cls) -> Measurements:
        """No measurements."""
        return cls([], [], [], [], [])
