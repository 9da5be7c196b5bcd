"""The bundle's graphs, bound to addresses in device memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from translane_server.bundle.manifest import Graph
from translane_server.core.arrays import FloatArray, Int32Array
from translane_server.runtime.backend import StepNeeds
from translane_server.runtime.cuda.cache import CudaCache
from translane_server.runtime.cuda.kernels import Kernels
from translane_server.runtime.cuda.step_memory import CandidateMemory, StepMemory
from translane_server.runtime.sessions import Sessions

# ONNX's type numbers, because NumPy has no bfloat16: https://onnx.ai/onnx/api/classes.html#tensorproto
ELEMENT_TYPES = {"float32": 1, "int32": 6, "int64": 7, "float16": 10, "bfloat16": 16}

Run = Callable[[], None]


@dataclass(frozen=True)
class BoundStep:
    """A step that is bound and can be queued."""

    run: Run  # queues the part of the step that can be repeated: with the same inputs, a second run changes nothing
    follow: Run | None = None  # queues the rest of the step, or None if there is no rest

    def queue(self) -> None:
        """Queue the whole step, kernel by kernel."""
        self.run()
        if self.follow:
            self.follow()


@dataclass(eq=False)
class StepBindings:
    """Binds decoder steps over the first rows of the cache."""

    sessions: Sessions
    cache: CudaCache
    kernels: Kernels
    memory: StepMemory

    def __post_init__(self) -> None:
        manifest = self.sessions.bundle.manifest
        self._graphs, self._alignment = manifest.graphs, manifest.alignment
        self._vocab_size = manifest.architecture.target_vocab_size
        self._half = self._graphs.cross_dtype

    def bind(self, rows: int, needs: StepNeeds | None, candidates: CandidateMemory, *, feeds_back: bool) -> BoundStep:
        """Bind a step over the first `rows` rows, which leaves its candidates in `candidates`.

        Without `needs`, the step is the greedy graph, which returns no query. With `feeds_back`, the step feeds every
        row its best token.
        """
        run = self._bind_scored(rows, needs, candidates) if needs else self._bind_greedy(rows, candidates)
        return BoundStep(run, self._feed_back(rows, candidates) if feeds_back else None)

    def _bind_greedy(self, rows: int, candidates: CandidateMemory) -> Run:
        assert self._graphs.greedy
        session = self.sessions.greedy
        binding = self._bind_rows(session, self._graphs.greedy, rows)
        self._bind(binding.bind_output, "candidate_ids", "int64", (rows, 1), candidates.ids_address)
        return self._runs(session, binding)

    def _feed_back(self, rows: int, candidates: CandidateMemory) -> Run:
        inputs = self.memory.inputs

        def run() -> None:
            self.kernels.feed_back(
                ids=candidates.ids_address,
                token_ids=inputs.token_ids_address,
                positions=inputs.positions_address,
                history=self.memory.history_address,
                counter=inputs.counter_address,
                n=rows,
                stride=self.cache.shape.rows,
            )

        return run

    def _bind_scored(self, rows: int, needs: StepNeeds, candidates: CandidateMemory) -> Run:
        count, blocks = needs.num_candidates, self._graphs.vocabulary_blocks
        binding = self._bind_rows(self.sessions.decoder, self._graphs.decoder, rows)
        numbers = {"num_candidates": count, **({"num_blocks": min(count, blocks)} if blocks else {})}
        kept = [np.array([number], np.int64) for number in numbers.values()]  # must live as long as the binding
        for name, number in zip(numbers, kept, strict=True):
            binding.bind_input(name, "cpu", 0, number.dtype, (1,), number.ctypes.data)
        self._bind(binding.bind_output, "candidate_ids", "int64", (rows, count), candidates.ids_address)
        self._bind(binding.bind_output, "candidate_log_probs", "float32", (rows, count), candidates.log_probs_address)
        if needs.logits:
            self._bind(binding.bind_output, "logits", "float32", (rows, self._vocab_size), self.memory.logits.address)
        if self._alignment:
            width = self.cache.shape.query_width
            self._bind(binding.bind_output, "alignment_query", self._half, (rows, width), self.memory.query_address)
        return self._runs(self.sessions.decoder, binding, kept)

    def bind_alignment(
        self, row: int, queries: npt.NDArray[np.generic], source_length: Int32Array, weights: FloatArray
    ) -> Run:
        """Bind the alignment graph over queries [T, W] of the source of `row`, with T ≤ `QUERIES_AT_ONCE`.

        The queries, the source's length [1] and the weights [T, C] are in main memory. They must outlive the run.
        """
        assert self._alignment, "the bundle has no attention"
        shape, session = self.cache.shape, self.sessions.alignment
        binding = session.io_binding()
        binding.bind_input("alignment_query", "cpu", 0, ELEMENT_TYPES[self._half], queries.shape, queries.ctypes.data)
        binding.bind_input("source_lengths", "cpu", 0, np.int32, (1,), source_length.ctypes.data)
        block = (shape.heads, shape.source_capacity, shape.head_size)  # [H, C, D]
        keys = self.cache.cross_pointers()[shape.names("cross").index(f"cross_key_{self._alignment.layer}")]
        keys = self.memory.repeat_keys(keys + row * math.prod(block) * shape.cross_dtype.itemsize, len(queries))
        self._bind(binding.bind_input, "cross_key", self._half, (len(queries), *block), keys)
        binding.bind_output("attention", "cpu", 0, np.float32, weights.shape, weights.ctypes.data)
        return self._runs(session, binding)

    def _bind_rows(self, session: Any, graph: Graph, rows: int) -> Any:
        """Bind the tokens, keys and values of `rows` rows. Keys and values are updated in place."""
        binding, shape, inputs = session.io_binding(), self.cache.shape, self.memory.inputs
        self._bind(binding.bind_input, "token_ids", "int64", (rows,), inputs.token_ids_address)
        self._bind(binding.bind_input, "positions", "int32", (rows,), inputs.positions_address)
        self._bind(binding.bind_input, "source_lengths", "int32", (rows,), inputs.source_lengths_address)
        returned = {tensor.name for tensor in graph.outputs}
        for kind, pointers in (("self", self.cache.self_pointers()), ("cross", self.cache.cross_pointers())):
            block = (rows, *shape.of_row(kind))  # [n, H, C, D]
            for name, pointer in zip(shape.names(kind), pointers, strict=True):
                self._bind(binding.bind_input, name, self._half, block, pointer)
                if f"present_{name}" in returned:
                    self._bind(binding.bind_output, f"present_{name}", self._half, block, pointer)
        return binding

    def _bind(self, bind: Any, name: str, kind: str, shape: tuple[int, ...], address: int) -> None:
        bind(name, self.sessions.device, 0, ELEMENT_TYPES[kind], shape, address)

    def _runs(self, session: Any, binding: Any, kept: object = None) -> Run:
        bound = self.sessions.bound_run(session, binding)

        def run(_kept: object = kept) -> None:
            bound()

        return run
