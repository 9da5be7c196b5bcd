"""Decodes sentences with what was exported, and keeps what it said at each step.

The exported graphs decode many sentences at once, each at its own position, as the server does. Logits are kept in a
file: those of all steps together take more memory than the model, where its vocabulary is large.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from translane_export.errors import ExportError
from translane_export.model import TransformerConfig
from translane_server.backend import BEST_TOKEN_ALONE, Candidates, Int32Array, IntArray, StepNeeds

ROWS = 8
ADMITTED_TOGETHER = 3
CANDIDATES = 4
_MOST_STEPS = 96

FloatArray = npt.NDArray[np.float32]


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


class LogitFile:
    """Logits [V] of steps, numbered from 0, in a file without a name in `folder`; a temporary one by default."""

    def __init__(self, vocab_size: int, folder: Path | None = None) -> None:
        self._vocab_size = vocab_size
        self._count = 0
        self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 closed, and gone, with this object
        weakref.finalize(self, self._file.close)

    def append(self, logits: FloatArray) -> int:
        """Keep the logits [V] of a step; return its number."""
        assert logits.shape == (self._vocab_size,), "logits of another vocabulary"
        self._file.seek(0, os.SEEK_END)
        self._file.write(np.ascontiguousarray(logits, np.float32).data)
        self._count += 1
        return self._count - 1

    def read(self, numbers: Sequence[int]) -> FloatArray:
        """Return the logits [t, V] of the steps of these numbers."""
        logits = np.empty((len(numbers), self._vocab_size), np.float32)
        for row, number in zip(logits, numbers, strict=True):
            self._file.seek(number * row.nbytes)
            self._file.readinto(row.data)
        return logits


@dataclass
class Decode:
    """A sentence that was decoded, with what the graphs said at each step; T steps in all."""

    source: list[int]
    most_steps: int
    logits: LogitFile
    tokens: list[int] = field(default_factory=list)
    candidate_ids: list[IntArray] = field(default_factory=list)  # [K] each
    candidate_log_probs: list[FloatArray] = field(default_factory=list)  # [K] each
    steps: list[int] = field(default_factory=list)  # their numbers in the file of logits
    attention: list[FloatArray] = field(default_factory=list)  # [S] each

    def add(self, row: int, candidates: Candidates) -> None:
        """Append the step that `candidates` has on a row; the backend gives the same memory at every step."""
        assert candidates.logits is not None
        assert candidates.log_probs is not None
        self.tokens.append(int(candidates.token_ids[row, 0]))
        self.steps.append(self.logits.append(candidates.logits[row]))
        if candidates.attention is not None:
            self.attention.append(candidates.attention[row].copy())
        self.candidate_ids.append(candidates.token_ids[row].copy())
        self.candidate_log_probs.append(candidates.log_probs[row].copy())


def record_decodes(
    backend: StepBackend,
    config: TransformerConfig,
    sources: Sequence[Sequence[int]],
    *,
    attention: bool = False,
    greedy: bool = False,
    folder: Path | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Decode]:
    """Decode `sources` greedily with `backend`, keeping attention weights where there are any to compare.

    The last source is decoded alone up to the capacity, whether or not the sentence ends before. With `greedy`, the
    backend has a graph for steps of which nothing but the best token is wanted, and each step is taken with that, too.
    `folder` is where the logits are, while what is returned lives.

    Raises:
        ExportError: a step chose an id outside the vocabulary, or another id when it was asked for nothing else.
        OSError: the logits cannot be written.
    """
    logits = LogitFile(config.target_vocab_size, folder)
    needs = StepNeeds(min(CANDIDATES, config.target_vocab_size), logits=True, attention=attention)
    done: list[Decode] = []
    for together, to_capacity in ((sources[:-1], False), (sources[-1:], True)):
        for decode in _decode_greedily(
            backend, config, together, logits, needs, to_capacity=to_capacity, greedy=greedy
        ):
            done.append(decode)
            progress(len(done), len(sources))
    return done


def _decode_greedily(
    backend: StepBackend,
    config: TransformerConfig,
    sources: Sequence[Sequence[int]],
    logits: LogitFile,
    needs: StepNeeds,
    *,
    to_capacity: bool,
    greedy: bool,
) -> Iterable[Decode]:
    """Yield each sentence once it has ended. A row that becomes free takes the next sentence at once."""
    # decodes of many lengths, also where a model never ends a sentence
    capacity = backend.target_capacity
    waiting = [
        Decode(list(source), capacity if to_capacity else min(capacity, _MOST_STEPS, 2 * len(source) + 6), logits)
        for source in reversed(sources)
    ]
    rows: list[Decode | None] = [None] * min(ROWS, len(sources))
    while True:
        _admit(backend, rows, waiting)
        stepped = rows[: max((row + 1 for row, running in enumerate(rows) if running), default=0)]
        if not stepped:
            return
        # a row without a sentence between others goes on at position 0 with whatever it holds
        last = [decode.tokens[-1] if decode and decode.tokens else config.start_id for decode in stepped]
        positions = [len(decode.tokens) if decode else 0 for decode in stepped]
        step = np.array(last, np.int64), np.array(positions, np.int32)
        # at the same positions, so the step after it finds what it would have found without it
        alone = backend.decode_step(*step, BEST_TOKEN_ALONE).token_ids[:, 0].copy() if greedy else None
        candidates = backend.decode_step(*step, needs)
        if alone is not None:
            _check_same(alone, candidates)
        for row, decode in enumerate(stepped):
            if decode is None:
                continue
            decode.add(row, candidates)
            chosen = decode.tokens[-1]
            if not 0 <= chosen < config.target_vocab_size:
                raise ExportError(f"the exported model chose {chosen}, which is no id of its target vocabulary")
            # PyTorch takes padding for what is not there, so a decode cannot go on after it
            ended = chosen == config.pad_id or (chosen == config.eos_id and not to_capacity)
            if ended or len(decode.tokens) == decode.most_steps:
                yield decode
                rows[row] = None


def _check_same(alone: IntArray, candidates: Candidates) -> None:
    """Refuse a greedy graph that chooses other tokens, [n], than the decoder's graph.

    Rows without numbers are left to the comparison with PyTorch, which tells why there are none.
    """
    assert candidates.logits is not None
    best = candidates.token_ids[:, 0]
    numbers = ~np.isnan(candidates.logits).any(axis=1)
    if (different := np.flatnonzero((alone != best) & numbers)).size:
        row = different[0]
        raise ExportError(
            f"the exported greedy step chose {alone[row]} where the decoder's graph, from the same input, chose"
            f" {best[row]}"
        )


def _admit(backend: StepBackend, rows: list[Decode | None], waiting: list[Decode]) -> None:
    """Put a few waiting sentences on the first free rows side by side, encoded together.

    A few at a step, so that rows are at different places in their sentences.
    """
    first = next((row for row, running in enumerate(rows) if running is None), len(rows))
    row = first
    while row < min(len(rows), first + ADMITTED_TOGETHER) and rows[row] is None and waiting:
        rows[row] = waiting.pop()
        row += 1
    if row > first:
        backend.encode([decode.source for decode in rows[first:row] if decode], first)
