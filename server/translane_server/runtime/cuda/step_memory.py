"""What a decoder step reads and writes: in device memory for the graph, and mirrored in pinned memory for the host.

Everything a step reads lies together, so that one copy takes it to the device; so do its candidates on the way back.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from translane_server.arrays import FloatArray, Int32Array, IntArray
from translane_server.runtime.cache import CacheShape
from translane_server.runtime.cuda.runtime import CudaRuntime

STEPS_AT_ONCE = 4  # greedy steps that the host does not look at one by one


class Mirrored:
    """A piece of device memory, and as much pinned memory for the host to read and write."""

    def __init__(self, runtime: CudaRuntime, size: int) -> None:
        self._runtime = runtime
        self.address = runtime.allocate(size)
        self.host = runtime.allocate_pinned(size)

    def to_device(self) -> None:
        """Queue a copy of all of it to the device."""
        self._runtime.copy(self.address, self.host.ctypes.data, self.host.size)

    def to_host(self, size: int) -> None:
        """Queue a copy of the first `size` bytes to the host."""
        assert size <= self.host.size, "there is not so much"
        self._runtime.copy(self.host.ctypes.data, self.address, size)

    def free(self) -> None:
        """Release both."""
        self._runtime.free(self.address)
        self._runtime.free_pinned(self.host)


class StepInputs:
    """Inputs of a step over the first n of R rows.

    Attributes:
        source_lengths: of every row, [R]; those of rows that nobody holds are valid lengths, too.
        token_ids_address: where the device has token ids, int64 [R].
        positions_address: positions, int32 [R].
        source_lengths_address: int32 [R].
        counter_address: the number of steps taken since the inputs were copied, int32 [1].
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
        """Queue a copy of the inputs of a step over n rows, both [n], which is run over `bucket` rows.

        No sentence has the rows beyond n. The step writes their first positions, which the next sentence in such a row
        overwrites before it reads them.
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
        """Reserve them."""
        return cls(Mirrored(runtime, rows * count * 12), rows, count)

    @property
    def ids_address(self) -> int:
        """Where the device has the ids."""
        return self.memory.address

    @property
    def log_probs_address(self) -> int:
        """Where the device has the log-probabilities."""
        return self.memory.address + 8 * self.rows * self.count

    def to_host(self) -> None:
        """Queue a copy of all to the host."""
        self.memory.to_host(self.memory.host.size)

    def read(self, n: int) -> tuple[IntArray, FloatArray]:
        """Ids and log-probabilities of the first n rows, [n, K] each, once the copy is done."""
        ids = self.memory.host[: 8 * self.rows * self.count].view(np.int64).reshape(self.rows, self.count)
        log_probs = self.memory.host[8 * self.rows * self.count :].view(np.float32).reshape(self.rows, self.count)
        return ids[:n], log_probs[:n]


class FloatRows:
    """Rows of float32 that a step returns for some requests alone: logits [R, V], or attention weights [R, C]."""

    def __init__(self, runtime: CudaRuntime, rows: int, width: int) -> None:
        self._memory = Mirrored(runtime, 4 * rows * width)
        self._width = width

    @property
    def address(self) -> int:
        """Where the device has them."""
        return self._memory.address

    def to_host(self, n: int) -> None:
        """Queue a copy of the first n rows to the host."""
        self._memory.to_host(4 * n * self._width)

    def read(self, n: int) -> FloatArray:
        """The first n rows, [n, width], once the copy is done."""
        rows: npt.NDArray[np.float32] = self._memory.host[: 4 * n * self._width].view(np.float32)
        return rows.reshape(n, self._width)


class StepMemory:
    """All that steps over R rows read and write, rows of keys and values apart.

    What few requests ask for is reserved when a step first returns it.

    Args:
        runtime: of the device.
        shape: of the rows' keys and values.
        vocab_size: V, of the target.
        start_id: a token to feed rows that nobody holds.

    Attributes:
        inputs: what every step reads.
    """

    def __init__(self, runtime: CudaRuntime, shape: CacheShape, *, vocab_size: int, start_id: int) -> None:
        self._runtime = runtime
        self._shape = shape
        self._vocab_size = vocab_size
        self.inputs = StepInputs(runtime, shape.rows, start_id)
        self._history = Mirrored(runtime, 8 * STEPS_AT_ONCE * shape.rows)

    @property
    def history_address(self) -> int:
        """Where greedy steps leave their tokens, int64 [STEPS_AT_ONCE, R]."""
        return self._history.address

    def history_to_host(self, steps: int) -> None:
        """Queue a copy of the tokens of so many greedy steps to the host."""
        self._history.to_host(8 * steps * self._shape.rows)

    def read_history(self, steps: int, n: int) -> IntArray:
        """The tokens of so many greedy steps of the first n rows, [steps, n], once the copy is done."""
        tokens: IntArray = self._history.host.view(np.int64).reshape(STEPS_AT_ONCE, -1)
        return tokens[:steps, :n]

    @cached_property
    def logits(self) -> FloatRows:
        """Logits, [R, V]."""
        return FloatRows(self._runtime, self._shape.rows, self._vocab_size)

    @cached_property
    def attention(self) -> FloatRows:
        """Attention weights, [R, C]."""
        return FloatRows(self._runtime, self._shape.rows, self._shape.source_capacity)

    @cached_property
    def query_address(self) -> int:
        """Where a step leaves the query of the alignment graph, [R, H * D]."""
        shape = self._shape
        return self._runtime.allocate(shape.rows * shape.heads * shape.head_size * shape.dtype.itemsize)
