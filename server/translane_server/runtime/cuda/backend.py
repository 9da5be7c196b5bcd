"""The backend on ONNX Runtime and a CUDA device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.core.errors import DeviceError, StartupError
from translane_server.runtime.backend import BEST_TOKEN, BEST_TOKEN_ALONE, Candidates, StepNeeds, Stops, never
from translane_server.runtime.cuda.bindings import ELEMENT_TYPES, StepBindings
from translane_server.runtime.cuda.cache import CudaCache
from translane_server.runtime.cuda.encoding import CudaEncoder
from translane_server.runtime.cuda.kernels import NAMES, Kernels, load_ptx
from translane_server.runtime.cuda.step_memory import QUERIES_AT_ONCE, STEPS_AT_ONCE, StepMemory
from translane_server.runtime.cuda.steps import StepGraphs, buckets
from translane_server.runtime.graph_backend import GraphBackend, Group, RowSizes
from translane_server.runtime.sessions import Sessions

# The most frequent needs besides the best token alone: its log-probability, or the candidates of four beams.
_USUAL_NEEDS = (StepNeeds(), StepNeeds(num_candidates=8))


class CudaBackend(GraphBackend):
    """Runs a bundle's graphs over rows in device memory.

    All work is queued on one stream. During decoding, the host waits for the stream at the end of `encode_ahead`, at
    the end of a step, and before it captures a step. With `capture`, steps are captured as CUDA graphs.

    Raises:
        DeviceError: the device cannot hold the rows, or cannot run the server's kernels.
    """

    # An estimate, not measured: launching a run's kernels takes half a millisecond, and a token of a base-size model
    # takes a microsecond.
    run_cost = 512
    steps_at_once = STEPS_AT_ONCE
    stops_between_steps = False  # the host does not wait between them

    def __init__(self, sessions: Sessions, *, capture: bool = True, **sizes: Unpack[RowSizes]) -> None:
        bundle = sessions.bundle
        ids = bundle.manifest.special_ids
        half = np.dtype(np.float16)  # NumPy has no bfloat16; its size is the same
        super().__init__(sessions, sizes, dtype=half, cross_dtype=half)
        assert sessions.cuda
        self._sessions = sessions
        self._runtime = sessions.cuda
        self._vocab_size = bundle.manifest.architecture.target_vocab_size
        self._runtime.load_kernels(load_ptx(), NAMES)
        kernels = Kernels(self._runtime)
        cache = CudaCache(self._shape, self._encode_tokens, self._runtime, kernels)
        self._cache = cache
        self._memory = StepMemory(self._runtime, self._shape, vocab_size=self._vocab_size, start_id=ids.decoder_start)
        self._encoder = CudaEncoder(
            sessions,
            self._runtime,
            cache,
            tokens=self._encode_tokens,
            pad=ids.pad,
            element_type=ELEMENT_TYPES[bundle.manifest.graphs.cross_dtype],
        )
        self._bindings = StepBindings(sessions, cache, kernels, self._memory)
        self._steps = StepGraphs(self._runtime, self._bindings, captures=capture)
        self._buckets = buckets(self.rows)
        self._bucket_of = [next(size for size in self._buckets if size >= n) for n in range(self.rows + 1)]
        self._source_lengths = self._memory.inputs.source_lengths

    def decode_step(
        self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN, keep: int | None = None
    ) -> Candidates:
        if needs == BEST_TOKEN_ALONE:
            return Candidates(self.decode_ahead(token_ids, positions, 1, keep=keep).T)
        assert needs.num_candidates >= 1, "no candidates"
        n, memory = len(token_ids), self._memory
        count = min(needs.num_candidates, self._vocab_size)
        available = StepNeeds(count, logits=needs.logits)
        bucket = self._check(token_ids, positions, 1)
        memory.inputs.send(token_ids, positions, bucket)  # first, because making a step runs it
        step = self._steps.scored(bucket, available)
        step.queue()
        step.candidates.to_host()
        if needs.logits:
            memory.logits_to_host(n)
        if keep is not None:
            memory.keep(n, keep)
        self._runtime.synchronize()
        return Candidates(
            step.candidates.ids[:n],
            step.candidates.log_probs[:n] if needs.log_probs else None,
            memory.read_logits(n) if needs.logits else None,
        )

    @property
    def _queries(self) -> npt.NDArray[np.generic]:
        return self._memory.queries

    def _attend(self, row: int, queries: npt.NDArray[np.generic]) -> FloatArray:
        weights = np.empty((len(queries), self.source_capacity), np.float32)
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = slice(first, first + QUERIES_AT_ONCE)
            self._bindings.bind_alignment(row, queries[some], self._source_lengths[row : row + 1], weights[some])()
            self._runtime.synchronize()
        return weights

    def decode_ahead(
        self,
        token_ids: IntArray,
        positions: Int32Array,
        steps: int,
        eos: int | None = None,  # noqa: ARG002 see `stops_between_steps`
        stops: Stops = never,  # noqa: ARG002 the same
        keep: int | None = None,
    ) -> IntArray:
        assert 1 <= steps <= STEPS_AT_ONCE, "no such number of steps"
        bucket = self._check(token_ids, positions, steps)
        self._memory.inputs.send(token_ids, positions, bucket)  # first, because making a step runs it
        step = self._steps.greedy(bucket, with_query=keep is not None)
        for number in range(steps):
            step.queue()
            if keep is not None:
                self._memory.keep(len(token_ids), keep + number)
        self._memory.history_to_host(steps)
        self._runtime.synchronize()
        return self._memory.read_history(steps, len(token_ids))

    def close(self) -> None:
        self._steps.clear()
        self._encoder.close()
        self._sessions.close()

    def _encode_groups(self, sources: Sequence[Sequence[int]], groups: Sequence[Group]) -> None:
        self._encoder.queue(sources, groups)
        self._runtime.synchronize()

    def _check(self, token_ids: IntArray, positions: Int32Array, steps: int) -> int:
        """Check the bounds, because CUDA kernels do not. Return how many rows the step runs over."""
        n = len(token_ids)
        assert 1 <= n <= self.rows, "no such number of rows"
        assert 0 <= positions.min() <= positions.max() <= self.target_capacity - steps, "a row is full"
        assert 0 <= token_ids.min() <= token_ids.max() < self._vocab_size, "no such token"
        return self._bucket_of[n]

    def _does_not_run(self, reason: str) -> StartupError:
        """Blame the device or onnxruntime's support for it, because the bundle was checked when it was exported."""
        return DeviceError(f"device cuda: model bundle {self._bundle.folder} does not run: {reason}")

    def _run_graphs(self) -> None:
        """Also capture the usual steps, for every bucket of rows, and take the memory of the largest encoder run."""
        ids = self._bundle.manifest.special_ids
        start = ids.decoder_start
        for rows in self._buckets:
            token_ids, positions = np.full(rows, start, np.int64), np.zeros(rows, np.int32)
            self.decode_ahead(token_ids, positions, 1)
            for needs in _USUAL_NEEDS:
                self.decode_step(token_ids, positions, needs)
        super()._run_graphs()
        most = min(self.rows, max(1, self._encode_tokens // self.source_capacity))
        self.encode([[ids.pad] * self.source_capacity] * most, 0)
