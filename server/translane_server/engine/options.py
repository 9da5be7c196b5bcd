"""Decoding options of a sentence: the options of the protocol, resolved to numbers, ids and bytes."""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache

import msgspec

_DISTINCT_OPTIONS = 256  # many sentences have equal options, which are made once

# Sampling among at most so many tokens reads the candidates of a step. A step finds the same number of candidates for
# all rows, so rows that sample among more tokens read the logits.
_MOST_CANDIDATES = 256


class Kind(enum.Enum):
    """How a search chooses its next tokens."""

    GREEDY = "greedy"
    SAMPLE_CANDIDATES = "sample among the best candidates"
    SAMPLE_VOCABULARY = "sample among all tokens"
    BEAM = "beam"


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of tokens, in place of greedy search.

    The logits are divided by `temperature` (> 0). Then the `top_k` best tokens are kept (0: all). Of these,
    the fewest best tokens whose probabilities sum to `top_p` are kept (1: all). The same `seed` (64 bits) draws the
    same tokens.
    """

    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True)
class DecodingOptions:
    """How to decode one sentence. Options that cannot be combined are refused before.

    Many sentences share the same options, so what follows from options is found once.
    """

    # maximum number of generated tokens. The end-of-sentence token counts; forced tokens do not. 0 only scores the
    # forced tokens.
    max_length: int
    min_length: int = 0  # minimum number of tokens before the end-of-sentence token
    beam_size: int = 1  # number of beams; 1 means greedy search or sampling
    # number of hypotheses to return; at most `beam_size`, unless `sampling` or `alternatives` is set
    num_hypotheses: int = 1
    length_penalty: float = 1.0  # exponent of the length: beams are ranked by log-probability / length ^ length_penalty
    early_stopping: bool = False  # whether to stop as soon as the pool of ended hypotheses is full
    patience: float = 1.0  # the pool of ended hypotheses holds patience * beam_size of them
    # weight of the coverage penalty of Wu et al. 2016, https://arxiv.org/abs/1609.08144 (14)
    coverage_penalty: float = 0.0
    repetition_penalty: float = 1.0  # penalty of Keskar et al. 2019, https://arxiv.org/abs/1909.05858; 1 is off
    no_repeat_ngram_size: int = 0  # no n-gram of this size occurs twice; 0 is off
    sampling: Sampling | None = None  # how to sample tokens; None takes the best token
    alternatives: bool = False  # whether the hypotheses differ in their first generated token, and continue greedily
    suppressed_ids: tuple[int, ...] = ()  # tokens that are never generated
    suppressed_phrases: tuple[bytes, ...] = ()  # UTF-8 of phrases that never occur in the text
    alignment: bool = False  # whether hypotheses have an alignment
    # whether hypotheses have a score and token log-probabilities. These take a pass over the vocabulary at every step;
    # greedy search without them saves that pass.
    scores: bool = True
    # whether only the tokens of the model's shortlist are generated. Probabilities are then shares of these tokens.
    shortlist: bool = False

    @cached_property
    def kind(self) -> Kind:
        """How a search chooses its next tokens."""
        if self.beam_size > 1:
            return Kind.BEAM
        if self.sampling:
            few = 0 < self.sampling.top_k <= _MOST_CANDIDATES
            return Kind.SAMPLE_CANDIDATES if few else Kind.SAMPLE_VOCABULARY
        return Kind.GREEDY

    @cached_property
    def rows(self) -> int:
        """Maximum number of rows that decoding takes."""
        return max(self.beam_size, self.num_hypotheses)

    @cached_property
    def attention(self) -> bool:
        """Whether decoding needs the cross-attention weights of each step."""
        return self.alignment or self.coverage_penalty != 0.0

    @cached_property
    def rules(self) -> bool:
        """Whether every token has to be looked at: an option is set that needs more than the best candidates."""
        return any(getattr(self, name) != default for name, default in _RULED)

    @cached_property
    def packed(self) -> bytes:
        """The options for another process; see `unpacked_options`."""
        return msgspec.msgpack.encode(self)


# Options that need no rule for every token. A row with any other option takes the general way through every step, so
# that no fast way can pass over a new option.
_WITHOUT_RULES = {
    "max_length", "min_length", "beam_size", "num_hypotheses", "length_penalty", "early_stopping", "patience",
    "coverage_penalty", "sampling", "alternatives", "alignment", "scores", "shortlist",
}  # fmt: skip
_RULED = [(each.name, each.default) for each in fields(DecodingOptions) if each.name not in _WITHOUT_RULES]
_options = msgspec.msgpack.Decoder(DecodingOptions)


@lru_cache(_DISTINCT_OPTIONS)
def unpacked_options(packed: bytes) -> DecodingOptions:
    """Restore options from `packed`."""
    return _options.decode(packed)


@dataclass(frozen=True, slots=True)
class RequiredPhrase:
    """A phrase that must occur in the text: its UTF-8, and the tokens that decoding forces if it would be missing."""

    text: bytes
    token_ids: tuple[int, ...]
    # whether its last token, which is in no other phrase, is banned as soon as the text has the phrase
    once: bool = False
