"""Memory of decoder steps and encoder runs, bound once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.runtime.backend import Candidates, StepNeeds


class StepBuffers:
    """Inputs and outputs of a step over the first n of `rows` rows; V is the size of the target vocabulary.

    Candidates are allocated for all rows when a step first needs so many; everything else at the start. A graph in CUDA
    form has an input that says how many of its `vocabulary_blocks` to search, and none that asks for results.
    """

    def __init__(self, rows: int, vocab_size: int, vocabulary_blocks: int | None = None) -> None:
        self.source_lengths: Int32Array = np.ones(rows, np.int32)
        self._rows = rows
        self._vocab_size = vocab_size
        self._token_ids: IntArray = np.zeros(rows, np.int64)
        self._positions: Int32Array = np.zeros(rows, np.int32)
        self._num_candidates: IntArray = np.zeros(1, np.int64)
        self._num_blocks: IntArray = np.zeros(1, np.int64)
        self._vocabulary_blocks = vocabulary_blocks
        self._asks = {asked: np.array(asked) for asked in (False, True)}
        self._candidate_ids: IntArray = np.zeros(0, np.int64)
        self._log_probs: FloatArray = np.zeros(0, np.float32)
        self._logits: FloatArray = np.zeros(rows * vocab_size, np.float32)  # a row takes memory when it is used

    def write(self, token_ids: IntArray, positions: Int32Array, num_candidates: int) -> None:
        """Write the inputs of the next step over n rows. The arrays are [n] each."""
        n = len(token_ids)
        self._token_ids[:n] = token_ids
        self._positions[:n] = positions
        self._num_candidates[0] = num_candidates
        if self._vocabulary_blocks:
            self._num_blocks[0] = min(num_candidates, self._vocabulary_blocks)

    def best_tokens(self, n: int) -> list[int]:
        """Return the best token of each of n rows, [n], after a step with one candidate for each row.

        Views of memory take the place of NumPy here and in `write_next`: its code is no longer in the processor's
        caches when a step has run.
        """
        return self._candidate_ids.data[:n].tolist()

    def write_next(self, tokens: Sequence[int]) -> None:
        """Feed these tokens to the next step, [n], each row one position further."""
        ids, positions = self._token_ids.data, self._positions.data
        for row, token in enumerate(tokens):
            ids[row] = token
            positions[row] += 1

    def reserve(self, needs: StepNeeds) -> bool:
        """Allocate the candidates of a step. Return whether they have moved, and steps must be bound again."""
        size = self._rows * needs.num_candidates
        if self._candidate_ids.size >= size:
            return False
        self._candidate_ids = np.zeros(size, np.int64)
        self._log_probs = np.zeros(size, np.float32)
        return True

    def bind_inputs(self, session: Any, binding: Any, n: int, needs: StepNeeds) -> None:
        """Bind what the graph of a session has of the inputs of a step over n rows with these needs."""
        inputs: dict[str, tuple[npt.NDArray[Any], tuple[int, ...]]] = {
            "token_ids": (self._token_ids, (n,)),
            "positions": (self._positions, (n,)),
            "source_lengths": (self.source_lengths, (n,)),
            "num_candidates": (self._num_candidates, (1,)),
            "num_blocks": (self._num_blocks, (1,)),
            "with_candidates": (self._asks[needs.num_candidates > 0], ()),
            "with_log_probs": (self._asks[needs.log_probs], ()),
        }
        for name in [each.name for each in session.get_inputs() if each.name in inputs]:
            bind_host(binding.bind_input, name, *inputs[name])

    def bind_outputs(self, session: Any, binding: Any, n: int, needs: StepNeeds) -> None:
        """Bind the outputs of a step over n rows with these needs. `reserve` has allocated the candidates.

        Logits are bound in any case where the graph has them, or onnxruntime would allocate memory of its own for them.
        """
        if k := needs.num_candidates:
            bind_host(binding.bind_output, "candidate_ids", self._candidate_ids, (n, k))
        if needs.log_probs:
            bind_host(binding.bind_output, "candidate_log_probs", self._log_probs, (n, k))
        if any(each.name == "logits" for each in session.get_outputs()):
            bind_host(binding.bind_output, "logits", self._logits, (n, self._vocab_size))

    def finding_best(self, run: Callable[[], None], n: int) -> Callable[[], None]:
        """Return a function that runs a step over n rows, which leaves logits, and finds the best token of each row."""
        logits, best = self._logits[: n * self._vocab_size].reshape(n, -1), self._candidate_ids[:n]

        def run_and_find() -> None:
            run()
            logits.argmax(1, best)  # the first of equal logits, as in the graph

        return run_and_find

    def read(self, n: int, needs: StepNeeds) -> Candidates:
        """Return views of the outputs of steps over n rows with these needs."""
        k, v = needs.num_candidates, self._vocab_size
        return Candidates(
            self._candidate_ids[: n * k].reshape(n, k),
            self._log_probs[: n * k].reshape(n, k) if needs.log_probs else None,
            self._logits[: n * v].reshape(n, v) if needs.logits else None,
        )


def bind_host(bind: Any, name: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> None:
    """Bind a graph's input or output `name` to the start of an array in main memory, as a tensor of `shape`."""
    bind(name, "cpu", 0, array.dtype, shape, array.ctypes.data)


def write_padded(ids: IntArray, lengths: Int32Array, sources: Sequence[Sequence[int]], longest: int, pad: int) -> None:
    """Write sources to `ids`, one after the other, each padded to `longest` tokens; and their lengths to `lengths`."""
    assert len(sources) * longest <= len(ids), "sources are too long"
    lengths[: len(sources)] = [len(source) for source in sources]
    padded = ids[: len(sources) * longest].reshape(-1, longest)  # [B, S]
    padded.fill(pad)
    for row, source in zip(padded, sources, strict=True):
        row[: len(source)] = source


class EncodeBuffers:
    """The sources of one encoder run, padded to the longest one: at most `tokens` ids with the padding."""

    def __init__(self, tokens: int, pad: int) -> None:
        self._pad = pad
        self._source_ids: IntArray = np.zeros(tokens, np.int64)
        self._source_lengths: Int32Array = np.ones(tokens, np.int32)

    def write(self, sources: Sequence[Sequence[int]], longest: int) -> None:
        """Write the inputs of the next run: `sources`, each padded to `longest` tokens."""
        write_padded(self._source_ids, self._source_lengths, sources, longest, self._pad)

    def bind_inputs(self, binding: Any, sources: int, longest: int) -> None:
        """Bind the inputs of a run over so many sources of `longest` tokens."""
        bind_host(binding.bind_input, "source_ids", self._source_ids, (sources, longest))
        bind_host(binding.bind_input, "source_lengths", self._source_lengths, (sources,))
