"""What is answered: translations, scores, models and limits, as plain frozen values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class FinishReason(StrEnum):
    """Why decoding ended."""

    UNSPECIFIED = "unspecified"
    """The server gave no reason, or a reason that this client does not know."""
    END_OF_SENTENCE = "end_of_sentence"
    """The model ended the sentence."""
    MAX_LENGTH = "max_length"
    """The translation reached max_length, or the server's limit of target tokens."""


@dataclass(frozen=True, slots=True)
class AlignmentPoint:
    """A target token, and the source token that it attends to most. Both are counted from 0."""

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
    """Log-probability of the generated tokens, without those of target_prefix. Beam search normalises it as the options
    say; otherwise it is the sum over the tokens. None for greedy search's hypothesis, unless return_token_scores was
    set."""
    finish_reason: FinishReason = FinishReason.UNSPECIFIED
    tokens: tuple[str, ...] = ()
    """Filled where return_tokens was set; includes the tokens of target_prefix and the end-of-sentence token."""
    token_log_probs: tuple[float, ...] = ()
    """Filled where return_token_scores was set: natural logarithm of each token's probability under the model."""
    alignment: tuple[AlignmentPoint, ...] = ()
    """Filled where return_alignment was set: a point for each target token, without the end-of-sentence token."""
    quality: float | None = None
    """Estimated quality, from 0 to 1; None unless return_quality was set."""


class TermOutcome(StrEnum):
    """What became of a term."""

    UNSPECIFIED = "unspecified"
    """The server gave no outcome, or an outcome that this client does not know."""
    APPLIED = "applied"
    """The target is in the translation."""
    NOT_FOUND = "not_found"
    """The source does not occur in the text, or only where another term counts."""
    UNSPELLABLE = "unspellable"
    """The model's vocabulary cannot spell the target."""
    TOO_MANY = "too_many"
    """The text has more terms than a sentence can keep."""
    PRESERVED = "preserved"
    """The source occurs only within something that is preserved."""
    MISSED = "missed"
    """The search ended before the target was in the translation."""


@dataclass(frozen=True, slots=True)
class TermReport:
    """A term, and what became of the term in one text."""

    source: str
    target: str
    outcome: TermOutcome
    glossary: str = ""
    """Name of the stored glossary; empty for a term of the request."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """What the server did with a text besides translating it."""

    sentences: int = 0
    """How many sentences the text was cut into; 0 if it was not cut."""
    cut_sentences: int = 0
    """How many sentences were too long for the model, and were cut in their middle."""
    preserved: int = 0
    """How many places were preserved."""
    terms: tuple[TermReport, ...] = ()
    """All terms of the request, and the stored terms that occur in the text."""
    source_language: str | None = None
    """BCP-47 tag of the language that the server found where the request said "auto"; otherwise None."""
    pivot_language: str | None = None
    """BCP-47 tag of the language between two models that translated one after the other; None for one model."""
    stand_ins: int = 0
    """How many places the model translated as stand-ins: places that were preserved, names and numbers."""
    decoded_again: int = 0
    """How many sentences were decoded again, because their first translation lacked a stand-in or a number, or had a
    stand-in twice."""
    missing_numbers: int = 0
    """With check_numbers: how many numbers of the text the translation still lacks."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of a request went, in seconds. The phases are the slowest text's."""

    queue: float
    """From the request's acceptance to the text's entry into the running batch."""
    encode: float
    """Running the encoder."""
    decode: float
    """From the first decoder step to the last."""
    total: float
    """From the request's arrival to the sending of the answer."""
    cached_texts: int = 0
    """How many texts of the request had their translations from the server's cache."""


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text. `str()` is the best hypothesis' text."""

    hypotheses: tuple[Hypothesis, ...]
    """Best first; at least one."""
    source_tokens: int
    """Length of the source in tokens, with the end-of-sentence token; 0 for an empty text."""
    models: tuple[str, ...] = ()
    """Name of the model that translated the text. Two models translated one after the other."""
    timing: Timing | None = None
    """Timing of the request that the text travelled in."""
    source_pieces: tuple[str, ...] = ()
    """The tokens of the source; filled where return_tokens or return_alignment was set."""
    treatment: Treatment | None = None
    """What the server did with the text besides translating it; None if it did nothing else."""
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name of each model that the request took → its version, "@", and the digest of its bundle."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The best hypothesis' text."""
        return self.hypotheses[0].text

    @property
    def model(self) -> str:
        """The names of the models, joined by " + "."""
        return " + ".join(self.models)

    @property
    def score(self) -> float | None:
        """The best hypothesis' score."""
        return self.hypotheses[0].score

    @property
    def finish_reason(self) -> FinishReason:
        """Why decoding of the best hypothesis ended."""
        return self.hypotheses[0].finish_reason


@dataclass(frozen=True, slots=True)
class Translations:
    """The translations of a request's texts, in their order."""

    translations: Sequence[Translation]
    """`timing` and `versions` of each are those of the request, and are not filled. Nor is `models`, unless it differs
    between them."""
    models: tuple[str, ...]
    """What translated every text; empty if this differs between the texts."""
    timing: Timing
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name of each model that took part → its version, "@", and the digest of its bundle."""


@dataclass(frozen=True, slots=True)
class StreamedTranslation:
    """The whole translation at the end of a stream. `str()` is the translation's text."""

    hypothesis: Hypothesis
    """The best hypothesis. The stream's deltas concatenate to its text."""
    timing: Timing | None = None
    treatment: Treatment | None = None
    """What the server did with the text besides translating it; None if it did nothing else."""
    models: tuple[str, ...] = ()
    """Name of the model that translated the text. Two models translated one after the other."""
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name of each model that took part → its version, "@", and the digest of its bundle."""

    def __str__(self) -> str:
        return self.text

    @property
    def text(self) -> str:
        """The translation's text."""
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
class Delta:
    """A part of a streamed translation. The texts of a stream's deltas concatenate to the translation."""

    text: str
    translation: StreamedTranslation | None = None
    """The whole translation, in the last delta only."""


@dataclass(frozen=True, slots=True)
class DocumentProgress:
    """How far the translation of a document is."""

    texts_done: int
    texts: int


@dataclass(frozen=True, slots=True)
class DocumentNote:
    """What a reader of a translated document should know of one of its texts: either of the two."""

    line: int
    """The line of the original file where the text begins; the first one is 1."""
    cut_sentences: int = 0
    """How many sentences were too long for the model, and were cut in their middle."""
    term: TermReport | None = None
    """A term that the translation lacks."""


@dataclass(frozen=True, slots=True)
class TranslatedDocument:
    """A translated file."""

    content: bytes
    """The file. All that is not translated is as in the original, byte for byte."""
    timing: Timing | None = None
    treatment: Treatment | None = None
    """What was done with all texts besides translating them: sums, and each term once. None if nothing was."""
    notes: tuple[DocumentNote, ...] = ()
    """What its reader should know, at most 100 of them, in the order of the file."""
    models: tuple[str, ...] = ()
    """Names of the models that translated; empty if the file has nothing to translate."""
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name of each model that took part → its version, "@", and the digest of its bundle."""


@dataclass(frozen=True, slots=True)
class Score:
    """How probable the model finds a given translation."""

    total_log_prob: float
    """Natural logarithm of the target's probability, with the end-of-sentence token."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each token, with the end-of-sentence token; they add up to the total."""
    tokens: tuple[str, ...] = ()
    """Filled where return_tokens was set: a token for each of token_log_probs."""
    model: str = ""
    """Name of the model that scored."""
    timing: Timing | None = None
    """Timing of the request that the pair travelled in."""
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name of each model that took part → its version, "@", and the digest of its bundle."""

    @property
    def mean_log_prob(self) -> float:
        """The total divided by the number of tokens; 0 where there are none."""
        return self.total_log_prob / max(1, len(self.token_log_probs))

    @property
    def perplexity(self) -> float:
        """exp(-mean_log_prob): 1 where the model is certain of every token."""
        return perplexity_of(self.mean_log_prob)


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of a request's inputs, in their order."""

    scores: Sequence[Score]
    """`model`, `timing` and `versions` of each are those of the request, and are not filled."""
    model: str
    timing: Timing
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Name of each model that took part → its version, "@", and the digest of its bundle."""


def perplexity_of(mean_log_prob: float) -> float:
    """exp(-mean_log_prob), or infinity where a float cannot hold the result."""
    try:
        return math.exp(-mean_log_prob)
    except OverflowError:
        return math.inf


class ModelState(StrEnum):
    """Whether a model translates."""

    UNSPECIFIED = "unspecified"
    """The server gave no state, or a state that this client does not know."""
    LOADING = "loading"
    """It is loaded for the first time. Requests are refused until then."""
    READY = "ready"
    """It translates."""
    IDLE = "idle"
    """It was not used for a time, and is not in memory. The next request loads it, and waits for it."""
    UNLOADED = "unloaded"
    """It was unloaded by ModelService. Requests are refused."""
    FAILED = "failed"
    """Its decoding has failed. Requests are refused."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model of a server, and its limits there."""

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
    """Longest sentence of a source, with the end-of-sentence token."""
    max_target_tokens: int
    """Longest translation of a sentence, with the end-of-sentence token."""
    default_max_length: int
    """Most tokens to generate where a request sets no max_length."""
    decoding_defaults: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Decoding option → its value where a request does not set it. Options without a default are absent."""
    digest: str = ""
    """The first digits of the sha256 of the bundle's manifest, which has the digests of all other files."""
    glossaries: tuple[str, ...] = ()
    """Names of the stored glossaries for the model's languages."""
    state: ModelState = ModelState.UNSPECIFIED
    """Whether it translates."""
    max_beam_size: int = 0
    """Most beams, and most hypotheses, of one text."""
    max_queue_size: int = 0
    """Most sentences that wait for a row of the model."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The server's limits on every request, whichever the model."""

    max_request_texts: int
    """Most texts in one request."""
    max_queue_size: int
    """Most sentences that wait for a row; more are refused."""
    max_beam_size: int
    """Most beams, and most hypotheses, of one text."""
    document_bytes: int = 0
    """Most bytes of a document and its options; 0 from a server that translates no documents."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server: its version, its limits and its models."""

    version: str
    limits: Limits
    models: tuple[ModelInfo, ...]
