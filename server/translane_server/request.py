"""What travels between the service and the engine: plain types, no gRPC and no ONNX Runtime."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from translane_server.errors import RequestError
from translane_server.options import DecodingOptions, RequiredPhrase


class FinishReason(enum.Enum):
    """Why decoding a sentence ended."""

    END_OF_SENTENCE = "end_of_sentence"
    MAX_LENGTH = "max_length"


@dataclass(frozen=True, slots=True)
class AlignedToken:
    """The source token that a target token attends to most, and the attention weight (0 … 1)."""

    source_token: int
    weight: float


# Called by the engine, as often as there is more: with the tokens that the best hypothesis will start with
# whatever comes, and their alignment where it was asked for (else empty).
OnProgress = Callable[[tuple[int, ...], tuple[AlignedToken, ...]], None]


@dataclass(slots=True)
class Sentence:
    """One source sentence to decode. Nobody changes it; frozen, it would take four times as long to make.

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
        on_progress: takes the tokens that are certain, while there are more to come.
    """

    source_ids: Sequence[int]
    options: DecodingOptions
    forced_ids: tuple[int, ...] = ()
    counted_ids: int = 0
    word_follows: bool = False
    required_phrases: tuple[RequiredPhrase, ...] = ()
    on_progress: OnProgress | None = field(default=None, repr=False)


@dataclass(slots=True)
class Hypothesis:
    """A translation as token ids: the forced and the generated ones, without the end-of-sentence token.

    Like a `Sentence`, nobody changes it.

    Attributes:
        token_ids: T tokens.
        score: greedy search and sampling: the sum of the natural log-probabilities of the generated tokens, the
            end-of-sentence token included; beams: divided by their number ^ length_penalty, and less the coverage
            penalty. None where it was not asked for.
        finish_reason: why it ended.
        token_log_probs: natural log-probability of each token, under the model alone; one more than `token_ids` where
            the end-of-sentence token ended it; empty where `score` is None.
        alignment: for each of `token_ids`, where it was asked for; else empty.
    """

    token_ids: tuple[int, ...]
    score: float | None
    finish_reason: FinishReason
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[AlignedToken, ...] = ()


class Timing(NamedTuple):
    """Seconds in each phase: waiting for a row, in the encoder, and in the decoder until the last token."""

    queue: float
    encode: float
    decode: float


class SentenceResult(NamedTuple):
    """The hypotheses of one sentence, best first, and where its time went."""

    hypotheses: tuple[Hypothesis, ...]
    timing: Timing


# Called once for each request: with a result per sentence in their order, or with the error.
OnDone = Callable[["tuple[SentenceResult, ...] | RequestError"], None]


@dataclass(eq=False, slots=True)
class Request:
    """Sentences that are answered together. Compared by identity: two equal requests are two requests.

    Sentences of a higher `priority` enter the batch first; equal ones in order of arrival.
    """

    sentences: Sequence[Sentence]
    on_done: OnDone = field(repr=False)
    priority: int = 0


class Translator(Protocol):
    """Who takes requests: what the RPCs need of `replicas.dispatcher.Dispatcher`.

    It is called on the event loop, and calls back there.
    """

    def submit(self, request: Request) -> None:
        """See `Dispatcher.submit`."""

    def check_room(self, sentences: int) -> None:
        """See `Dispatcher.check_room`."""

    def cancel(self, request: Request) -> None:
        """See `Dispatcher.cancel`."""
