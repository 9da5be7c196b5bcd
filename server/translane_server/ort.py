"""The backend on ONNX Runtime, on a CPU or a CUDA device.

Graph inputs and outputs are bound by address to the first n rows of the cache, so a step allocates nothing and the
new keys and values are written where the old ones are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from translane_server.attention import AttentionGraph
from translane_server.backend import Candidates, Int32Array, IntArray, RowMove, StepNeeds
from translane_server.bundle import Precision
from translane_server.cache import Cache, CacheShape, HostCache, Staged
from translane_server.cuda import CudaCache, CudaMemory
from translane_server.devices import Device
from translane_server.encode_buffers import EncodeBuffers
from translane_server.encode_groups import group_sources
from translane_server.errors import BundleError, DeviceError
from translane_server.sessions import Sessions
from translane_server.step_buffers import StepBuffers

# What attention and norms compute in, and self-attention's keys and values are. Those of cross-attention, which stay as
# they are once a sentence is encoded, may be smaller: the bundle says of what type they are.
_CACHE_TYPES: dict[Precision, type[np.generic]] = {"fp32": np.float32, "fp16": np.float16, "int8": np.float32}

# A run of the encoder costs as much as so many tokens: from 5 (7 million parameters) to 8 (77 million), int8 or fp32. A
# GPU has many tokens at the price of one.
_RUN_COSTS: dict[Device, int] = {"cpu": 6, "cuda": 1 << 30}

_BEST_TOKEN = StepNeeds()


@dataclass(frozen=True, slots=True)
class _Step:
    """A step that was bound: how many candidates it returns of each row, and where."""

    binding: Any
    num_candidates: int
    candidates: Candidates


class OrtBackend:
    """Runs a bundle's graphs over rows of its own; see `translane_server.backend.Backend`.

    Args:
        sessions: the graphs.
        rows: how many rows there are.
        source_capacity: most source tokens of a row.
        target_capacity: most decoder steps of a row.
        encode_tokens: most padded source tokens that are encoded ahead.

    Raises:
        DeviceError: the device cannot hold the rows.
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
        self._shape = CacheShape(
            layers=architecture.decoder_layers,
            rows=rows,
            heads=architecture.heads,
            head_size=architecture.head_size,
            source_capacity=source_capacity,
            target_capacity=target_capacity,
            dtype=np.dtype(_CACHE_TYPES[bundle.manifest.precision]),
            cross_dtype=np.dtype(bundle.manifest.graphs.cross_dtype),
        )
        self._device: Device = sessions.device
        self._encode_tokens = max(min(encode_tokens, rows * source_capacity), source_capacity)
        self._bundle = bundle
        self._pad = bundle.manifest.special_ids.pad
        self._encode_buffers = EncodeBuffers(self._encode_tokens, self._pad)
        self._encoder, self._decoder = sessions.encoder, sessions.decoder
        self._cache: Cache = self._allocate_cache()
        self._returns_cross = bundle.manifest.graphs.returns_cross
        self._vocab_size = architecture.target_vocab_size
        asks = any(tensor.name == "with_log_probs" for tensor in bundle.manifest.graphs.decoder.inputs)
        self._buffers = StepBuffers(rows, self._vocab_size, asks_for_log_probs=asks)
        self._attention = self._open_attention(sessions) if sessions.alignment else None
        self._steps: dict[tuple[int, StepNeeds], _Step] = {}  # by number of rows and what is needed
        self._staged: dict[int, Staged] = {}  # sources that are encoded ahead

    @property
    def rows(self) -> int:
        """See `Backend.rows`."""
        return self._shape.rows

    @property
    def source_capacity(self) -> int:
        """See `Backend.source_capacity`."""
        return self._shape.source_capacity

    @property
    def target_capacity(self) -> int:
        """See `Backend.target_capacity`."""
        return self._shape.target_capacity

    @property
    def has_attention(self) -> bool:
        """See `Backend.has_attention`."""
        return self._attention is not None

    def encode(self, sources: Sequence[Sequence[int]], first_row: int) -> None:
        """Encode B sources, and make rows `first_row` … `first_row` + B - 1 theirs."""
        end = first_row + len(sources)
        while first_row < end:
            encoded = self.encode_ahead(sources[-(end - first_row) :])
            self.enter(range(encoded), range(first_row, first_row + encoded))
            first_row += encoded

    def encode_ahead(self, sources: Sequence[Sequence[int]]) -> int:
        """See `Backend.encode_ahead`."""
        lengths = [len(source) for source in sources]
        assert 1 <= min(lengths) <= max(lengths) <= self.source_capacity, "a source is empty or too long"
        groups = group_sources(lengths, self._encode_tokens, _RUN_COSTS[self._device])
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
        assert all(0 <= row < self.rows for row in rows), "no such row"  # CUDA does not check
        staged = [self._staged[source] for source in sources]
        self._cache.enter(staged, rows)
        for source, row in zip(staged, rows, strict=True):
            self._buffers.source_lengths[row] = source.length

    def decode_step(self, token_ids: IntArray, positions: Int32Array, needs: StepNeeds = _BEST_TOKEN) -> Candidates:
        """See `Backend.decode_step`."""
        n = len(token_ids)
        step = self._steps.get((n, needs)) or self._prepare(n, needs)
        self._buffers.write(token_ids, positions, step.num_candidates)
        if self._device == "cuda":
            assert 0 <= positions.min() <= positions.max() < self.target_capacity, "a row is full"  # the CPU checks it
            self._buffers.bind_inputs(step.binding, n, needs)  # binding is what copies them to the device
        self._decoder.run_with_iobinding(step.binding)
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
        step = _Step(self._bind(n, available), available.num_candidates, self._buffers.read(n, available))
        self._steps[n, needs] = step
        return step

    def move_rows(self, moves: Sequence[RowMove]) -> None:
        """See `Backend.move_rows`."""
        self._cache.move(moves)
        lengths = self._buffers.source_lengths
        for move in moves:
            lengths[move.target] = lengths[move.source]

    def warm_up(self) -> None:
        """Run all graphs once at the smallest and the largest size, so that the first request does not wait.

        Raises:
            BundleError: the graphs are not what the manifest says they are.
        """
        try:
            self._run_all_sizes()
        except Exception as error:  # noqa: BLE001 - onnxruntime's exceptions share no base of their own
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise BundleError(
                f"model bundle {self._bundle.folder}: its graphs do not run as its manifest describes them: {reason}"
            ) from None

    def _run_all_sizes(self) -> None:
        start = self._bundle.manifest.special_ids.decoder_start
        for sources in (1, min(self.rows, max(1, self._encode_tokens // self.source_capacity))):
            self.encode([[self._pad] * self.source_capacity] * sources, 0)
        for rows in (1, self.rows):
            needs = StepNeeds(logits=rows == 1, attention=self.has_attention)
            self.decode_step(np.full(rows, start, np.int64), np.zeros(rows, np.int32), needs)

    def close(self) -> None:
        """See `Backend.close`."""
        self._steps.clear()
        self._encode_buffers.clear()
        if self._attention:
            self._attention.close()
        if isinstance(self._cache, CudaCache):
            self._cache.close()

    def _allocate_cache(self) -> Cache:
        try:
            if self._device == "cuda":
                return CudaCache(self._shape, self._encode_tokens, CudaMemory())
            return HostCache(self._shape, self._encode_tokens)
        except (MemoryError, ValueError):  # numpy raises the latter for sizes beyond any memory
            raise DeviceError(
                f"device {self._device}: there is no memory for {self._shape.rows} rows of"
                f" {self._shape.source_capacity} source and {self._shape.target_capacity} target tokens"
            ) from None

    def _open_attention(self, sessions: Sessions) -> AttentionGraph:
        alignment, shape = self._bundle.manifest.alignment, self._shape
        assert alignment
        query = sessions.allocate((shape.rows, shape.heads * shape.head_size), shape.dtype)
        keys = self._cache.cross_pointers()[shape.names("cross").index(f"cross_key_{alignment.layer}")]
        lengths = self._buffers.source_lengths
        return AttentionGraph(sessions.alignment, self._device, shape, query=query, keys=keys, source_lengths=lengths)

    def _encode_together(self, sources: Sequence[Sequence[int]], longest: int, start: int) -> None:
        """Run the encoder over sources padded to `longest`, and leave what it returns from `start` on."""
        batch = len(sources)
        self._encode_buffers.write(sources, longest)
        binding = self._encode_buffers.binding(batch, longest, start, self._bind_encoder)
        if self._device == "cuda":
            self._encode_buffers.bind_inputs(binding, batch, longest)  # binding is what copies them to the device
        self._encoder.run_with_iobinding(binding)

    def _bind_encoder(self, sources: int, longest: int, start: int) -> Any:
        """Bind a run over so many sources, padded to so many tokens, to the addresses where everything lies."""
        binding = self._encoder.io_binding()
        self._encode_buffers.bind_inputs(binding, sources, longest)
        shape = (sources, self._shape.heads, longest, self._shape.head_size)
        for name, pointer in zip(self._shape.names("cross"), self._cache.staging_pointers(start), strict=True):
            binding.bind_output(name, self._device, 0, self._shape.cross_dtype, shape, pointer)
        return binding

    def _bind(self, n: int, needs: StepNeeds) -> Any:
        """Bind a step over rows 0 … n-1 to the addresses where everything lies."""
        binding = self._decoder.io_binding()
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
                binding.bind_input(name, self._device, 0, dtype, block, pointer)
                if returned:
                    binding.bind_output(f"present_{name}", self._device, 0, dtype, block, pointer)
        return binding
