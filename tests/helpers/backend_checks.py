"""What tests of backends share: a sentence of every kind, and steps along given tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from translane_server.backend import BEST_TOKEN_ALONE, StepNeeds
from translane_server.options import DecodingOptions, Sampling
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.sentence import FinishReason, Sentence

NEEDS = [
    BEST_TOKEN_ALONE,
    StepNeeds(),
    StepNeeds(num_candidates=4),
    StepNeeds(num_candidates=2, logits=True),
    StepNeeds(attention=True),
    StepNeeds(num_candidates=16, logits=True, attention=True),
    StepNeeds(num_candidates=1 << 12),  # more than the vocabulary has
]


def mixed(sources: Sequence[Sequence[int]]) -> list[Sentence]:
    """A sentence of every kind for each source."""
    kinds = [
        {"scores": False},
        {"scores": False},
        {"beam_size": 3},
        {"scores": True},
        {"beam_size": 2, "num_hypotheses": 2, "alignment": True},
        {"sampling": Sampling(seed=7, temperature=1.0, top_k=5, top_p=1.0)},
        {"sampling": Sampling(seed=8, temperature=1.0, top_k=0, top_p=0.9)},
        {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
    ]
    return [
        Sentence(source, DecodingOptions(**{"max_length": 1 + number % 14, **kinds[number % len(kinds)]}))
        for number, source in enumerate(sources)
    ]


def along(backend: GraphBackend, tokens, needs: StepNeeds, positions=None) -> list:
    """Feed the rows from 0 on `tokens`, [steps, n], and return copies of what each step returns."""
    first = np.zeros(tokens.shape[1], np.int32) if positions is None else positions
    return [copied(backend.decode_step(fed, first + np.int32(step), needs)) for step, fed in enumerate(tokens)]


def copied(candidates) -> dict:
    """The arrays that a step returned, which hold until the next step, as ones that stay; by name."""
    names = ("token_ids", "log_probs", "logits", "attention")
    return {name: array.copy() for name in names if (array := getattr(candidates, name)) is not None}


def greedy(backend: GraphBackend, start: int, rows: int, steps: int):
    """What rows 0 … rows-1 are fed in so many greedy steps, the start token first: [steps, rows]."""
    tokens = [np.full(rows, start, np.int64)]
    for step in range(steps - 1):
        found = backend.decode_step(tokens[-1], np.full(rows, step, np.int32), BEST_TOKEN_ALONE)
        tokens.append(found.token_ids[:, 0].copy())
    return np.stack(tokens)


def distance(found, expected, rows=slice(None)):
    """The largest difference of two lists of steps' logits, of the second list's `rows`."""
    differences = []
    for step, other in zip(found, expected, strict=True):
        ours, theirs = step["logits"], other["logits"][rows]
        # ids that are never generated are -inf on both sides
        differences.append(np.subtract(ours, theirs, out=np.zeros_like(ours), where=ours != theirs))
    return np.abs(differences).max()


def scored_again(backend: GraphBackend, ids, sentence: Sentence, hypothesis):
    """The log-probability of each token of a hypothesis, by a backend that is fed it: [tokens]."""
    ended = hypothesis.finish_reason is FinishReason.END_OF_SENTENCE
    tokens = [*hypothesis.token_ids, *[ids.eos] * ended]
    backend.encode([sentence.source_ids], 0)
    fed = np.array([ids.decoder_start, *tokens[:-1]])[:, None]
    logits = np.concatenate([step["logits"] for step in along(backend, fed, StepNeeds(logits=True))])
    logits -= logits.max(1, keepdims=True)
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True)))[np.arange(len(tokens)), tokens]
