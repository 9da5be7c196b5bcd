"""The backend on ONNX Runtime and a CPU.

Graph inputs and outputs are bound by address to the first n rows of the cache, so a step allocates nothing and the
new keys and values are written where the old ones are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from translane_server.attention import AttentionGraph
from translane_server.backend import (
    BEST_TOKEN,
    BEST_TOKEN_ALONE,
    Candidates,
    Int32Array,
    IntArray,
    RowMove,
    StepNeeds,
)
from translane_server.bundle import Precision
from translane_server.cache import CacheShape, HostCache, Staged
from translane_server.encode_buffers import EncodeBuffers
from translane_server.encode_groups import group_sources
from translane_server.errors import DeviceError
from translane_server.graph_backend import GraphBackend
from translane_server.sessions import Sessions
from translane_server.step_buffers import StepBuffers

# What attention and norms compute in, and self-attention's keys and values are. Those of cross-attention, which stay as
# they are once a sentence is encoded, may be smaller: the bundle says of what type they are.
_CACHE_TYPES: dict[Precision, type[np.generic]] = {"fp32": np.float32, "fp16": np.float16, "int8": np.float32}

# A run of the encoder costs as much as so many tokens: from 5 (7 million parameters) to 8 (77 million), int8 or fp32.
_RUN_COST = 6


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that was bound: its graph, how many candidates it returns of each row, and where."""

    session: Any
    binding: Any
    num_candidates: int
    candidates: Candidates


class OrtBackend(GraphBackend):
    """Runs a bundle's graphs over rows of its own; see `translane_server.backend.Backend`.

    Args:
        sessions: the graphs.
        rows: how many rows there are.
        source_capacity: most source tokens of a row.
        target_capacity: most decoder steps of a row.
        encode_tokens: most padded source tokens that are encoded ahead.

    Raises:
        DeviceError: there is no memory for the rows.
    """

    def __init__(
        self,
        sessions: Sessions,
        *,
        rows: int,
        source_capacity: int,
        target_capacity: int,
        encode_tokens: int = 2048,
    ) -> None:
        bundle = sessions.bundle
        architecture = bundle.manifest.architecture
        shape = CacheShape(
            layers=architecture.decoder_layers,
            rows=rows,
            heads=architecture.heads,
            head_size=architecture.head_size,
            source_capacity=source_capacity,
            target_capacity=target_capacity,
            dtype=np.dtype(_CACHE_TYPES[bundle.manifest.precision]),
            cross_dtype=np.dtype(bundle.manifest.graphs.cross_dtype),
        )
        super().__init__(bundle, shape, encode_tokens)
        self._encode_buffers = EncodeBuffers(self._encode_tokens, bundle.manifest.special_ids.pad)
        self._encoder, self._decoder, self._greedy = sessions.encoder, sessions.decoder, sessions.greedy
        self._cache = self._allocate_cache()
        self._returns_cross = bundle.manifest.graphs.returns_cross
        self._vocab_size = architecture.target_vocab_size
        asks = any(tensor.name == "with_log_probs" for tensor in bundle.manifest.graphs.decoder.inputs)
        self._buffers = StepBuffers(
            rows,
            self._vocab_size,
            asks_for_log_probs=asks,
            vocabulary_blocks=bundle.manifest.graphs.vocabulary_blocks,
        )
        self._attention = self._open_attention(sessions) if sessions.alignment else None
        self._steps: dict[tuple[int, StepNeeds], _Step] = {}  # by number of rows and what is needed
        self._staged: dict[int, Staged] = {}  # sources that are encoded ahead

    @property
    def has_attention(self) -> bool:
        """See `Backend.has_attention`."""
        return self._attention is not None

    @property
    def steps_at_once(self) -> int:
        """See `Backend.steps_at_once`."""
        return 1

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        """See `Backend.encode_ahead`."""
        lengths = [len(source) for source in sources]
        assert 1 <= min(lengths) <= max(lengths) <= self.source_capacity, "a source is empty or too long"
        groups = group_sources(lengths, self._encode_tokens, _RUN_COST)
        staged = {}
        for group in groups:
            self._encode_together([sources[number] for number in group.numbers], group.longest, group.start)
            for place, number in enumerate(group.numbers):
                start = group.start + place * group.longest
                staged[number] = Staged(start, group.longest, lengths[number])
        self._staged = staged
        return len(staged)

    def enter(self, sources: Sequence[int], rows: Sequence[int]) -> None:
        """See `Backend.enter`."""
        staged = [self._staged[source] for source in sources]
        self._cache.enter(staged, rows)
        for source, row in zip(staged, rows, strict=True):
            self._buffers.source_lengths[row] = source.length

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = BEST_TOKEN) -> Candidates:
        """See `Backend.decode_step`."""
        n = len(token_ids)
        step = self._steps.get((n, needs)) or self._prepare(n, needs)
        self._buffers.write(token_ids, positions, step.num_candidates)
        step.session.run_with_iobinding(step.binding)
        if self._attention and needs.attention:
            return replace(step.candidates, attention=self._attention.run(n))
        return step.candidates

    def _prepare(self, n: int, needs: StepNeeds) -> _Step:
        """Bind a step over rows 0 … n-1 for as long as what it needs keeps its place."""
        assert 1 <= n <= self.rows, "no such number of rows"
        assert needs.num_candidates >= 1, "no candidates"
        assert self.has_attention or not needs.attention, "the bundle has no attention"
        available = replace(needs, num_candidates=min(needs.num_candidates, self._vocab_size))
        if self._buffers.reserve(available):
            self._steps.clear()
        session = self._greedy if self._greedy and available == BEST_TOKEN_ALONE else self._decoder
        binding = self._bind(session, n, available)
        step = _Step(session, binding, available.num_candidates, self._buffers.read(n, available))
        self._steps[n, needs] = step
        return step

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """See `Backend.move_rows`."""
        self._cache.move(moves)
        lengths = self._buffers.source_lengths
        for move in moves:
            lengths[move.target] = lengths[move.source]

    def close(self) -> None:
        """See `Backend.close`."""
        self._steps.clear()
        self._encode_buffers.clear()
        if self._attention:
            self._attention.close()

    def _allocate_cache(self) -> HostCache:
        try:
            return HostCache(self._shape, self._encode_tokens)
        except (MemoryError, ValueError):  # numpy raises the latter for sizes beyond any memory
            raise DeviceError(
                f"device cpu: there is no memory for {self._shape.rows} rows of"
                f" {self._shape.source_capacity} source and {self._shape.target_capacity} target tokens"
            ) from None

    def _open_attention(self, sessions: Sessions) -> AttentionGraph:
        alignment, shape = self._bundle.manifest.alignment, self._shape
        assert alignment
        query = np.zeros((shape.rows, shape.heads * shape.head_size), shape.dtype)
        keys = self._cache.cross_pointers()[shape.names("cross").index(f"cross_key_{alignment.layer}")]
        lengths = self._buffers.source_lengths
        return AttentionGraph(sessions.alignment, shape, query=query, keys=keys, source_lengths=lengths)

    def _encode_together(self, sources: Sequence[Sequence[int]], longest: int, start: int) -> None:
        """Run the encoder over sources padded to `longest`, and leave what it returns from `start` on."""
        batch = len(sources)
        self._encode_buffers.write(sources, longest)
        binding = self._encode_buffers.binding(batch, longest, start, self._bind_encoder)
        self._encoder.run_with_iobinding(binding)

    def _bind_encoder(self, sources: int, longest: int, start: int) -> Any:
        """Bind a run over so many sources, padded to so many tokens, to the addresses where everything lies."""
        binding = self._encoder.io_binding()
        self._encode_buffers.bind_inputs(binding, sources, longest)
        shape = (sources, self._shape.heads, longest, self._shape.head_size)
        for name, pointer in zip(self._shape.names("cross"), self._cache.staging_pointers(start), strict=True):
            binding.bind_output(name, "cpu", 0, self._shape.cross_dtype, shape, pointer)
        return binding

    def _bind(self, session: Any, n: int, needs: StepNeeds) -> Any:
        """Bind a step over rows 0 … n-1 to the addresses where everything lies."""
        binding = session.io_binding()
        if session is self._greedy:
            self._buffers.bind_greedy_inputs(binding, n)
        else:
            self._buffers.bind_inputs(binding, n, needs)
        self._buffers.bind_outputs(binding, n, needs)
        if self._attention and needs.attention:
            self._attention.bind_query(binding, n)
        shape = self._shape
        for kind, dtype, capacity, pointers, returned in (
            ("self", shape.dtype, shape.target_capacity, self._cache.self_pointers(), True),
            ("cross", shape.cross_dtype, shape.source_capacity, self._cache.cross_pointers(), self._returns_cross),
        ):
            block = (n, shape.heads, capacity, shape.head_size)  # [n, H, C, D]
            for name, pointer in zip(shape.names(kind), pointers, strict=True):
                binding.bind_input(name, "cpu", 0, dtype, block, pointer)
                if returned:
                    binding.bind_output(f"present_{name}", "cpu", 0, dtype, block, pointer)
        return binding
