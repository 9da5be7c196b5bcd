"""Shared by tests of backends: sentences of every kind, and steps along given tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.bundle.manifest import SpecialIds
from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.engine.options import DecodingOptions, Sampling
from translane_server.engine.sequence import Hypothesis, Sentence
from translane_server.runtime.backend import BEST_TOKEN_ALONE, Candidates, StepNeeds
from translane_server.runtime.graph_backend import GraphBackend

Step = dict[str, npt.NDArray[Any]]  # the arrays that a step returned, by name

NEEDS = [
    BEST_TOKEN_ALONE,
    StepNeeds(),
    StepNeeds(num_candidates=4),
    StepNeeds(num_candidates=2, logits=True),
    StepNeeds(num_candidates=16, logits=True),
    StepNeeds(num_candidates=1 << 12),  # more than the vocabulary has
]


def mixed(sources: Sequence[Sequence[int]]) -> list[Sentence]:
    """Return a sentence for each source, with every kind of options in turn."""
    kinds: list[dict[str, Any]] = [
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


def along(
    backend: GraphBackend,
    tokens: IntArray,
    needs: StepNeeds,
    positions: Int32Array | None = None,
    *,
    keep: bool = False,
) -> list[Step]:
    """Feed `tokens`, [steps, n], to the rows 0 … n-1. Return copies of what each step returns.

    With `keep`, the steps are kept under the numbers from 0.
    """
    first = np.zeros(tokens.shape[1], np.int32) if positions is None else positions
    return [
        copied(backend.decode_step(fed, first + np.int32(step), needs, step if keep else None))
        for step, fed in enumerate(tokens)
    ]


def attention_of(backend: GraphBackend, rows: int, steps: int) -> FloatArray:
    """Return the attention weights of the first steps, which are kept under the numbers from 0: [rows, steps, C]."""
    return np.stack([backend.align(row, 0, [row] * steps) for row in range(rows)])


def copied(candidates: Candidates) -> Step:
    """Return copies of a step's arrays by name, because the next step overwrites the arrays."""
    names = ("token_ids", "log_probs", "logits")
    return {name: array.copy() for name in names if (array := getattr(candidates, name)) is not None}


def greedy(backend: GraphBackend, start: int, rows: int, steps: int) -> IntArray:
    """Return the tokens that so many greedy steps feed to rows 0 … rows-1, the start token first: [steps, rows]."""
    tokens = [np.full(rows, start, np.int64)]
    for step in range(steps - 1):
        found = backend.decode_step(tokens[-1], np.full(rows, step, np.int32), BEST_TOKEN_ALONE)
        tokens.append(found.token_ids[:, 0].copy())
    return np.stack(tokens)


def distance(found: Sequence[Step], expected: Sequence[Step], rows: slice = slice(None)) -> float:
    """Return the largest difference between the logits of two lists of steps; of the second list, only of `rows`."""
    differences = []
    for step, other in zip(found, expected, strict=True):
        ours, theirs = step["logits"], other["logits"][rows]
        # ids that are never generated are -inf on both sides
        differences.append(np.subtract(ours, theirs, out=np.zeros_like(ours), where=ours != theirs))
    return float(np.abs(differences).max())


def scored_again(backend: GraphBackend, ids: SpecialIds, sentence: Sentence, hypothesis: Hypothesis) -> FloatArray:
    """Feed a hypothesis to a backend. Return the log-probability of each of its tokens: [tokens]."""
    ended = hypothesis.is_complete
    tokens = [*hypothesis.token_ids, *[ids.eos] * ended]
    backend.encode([sentence.source_ids], 0)
    fed = np.array([ids.decoder_start, *tokens[:-1]])[:, None]
    logits = np.concatenate([step["logits"] for step in along(backend, fed, StepNeeds(logits=True))])
    logits -= logits.max(1, keepdims=True)
    log_probs: FloatArray = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    return log_probs[np.arange(len(tokens)), tokens]
