"""What is decoded and what comes of it: plain types, no gRPC and no ONNX Runtime.

They are tuples because millions are made and sent between processes. Nobody changes one.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from translane_server.options import DecodingOptions, RequiredPhrase


class Sentence(NamedTuple):
    """One source sentence to decode.

    Attributes:
        source_ids: the S source tokens, the end-of-sentence token included (S ≥ 1).
        options: how to decode it.
        forced_ids: tokens the translation starts with. Their log-probabilities are reported, and are no part of the
            score. With `options.max_length` 0 they are all of it, the end-of-sentence token included: the sentence is
            scored.
        counted_ids: how many of the last forced tokens count as generated, at no score: in the lengths of the options,
            and in the length that beams are ranked by.
        word_follows: the first generated token starts a word.
        required_phrases: what has to occur in the text (beams only).
    """

    source_ids: Sequence[int]
    options: DecodingOptions
    forced_ids: tuple[int, ...] = ()
    counted_ids: int = 0
    word_follows: bool = False
    required_phrases: tuple[RequiredPhrase, ...] = ()


class Task(NamedTuple):
    """A sentence that a replica is to decode.

    Attributes:
        number: the dispatcher's name for it.
        priority: a higher one enters the running batch first; equal ones enter in order of arrival.
        submitted_at: when the dispatcher accepted it [seconds of the clock of all processes].
        streamed: whether tokens are reported as soon as they are certain.
        sentence: to decode.
    """

    number: int
    priority: int
    submitted_at: float
    streamed: bool
    sentence: Sentence

    @property
    def rows(self) -> int:
        """How many rows it takes at most."""
        return self.sentence.options.rows


class FinishReason(enum.Enum):
    """Why decoding a sentence ended."""

    END_OF_SENTENCE = "end_of_sentence"
    MAX_LENGTH = "max_length"


class AlignedToken(NamedTuple):
    """The source token that a target token attends to most, and the attention weight (0 … 1)."""

    source_token: int
    weight: float


class CertainTokens(NamedTuple):
    """Tokens that every hypothesis goes on with, after those that were certain before.

    Attributes:
        token_ids: T tokens.
        alignment: of each of them, where it was asked for; else empty.
    """

    token_ids: tuple[int, ...]
    alignment: tuple[AlignedToken, ...] = ()


class Hypothesis(NamedTuple):
    """A translation as token ids: the forced and the generated ones, without the end-of-sentence token.

    Attributes:
        token_ids: T tokens.
        score: greedy search and sampling: the sum of the natural log-probabilities of the generated tokens, the
            end-of-sentence token included; beams: divided by their number ^ length_penalty, and less the coverage
            penalty. None where it was not asked for.
        is_complete: whether the end-of-sentence token ended it; else it is as long as it may be.
        token_log_probs: natural log-probability of each token, under the model alone; one more than `token_ids` where
            the end-of-sentence token ended it; empty where `score` is None.
        alignment: for each of `token_ids`, where it was asked for; else empty.
    """

    token_ids: tuple[int, ...]
    score: float | None
    is_complete: bool
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[AlignedToken, ...] = ()

    @property
    def finish_reason(self) -> FinishReason:
        """Why it ended."""
        return FinishReason.END_OF_SENTENCE if self.is_complete else FinishReason.MAX_LENGTH


class Timing(NamedTuple):
    """Seconds in each phase: waiting for a row, in the encoder, and in the decoder until the last token."""

    queue: float
    encode: float
    decode: float


class SentenceResult(NamedTuple):
    """The hypotheses of one sentence, best first, and where its time went."""

    hypotheses: tuple[Hypothesis, ...]
    timing: Timing
