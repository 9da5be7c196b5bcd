"""Compares what was exported with the PyTorch model, over real greedy decodes.

The exported graphs decode many sentences at once, each at its own position, as the server does. The PyTorch model then
sees each sentence alone with the tokens that were chosen, in one full forward pass without any cache.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from translane_export.alignment import recorded_attention
from translane_export.errors import ExportError
from translane_export.model import Transformer
from translane_export.precision import Numerics
from translane_server.backend import Candidates, Int32Array, IntArray, StepNeeds
from translane_server.bundle import Alignment, Parity

ROWS = 8
CANDIDATES = 4
LONGEST = 512
_MOST_STEPS = 96
_ADMITTED_TOGETHER = 3
_EXACT_UP_TO = 16.0  # logits; differences are relative in steps that have larger ones, as T5 does
_STEPS_AT_ONCE = 16  # compared: of a large vocabulary a step has a megabyte of logits
_RANDOM_LENGTHS = (1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 96)


class StepBackend(Protocol):
    """What is verified: as much of `translane_server.backend.Backend` as greedy decoding takes."""

    @property
    def source_capacity(self) -> int:
        """Most source tokens of a row."""

    @property
    def target_capacity(self) -> int:
        """Most steps of a row."""

    def encode(self, sources: Sequence[Sequence[int]], first_row: int) -> None:
        """See `Backend.encode`."""

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds) -> Candidates:
        """See `Backend.decode_step`."""


@dataclass
class _Decode:
    """A sentence on a row, with what the graphs said at each step."""

    source: list[int]
    most_steps: int
    tokens: list[int] = field(default_factory=list)
    candidates: list[Candidates] = field(default_factory=list)  # [K] each
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)  # [V] each
    attention: list[npt.NDArray[np.float32]] = field(default_factory=list)  # [S] each


def verification_sources(samples: Iterable[Sequence[int]], model: Transformer, capacity: int) -> list[list[int]]:
    """Return the sources to verify with: the samples that fit, and random ids of many lengths up to `capacity`."""
    config = model.config
    generator = random.Random(0)  # noqa: S311 the same sources at every export, nothing secret
    sources = [list(sample) for sample in samples if 0 < len(sample) <= capacity]
    ordinary = [i for i in range(config.source_vocab_size) if i not in (config.pad_id, config.bos_id, config.eos_id)]
    for length in sorted({capacity, *(min(length, capacity) for length in _RANDOM_LENGTHS)}):
        sources.append([*generator.choices(ordinary, k=length - 1), config.eos_id])
    generator.shuffle(sources)
    return sources


def check_parity(
    backend: StepBackend,
    reference: Transformer,
    sources: Sequence[Sequence[int]],
    numerics: Numerics,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
    alignment: Alignment | None = None,
) -> Parity:
    """Decode `sources` with `backend` and compare every step with `reference`.

    With an `alignment`, which says where the backend's attention weights are from, compare those as well. The last
    source is decoded alone up to the capacity, whether or not the sentence ends before.

    Raises:
        ExportError: a step chose an id outside the vocabulary.
    """
    difference, attention_difference, tokens, mismatches = 0.0, 0.0, 0, 0
    attention = alignment is not None
    decodes = itertools.chain(
        _decode_greedily(backend, reference, sources[:-1], attention=attention),
        _decode_greedily(backend, reference, sources[-1:], attention=attention, to_capacity=True),
    )
    for done, decode in enumerate(decodes, start=1):
        hidden, weights = _teacher_forced(reference, decode, alignment)  # [T, M], [T, S]
        for first in range(0, len(decode.tokens), _STEPS_AT_ONCE):
            block = slice(first, first + _STEPS_AT_ONCE)
            block_difference, wrong = _compare_steps(reference, decode, hidden, block, numerics)
            difference = float(np.maximum(difference, block_difference))
            mismatches += wrong
        if weights is not None:
            given = np.stack(decode.attention)  # [T, C]
            wanted = np.pad(weights, ((0, 0), (0, given.shape[1] - weights.shape[1])))
            attention_difference = float(np.maximum(attention_difference, _largest(given, wanted)))
        tokens += len(decode.tokens)
        progress(done, len(sources))
    return Parity(
        sentences=len(sources),
        tokens=tokens,
        max_logit_difference=difference,
        tolerance=numerics.tolerance,
        token_mismatches=mismatches,
        max_attention_difference=attention_difference if attention else None,
        attention_tolerance=numerics.attention_tolerance if attention else None,
    )


def passes(parity: Parity) -> bool:
    """Whether every logit and attention weight is within the tolerance and every token is PyTorch's."""
    if parity.max_attention_difference is not None and parity.attention_tolerance is not None:
        aligned = parity.max_attention_difference <= parity.attention_tolerance
    else:
        aligned = True
    return aligned and parity.max_logit_difference <= parity.tolerance and parity.token_mismatches == 0


def _compare_steps(
    reference: Transformer, decode: _Decode, hidden: torch.Tensor, block: slice, numerics: Numerics
) -> tuple[float, int]:
    """Return the largest difference of some steps' logits and log-probabilities, and how many tokens are wrong.

    `hidden` [T, M] is what PyTorch's decoder gives at each step.
    """
    with torch.inference_mode():
        logits = reference.project(hidden[block])  # [t, V]
        expected, expected_log_probs = logits.numpy(), logits.log_softmax(dim=1).numpy()  # [t, V]
    # a step's logits are as exact as the largest of them lets them be: float32 has 7 digits
    scale = np.maximum(1.0, np.abs(expected).max(axis=1, keepdims=True) / _EXACT_UP_TO)  # [t, 1]
    for values in (expected, expected_log_probs):
        values[:, list(reference.config.suppressed_ids)] = -np.inf
    actual = np.stack(decode.logits[block])  # [t, V]
    ids = np.stack([candidates.token_ids for candidates in decode.candidates[block]])  # [t, K]
    log_probs = np.stack([candidates.log_probs for candidates in decode.candidates[block]])  # [t, K]
    known = np.clip(ids, 0, expected.shape[1] - 1)
    difference = np.maximum(
        _largest(actual / scale, expected / scale),
        _largest(log_probs / scale, np.take_along_axis(expected_log_probs, known, axis=1) / scale),
    )
    chosen = expected[np.arange(len(actual)), decode.tokens[block]]
    wrong = (expected.max(axis=1) - chosen > numerics.token_margin) | (known != ids).any(axis=1)
    return float(difference), int((wrong | ~_are_best(known, actual)).sum())


def _largest(actual: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> float:
    """Return the largest difference; what is -inf has to be -inf in both.

    A NaN anywhere makes the maximum NaN, and NaN passes no tolerance.
    """
    with np.errstate(invalid="ignore"):
        differences = np.where(actual == expected, 0.0, np.abs(actual - expected))
    return float(differences.max())


def _are_best(ids: IntArray, logits: npt.NDArray[np.float32]) -> npt.NDArray[np.bool_]:
    """Return for each step whether `ids` [T, K] are different tokens with the K best of `logits` [T, V], in order."""
    best = -np.sort(-logits, axis=1)[:, : ids.shape[1]]
    in_order: npt.NDArray[np.bool_] = (np.take_along_axis(logits, ids, axis=1) == best).all(axis=1)
    return in_order & (np.diff(np.sort(ids, axis=1), axis=1) > 0).all(axis=1)


def _decode_greedily(
    backend: StepBackend,
    reference: Transformer,
    sources: Sequence[Sequence[int]],
    *,
    attention: bool,
    to_capacity: bool = False,
) -> Iterable[_Decode]:
    """Yield each sentence once it has ended. A row that becomes free takes the next sentence at once."""
    config = reference.config
    needs = StepNeeds(min(CANDIDATES, config.target_vocab_size), logits=True, attention=attention)
    waiting: list[Sequence[int]] = list(reversed(sources))
    rows: list[_Decode | None] = [None] * min(ROWS, len(sources))
    while True:
        _admit(backend, rows, waiting, to_capacity=to_capacity)
        stepped = rows[: max((row + 1 for row, running in enumerate(rows) if running), default=0)]
        if not stepped:
            return
        # a row without a sentence between others goes on at position 0 with whatever it holds
        last = [decode.tokens[-1] if decode and decode.tokens else config.start_id for decode in stepped]
        positions = [len(decode.tokens) if decode else 0 for decode in stepped]
        candidates = backend.decode_step(np.array(last, np.int64), np.array(positions, np.int32), needs)
        chosen, logits = candidates.token_ids[:, 0].tolist(), candidates.logits
        assert logits is not None
        for row, decode in enumerate(stepped):
            if decode is None:
                continue
            if not 0 <= chosen[row] < config.target_vocab_size:
                raise ExportError(f"the exported model chose {chosen[row]}, which is no id of its target vocabulary")
            decode.tokens.append(chosen[row])
            decode.logits.append(logits[row].copy())
            if candidates.attention is not None:
                decode.attention.append(candidates.attention[row].copy())
            # the backend gives the same memory at every step
            decode.candidates.append(Candidates(candidates.token_ids[row].copy(), candidates.log_probs[row].copy()))
            # PyTorch takes padding for what is not there, so a decode cannot go on after it
            ended = chosen[row] == config.pad_id or (chosen[row] == config.eos_id and not to_capacity)
            if ended or len(decode.tokens) == decode.most_steps:
                yield decode
                rows[row] = None


def _admit(
    backend: StepBackend, rows: list[_Decode | None], waiting: list[Sequence[int]], *, to_capacity: bool
) -> None:
    """Put a few waiting sentences on the first free rows side by side, encoded together.

    A few at a step, so that rows are at different places in their sentences.
    """
    first = next((row for row, running in enumerate(rows) if running is None), len(rows))
    row = first
    while row < min(len(rows), first + _ADMITTED_TOGETHER) and rows[row] is None and waiting:
        source = list(waiting.pop())
        # decodes of many lengths, also where a model never ends a sentence
        most = backend.target_capacity
        rows[row] = _Decode(source, most if to_capacity else min(most, _MOST_STEPS, 2 * len(source) + 6))
        row += 1
    if row > first:
        backend.encode([decode.source for decode in rows[first:row] if decode], first)


def _teacher_forced(
    reference: Transformer, decode: _Decode, alignment: Alignment | None
) -> tuple[torch.Tensor, npt.NDArray[np.float32] | None]:
    """Return the output of PyTorch's decoder [T, M], and the attention weights [T, S] of `alignment`'s heads."""
    source = torch.tensor([decode.source])  # [1, S]
    source_lengths = torch.tensor([len(decode.source)])  # [1]
    target = torch.tensor([[reference.config.start_id, *decode.tokens[:-1]]])  # [1, T]
    with torch.inference_mode(), recorded_attention(reference) as attention:
        memory = reference.encode(source, source_lengths)
        hidden: torch.Tensor = reference.decoder(target, memory, source_lengths)[0]  # [T, M]
    if alignment is None:
        return hidden, None
    weights: npt.NDArray[Any] = attention[alignment.layer][0, list(alignment.heads)].mean(0).numpy()
    return hidden, weights
