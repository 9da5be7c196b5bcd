"""Inputs and outputs of decoder steps: in device memory for the graph, and mirrored in pinned memory for the host.

All inputs of a step lie together, so that one copy takes them to the device. All candidates of a step lie together, so
that one copy takes them back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from translane_server.core.arrays import FloatArray, Int32Array, IntArray
from translane_server.runtime.cache import CacheShape
from translane_server.runtime.cuda_runtime import CudaRuntime

STEPS_AT_ONCE = 4  # greedy steps that run before the host looks at their tokens
QUERIES_AT_ONCE = 16  # queries of a hypothesis that are compared at once with the keys of its source


class Mirrored:
    """A piece of device memory, and pinned memory of the same size for the host."""

    def __init__(self, runtime: CudaRuntime, size: int) -> None:
        self._runtime = runtime
        self.address = runtime.allocate(size)
        self.host = runtime.allocate_pinned(size)

    def to_device(self) -> None:
        """Queue a copy of the whole memory to the device."""
        self._runtime.copy(self.address, self.host.ctypes.data, self.host.size)

    def to_host(self, size: int) -> None:
        """Queue a copy of the first `size` bytes to the host."""
        assert size <= self.host.size, "there is not so much"
        self._runtime.copy(self.host.ctypes.data, self.address, size)

    def free(self) -> None:
        """Release both pieces of memory."""
        self._runtime.free(self.address)
        self._runtime.free_pinned(self.host)


class StepInputs:
    """Inputs of a step over the first n of R rows.

    Attributes:
        source_lengths: source length of every row, [R]. Free rows have valid lengths, too.
        token_ids_address: address of the token ids on the device, int64 [R].
        positions_address: address of the positions, int32 [R].
        source_lengths_address: address of the source lengths, int32 [R].
        counter_address: address of the number of steps since the inputs were copied, int32 [1].
    """

    def __init__(self, runtime: CudaRuntime, rows: int, start_id: int) -> None:
        counter = rows * (8 + 4 + 4)
        self._memory = Mirrored(runtime, counter + 4)
        base, host = self._memory.address, self._memory.host
        self.token_ids_address = base
        self.positions_address = base + 8 * rows
        self.source_lengths_address = base + 12 * rows
        self.counter_address = base + counter
        self._token_ids: IntArray = host[: 8 * rows].view(np.int64)
        self._positions: Int32Array = host[8 * rows : 12 * rows].view(np.int32)
        self.source_lengths: Int32Array = host[12 * rows : counter].view(np.int32)
        self._token_ids.fill(start_id)
        self.source_lengths.fill(1)

    def send(self, token_ids: IntArray, positions: Int32Array, bucket: int) -> None:
        """Queue a copy of the inputs of a step over n rows, [n] each. The step itself runs over `bucket` rows.

        The rows from n on are free. The step writes to the first position of each of these rows. The next sentence in
        such a row writes this position before reading it.
        """
        n = len(token_ids)
        self._token_ids[:n] = token_ids
        self._positions[:n] = positions
        self._positions[n:bucket] = 0
        self._memory.to_device()


@dataclass(frozen=True)
class CandidateMemory:
    """Candidates of a step over `rows` rows, K for each: ids int64 [rows, K], log-probabilities float32 [rows, K]."""

    memory: Mirrored
    rows: int
    count: int

    @classmethod
    def allocate(cls, runtime: CudaRuntime, rows: int, count: int) -> CandidateMemory:
        """Reserve memory for candidates."""
        return cls(Mirrored(runtime, rows * count * 12), rows, count)

    @property
    def ids_address(self) -> int:
        """Address of the ids on the device."""
        return self.memory.address

    @property
    def log_probs_address(self) -> int:
        """Address of the log-probabilities on the device."""
        return self.memory.address + 8 * self.rows * self.count

    def to_host(self) -> None:
        """Queue a copy of all candidates to the host."""
        self.memory.to_host(self.memory.host.size)

    def read(self, n: int) -> tuple[IntArray, FloatArray]:
        """Return ids and log-probabilities of the first n rows, [n, K] each. The copy must be done."""
        ids = self.memory.host[: 8 * self.rows * self.count].view(np.int64).reshape(self.rows, self.count)
        log_probs = self.memory.host[8 * self.rows * self.count :].view(np.float32).reshape(self.rows, self.count)
        return ids[:n], log_probs[:n]


class FloatRows:
    """Rows of float32 that a step returns only for some requests: logits [R, V], for example."""

    def __init__(self, runtime: CudaRuntime, rows: int, width: int) -> None:
        self._memory = Mirrored(runtime, 4 * rows * width)
        self._width = width

    @property
    def address(self) -> int:
        """Address of the rows on the device."""
        return self._memory.address

    def to_host(self, n: int) -> None:
        """Queue a copy of the first n rows to the host."""
        self._memory.to_host(4 * n * self._width)

    def read(self, n: int) -> FloatArray:
        """Return the first n rows, [n, width]. The copy must be done."""
        rows: npt.NDArray[np.float32] = self._memory.host[: 4 * n * self._width].view(np.float32)
        return rows.reshape(n, self._width)


class StepMemory:
    """Inputs and outputs of steps over R rows, without the keys and values. Free rows are fed `start_id`.

    Memory for outputs that few requests need is reserved when a step first returns them.
    """

    def __init__(self, runtime: CudaRuntime, shape: CacheShape, *, vocab_size: int, start_id: int) -> None:
        self._runtime = runtime
        self._shape = shape
        self._vocab_size = vocab_size
        self._keys_bytes = shape.heads * shape.source_capacity * shape.head_size * shape.cross_dtype.itemsize
        self.inputs = StepInputs(runtime, shape.rows, start_id)
        self._history = Mirrored(runtime, 8 * STEPS_AT_ONCE * shape.rows)

    @property
    def history_address(self) -> int:
        """Address of the tokens of greedy steps, int64 [STEPS_AT_ONCE, R]."""
        return self._history.address

    def history_to_host(self, steps: int) -> None:
        """Queue a copy of the tokens of `steps` greedy steps to the host."""
        self._history.to_host(8 * steps * self._shape.rows)

    def read_history(self, steps: int, n: int) -> IntArray:
        """Return the tokens of `steps` greedy steps of the first n rows, [steps, n]. The copy must be done."""
        tokens: IntArray = self._history.host.view(np.int64).reshape(STEPS_AT_ONCE, -1)
        return tokens[:steps, :n]

    @cached_property
    def logits(self) -> FloatRows:
        """Logits, [R, V]."""
        return FloatRows(self._runtime, self._shape.rows, self._vocab_size)

    @cached_property
    def query_address(self) -> int:
        """Address of the query that a step returns for the alignment graph, [R, W]."""
        shape = self._shape
        return self._runtime.allocate(shape.rows * shape.query_width * shape.dtype.itemsize)

    @cached_property
    def queries(self) -> npt.NDArray[np.generic]:
        """The queries of the steps that were kept last, in the host's memory, [T, R, W]. The copies must be done."""
        shape = self._shape
        size = shape.target_capacity * shape.rows * shape.query_width * shape.dtype.itemsize
        pinned = self._runtime.allocate_pinned(size).view(shape.dtype)
        return pinned.reshape(shape.target_capacity, shape.rows, shape.query_width)

    @cached_property
    def _keys(self) -> int:
        return self._runtime.allocate(QUERIES_AT_ONCE * self._keys_bytes)

    def repeat_keys(self, address: int, times: int) -> int:
        """Queue copies of a row's keys, [H, C, D], one behind the other, and return their address.

        With one copy for all queries, ONNX Runtime would take another kernel of cuBLAS.
        """
        size = self._keys_bytes
        for number in range(times):
            self._runtime.copy(self._keys + number * size, address, size)
        return self._keys

    def keep(self, n: int, number: int) -> None:
        """Queue a copy of the query of the last step, which had n rows, to the host."""
        kept = self.queries[number % self._shape.target_capacity, :n]
        self._runtime.copy(kept.ctypes.data, self.query_address, kept.nbytes)
