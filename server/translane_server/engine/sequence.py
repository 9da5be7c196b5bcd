"""What the engine is given, and what it gives back: sentences, their results, and measurements.

Most types are tuples, because millions of them are made and sent between processes.
"""

from __future__ import annotations

from collections import abc
from dataclasses import dataclass
from typing import NamedTuple

from msgspec import Struct, field

from translane_server.engine.options import DecodingOptions, RequiredPhrase, unpacked_options


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The V target tokens."""

    decoder_start: int  # the id that is fed to the decoder first
    eos: int
    # the UTF-8 that each token adds to the text, [V]. It may have a leading space, or be a part of a character (byte
    # fallback). It is empty for control tokens. The text of a translation is the surfaces of its tokens, joined,
    # without a space at the start.
    surfaces: abc.Sequence[bytes] = ()


class Sentence(NamedTuple):
    """One source sentence to decode."""

    source_ids: abc.Sequence[int]  # the S source tokens, the end-of-sentence token included (S ≥ 1)
    options: DecodingOptions
    # tokens that the translation starts with. Their log-probabilities are reported, but do not count in the score. With
    # `options.max_length` 0 they are the whole translation, with its end-of-sentence token: the translation is only
    # scored.
    forced_ids: tuple[int, ...] = ()
    # how many of the last forced tokens count as generated, with a score of 0. They count in the lengths of the
    # options, and in the length by which beams are ranked.
    counted_ids: int = 0
    word_follows: bool = False  # whether the first generated token must start a word
    required_phrases: tuple[RequiredPhrase, ...] = ()  # phrases that must occur in the text (beams only)

    @property
    def allowed_ids(self) -> tuple[int, ...] | None:
        """The tokens that are allowed beside those of a shortlist; None if every token is."""
        if not self.options.shortlist:
            return None
        return self.forced_ids + tuple(id_ for phrase in self.required_phrases for id_ in phrase.token_ids)


# The values of a sequence for another process: number, priority, time, streamed, and the fields of its sentence, the
# options packed.
WireSequence = tuple[
    int, int, float, bool, abc.Sequence[int], bytes, tuple[int, ...], int, bool, tuple[RequiredPhrase, ...]
]


@dataclass(eq=False, slots=True)
class Sequence:
    """A sentence on its way, from its acceptance to its result. The server and the worker have a copy each."""

    number: int  # number of the sequence, unique in its dispatcher
    priority: int  # sequences of higher priority enter the running batch first; equal priorities in order of arrival
    submitted_at: float  # when the dispatcher accepted it [seconds of the clock of all processes]
    streamed: bool  # whether the worker reports tokens as soon as they are committed
    sentence: Sentence

    def to_wire(self) -> WireSequence:
        """Plain values for another process; see `from_wire`."""
        source_ids, options, *others = self.sentence
        return self.number, self.priority, self.submitted_at, self.streamed, source_ids, options.packed, *others  # type: ignore[return-value]

    @classmethod
    def from_wire(cls, values: WireSequence) -> Sequence:
        """Restore a sequence from `to_wire`."""
        sentence = Sentence(values[4], unpacked_options(values[5]), *values[6:])
        return cls(*values[:4], sentence)

    def cost(self, target_tokens: int = -1) -> int:
        """The work that the sequence takes: source tokens + rows * target tokens, by default as many as expected."""
        sentence = self.sentence
        source = len(sentence.source_ids)
        if target_tokens < 0:
            options = sentence.options
            generated = max(options.min_length, min(options.max_length, 2 * source))
            target_tokens = generated + len(sentence.forced_ids)
        return source + sentence.options.rows * target_tokens


class AlignedToken(NamedTuple):
    """The source token to which a target token attends most, and the attention weight (0 … 1)."""

    source_token: int
    weight: float


class CommittedTokens(NamedTuple):
    """The next tokens on which all hypotheses of a sentence agree."""

    token_ids: tuple[int, ...]  # T tokens
    alignment: tuple[AlignedToken, ...] = ()  # alignment of each token; empty if it was not requested


class Hypothesis(NamedTuple):
    """A translation as token ids: the forced and the generated ones, without the end-of-sentence token."""

    token_ids: tuple[int, ...]  # T tokens
    # sum of the natural log-probabilities of the generated tokens, with the end-of-sentence token. Beam search divides
    # the sum by length ^ length_penalty and adds the weighted coverage penalty. None if scores were not requested.
    score: float | None
    is_complete: bool  # whether the end-of-sentence token ended the hypothesis; otherwise the maximum length did
    # natural log-probability of each token under the model alone, [T]; [T + 1] with the end-of-sentence token of a
    # complete hypothesis; empty if scores were not requested
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[AlignedToken, ...] = ()  # alignment of each token, [T]; empty if it was not requested


class Timing(NamedTuple):
    """Time in each phase [seconds]: waiting for a row, in the encoder, and in the decoder until the last token."""

    queue: float  # seconds of waiting
    encode: float  # seconds of the encoder run
    decode: float  # seconds from the row to the last token
    steps: int = 0  # decoder steps in which the sentence took part
    row_steps: int = 0  # sum of the rows of these steps, those of other sentences included


class SentenceResult(NamedTuple):
    """The hypotheses of one sentence, best first, and its time in each phase."""

    hypotheses: tuple[Hypothesis, ...]
    timing: Timing


class StepStats(NamedTuple):
    """Measurements, in the order in which they were taken."""

    encodes: list[tuple[float, int]]  # seconds and source tokens of each run of the encoder
    queue_times: list[float]  # waiting time of each sentence, until it got its row; without the encoder run
    steps: list[tuple[float, int]]  # seconds and rows of each decode step. Each row got one token.
    moves: list[tuple[float, int]]  # seconds and rows of each copy of rows between two steps
    first_token_times: list[float]  # time from the acceptance of each sentence to its first token


class EngineInput(NamedTuple):
    """What a worker is told. Sequences are identified by their numbers."""

    sequences: abc.Sequence[Sequence]
    cancelled: abc.Sequence[int]  # sequences to drop. They may be new, or may have ended.
    answer: bool = False  # whether the worker must give an output, even an empty one: a sign of life


class EngineOutput(Struct, array_like=True):
    """What a worker has done since its last output. Sequences are identified by their numbers."""

    ended: list[tuple[int, SentenceResult]] = []  # sequences with their results
    dropped: list[int] = []  # cancelled sequences, whose rows are free
    # streamed sequences with their new committed tokens, in order
    committed: list[tuple[int, CommittedTokens]] = []
    stats: StepStats = field(default_factory=lambda: StepStats([], [], [], [], []))
    failed: list[int] = []  # sequences whose step has failed. Their rows are free.
    is_starved: bool = False  # whether the worker ends for lack of memory, which is no sequence's fault
