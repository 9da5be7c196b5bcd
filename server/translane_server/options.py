"""How to decode a sentence: the options of the protocol, resolved to numbers, ids and bytes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter
from typing import Any

_DISTINCT_OPTIONS = 256  # requests of one kind have equal options: these are pickled once


@dataclass(frozen=True, slots=True)
class Sampling:
    """Draw each token instead of taking the best.

    The logits are divided by `temperature` (> 0); then the `top_k` best tokens are kept (0: all), and of these the
    fewest best ones whose probabilities add up to `top_p` (1: all). The same `seed` (64 bits) draws the same tokens.
    """

    seed: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """How to decode one sentence. What cannot be combined is refused before it gets here.

    Attributes:
        max_length: most tokens to generate, the end-of-sentence token included and forced ones not; 0 only forces.
        min_length: how many tokens come before the end-of-sentence token at least.
        beam_size: 1 is greedy search, or sampling.
        num_hypotheses: how many to return; at most `beam_size`, but where `sampling` or `alternatives` is set.
        length_penalty: beams are ranked by log-probability / length ^ length_penalty.
        early_stopping: stop as soon as the pool of ended hypotheses is full.
        patience: that pool holds patience * beam_size of them.
        coverage_penalty: weight of Wu et al. 2016's coverage penalty, https://arxiv.org/abs/1609.08144 (14).
        repetition_penalty: Keskar et al. 2019, https://arxiv.org/abs/1909.05858.
        no_repeat_ngram_size: no sequence of so many tokens occurs twice; 0 is off.
        sampling: draw tokens; None takes the best.
        alternatives: the hypotheses differ in the first generated token and go on greedily from there.
        suppressed_ids: tokens that are never generated.
        suppressed_phrases: UTF-8 of phrases that never occur in the text.
        alignment: hypotheses tell which source token each of their tokens comes from.
        scores: hypotheses tell their score and the log-probability of each token, which takes a pass over the
            vocabulary at every step. Without it, greedy search does not compute them.
    """

    max_length: int
    min_length: int = 0
    beam_size: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    early_stopping: bool = False
    patience: float = 1.0
    coverage_penalty: float = 0.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    sampling: Sampling | None = None
    alternatives: bool = False
    suppressed_ids: tuple[int, ...] = ()
    suppressed_phrases: tuple[bytes, ...] = ()
    alignment: bool = False
    scores: bool = True

    @property
    def rows(self) -> int:
        """How many rows decoding takes at most."""
        return max(self.beam_size, self.num_hypotheses)

    @property
    def attention(self) -> bool:
        """Whether the cross-attention weights of each step are needed."""
        return self.alignment or self.coverage_penalty != 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (_pickled(self),)


_values = attrgetter(*[field.name for field in fields(DecodingOptions)])


@lru_cache(_DISTINCT_OPTIONS)
def _pickled(options: DecodingOptions) -> bytes:
    return pickle.dumps(_values(options), pickle.HIGHEST_PROTOCOL)


@lru_cache(_DISTINCT_OPTIONS)
def _unpickled(values: bytes) -> DecodingOptions:
    return DecodingOptions(*pickle.loads(values))  # noqa: S301 from this program


@dataclass(frozen=True, slots=True)
class RequiredPhrase:
    """A phrase that has to occur in the text: its UTF-8, and the tokens that are generated where it would not."""

    text: bytes
    token_ids: tuple[int, ...]
