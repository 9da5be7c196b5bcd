"""What travels between the service and the engine: plain types, no gRPC and no ONNX Runtime."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from translane_server.errors import RequestError


class FinishReason(enum.Enum):
    """Why decoding a sentence ended."""

    END_OF_SENTENCE = "end_of_sentence"
    MAX_LENGTH = "max_length"


@dataclass(frozen=True, slots=True)
class Sentence:
    """One source sentence to decode.

    `source_ids` are the S source tokens, the end-of-sentence token included (S ≥ 1); at most `max_length` tokens are
    generated, the end-of-sentence token included (≥ 1).
    """

    source_ids: Sequence[int]
    max_length: int


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A translation as token ids, without the end-of-sentence token.

    `score` is the sum of the natural log-probabilities of the generated tokens, the end-of-sentence token included.
    """

    token_ids: tuple[int, ...]
    score: float
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds in each phase: waiting for a row, in the encoder, and in the decoder until the last token."""

    queue: float
    encode: float
    decode: float


@dataclass(frozen=True, slots=True)
class SentenceResult:
    """The hypotheses of one sentence, best first, and where its time went."""

    hypotheses: tuple[Hypothesis, ...]
    timing: Timing


# Called once for each request, on the engine's thread: with a result per sentence in their order, or with the error.
OnDone = Callable[["tuple[SentenceResult, ...] | RequestError"], None]


@dataclass(eq=False, slots=True)
class Request:
    """Sentences that are answered together. Compared by identity: two equal requests are two requests.

    Sentences of a higher `priority` enter the batch first; equal ones in order of arrival.
    """

    sentences: Sequence[Sentence]
    on_done: OnDone = field(repr=False)
    priority: int = 0
