"""What the client hands back: plain frozen values, without protobuf."""

from __future__ import annotations

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
    """A link between a source token and a target token, by their positions."""

    source_token: int
    target_token: int
    weight: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One candidate translation."""

    text: str
    score: float
    """Log-probability of the generated tokens, normalised as the decoding options say."""
    finish_reason: FinishReason = FinishReason.UNSPECIFIED
    tokens: tuple[str, ...] = ()
    """Filled where return_tokens was set."""
    token_log_probs: tuple[float, ...] = ()
    """Filled where return_token_scores was set."""
    alignment: tuple[AlignmentPoint, ...] = ()
    """Filled where return_alignment was set."""


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
    """Length of the source in tokens."""
    model: str = ""
    """Name of the model that translated."""
    timing: Timing | None = None
    """Timing of the request this text travelled in."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The best hypothesis' text."""
        return self.hypotheses[0].text

    @property
    def score(self) -> float:
        """The best hypothesis' score."""
        return self.hypotheses[0].score

    @property
    def finish_reason(self) -> FinishReason:
        """Why decoding of the best hypothesis ended."""
        return self.hypotheses[0].finish_reason


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
