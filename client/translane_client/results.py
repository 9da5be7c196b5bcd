"""What the client hands back: plain frozen values, without protobuf."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum


class FinishReason(StrEnum):
    """Why decoding ended."""

    UNSPECIFIED = "unspecified"
    """The server gave none, or one this client does not know."""
    END_OF_SENTENCE = "end_of_sentence"
    """The model ended the sentence."""
    MAX_LENGTH = "max_length"
    """max_length, or the server's limit of target tokens, was reached."""


@dataclass(frozen=True, slots=True)
class AlignmentPoint:
    """The source token that a target token attends to most; both are counted from 0."""

    source_token: int
    """Position in Translation.source_pieces."""
    target_token: int
    """Position in Hypothesis.tokens."""
    weight: float
    """The attention weight, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One candidate translation."""

    text: str
    score: float | None
    """Log-probability of the generated tokens. Beams: normalised as the options say; otherwise their sum. The tokens of
    target_prefix are no part of it. None for greedy search's one hypothesis, unless return_token_scores was set."""
    finish_reason: FinishReason = FinishReason.UNSPECIFIED
    tokens: tuple[str, ...] = ()
    """Filled where return_tokens was set: those of target_prefix and the end-of-sentence token included."""
    token_log_probs: tuple[float, ...] = ()
    """Filled where return_token_scores was set: the natural logarithm of each token's probability under the model."""
    alignment: tuple[AlignmentPoint, ...] = ()
    """Filled where return_alignment was set: a point for each target token but the end-of-sentence token."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a request went, in seconds. The phases are those of the slowest text of the request."""

    queue: float
    """From acceptance to entering the running batch."""
    encode: float
    """Running the encoder."""
    decode: float
    """From the first decoder step to the last."""
    total: float
    """From receiving the request to sending its answer."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text. `str()` is the text of its best hypothesis."""

    hypotheses: tuple[Hypothesis, ...]
    """Best first; at least one."""
    source_tokens: int
    """Length of the source in tokens, the end-of-sentence token included; 0 for an empty text."""
    model: str = ""
    """Name of the model that translated."""
    timing: Timing | None = None
    """Timing of the request this text travelled in."""
    source_pieces: tuple[str, ...] = ()
    """The tokens of the source, filled where return_tokens or return_alignment was set."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The best hypothesis' text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float | None:
        """The best hypothesis' score."""
        return self.hypotheses[0].score

    @property
    def finish_reason(self) -> FinishReason:
        """Why decoding of the best hypothesis ended."""
        return self.hypotheses[0].finish_reason


@dataclass(frozen=True, slots=True)
class StreamedTranslation:
    """What a stream ends with: the best translation of its text. `str()` is its text."""

    hypothesis: Hypothesis
    """Its text is what the deltas concatenate to."""
    timing: Timing | None = None

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The whole translation."""
        return self.hypothesis.text

    @property
    def score(self) -> float | None:
        """The hypothesis' score."""
        return self.hypothesis.score

    @property
    def finish_reason(self) -> FinishReason:
        """Why decoding ended."""
        return self.hypothesis.finish_reason


@dataclass(frozen=True, slots=True)
class Score:
    """How probable the model finds a given translation."""

    total_log_prob: float
    """Natural logarithm of the probability of the target, its end-of-sentence token included."""
    token_log_probs: tuple[float, ...]
    """Of each token, the end-of-sentence token included: they add up to the total."""
    tokens: tuple[str, ...] = ()
    """Filled where return_tokens was set: as many as token_log_probs."""

    @property
    def mean_log_prob(self) -> float:
        """The total divided by the number of tokens; 0 without any."""
        return self.total_log_prob / max(1, len(self.token_log_probs))

    @property
    def perplexity(self) -> float:
        """exp(-mean_log_prob): 1 where the model is certain of every token."""
        return perplexity_of(self.mean_log_prob)


def perplexity_of(mean_log_prob: float) -> float:
    """exp(-mean_log_prob), or infinity where that is more than a float holds."""
    try:
        return math.exp(-mean_log_prob)
    except OverflowError:
        return math.inf


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model the server has loaded."""

    name: str
    version: str
    source_languages: tuple[str, ...]
    """BCP-47 tags."""
    target_languages: tuple[str, ...]
    """BCP-47 tags."""
    precision: str
    """ "fp32", "fp16" or "int8"."""
    device: str
    """ "cpu" or "cuda"."""
    license: str
    parameters: int
    """Number of weights."""
    max_source_tokens: int
    max_target_tokens: int
    default_max_length: int
    """Tokens generated at most where a request sets no max_length."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What every request is held to, whichever the model."""

    texts_per_request: int
    sentences_waiting: int
    beam_size: int


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server: its version, its limits and its models."""

    version: str
    limits: Limits
    models: tuple[ModelInfo, ...]
