"""Inputs and outputs of decoder steps: in device memory for the graph, and mirrored in pinned memory for the host.

All inputs of a step lie together, so that one copy takes them to the device. All candidates of a step lie together, so
that one copy takes them back.
"""

from __future__ import annotations

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

    def to_host(self, size: int | None = None) -> None:
        """Queue a copy of the first `size` bytes to the host, or of all."""
        size = self.host.size if size is None else size
        assert size <= self.host.size, "there is not so much"
        self._runtime.copy(self.host.ctypes.data, self.address, size)

    def free(self) -> None:
        """Release both pieces of memory."""
        self._runtime.free(self.address)
        self._runtime.free_pinned(self.host)


class StepInputs(Mirrored):
    """Inputs of a step over the first n of R rows."""

    def __init__(self, runtime: CudaRuntime, rows: int, start_id: int) -> None:
        counter = rows * (8 + 4 + 4)
        super().__init__(runtime, counter + 4)
        # Addresses on the device: token ids int64 [R], positions int32 [R], source lengths int32 [R], and the number of
        # steps since the inputs were copied, int32 [1].
        self.token_ids_address = self.address
        self.positions_address = self.address + 8 * rows
        self.source_lengths_address = self.address + 12 * rows
        self.counter_address = self.address + counter
        self._token_ids: IntArray = self.host[: 8 * rows].view(np.int64)
        self._positions: Int32Array = self.host[8 * rows : 12 * rows].view(np.int32)
        # The source length of every row, [R]. Free rows have valid lengths, too.
        self.source_lengths: Int32Array = self.host[12 * rows : counter].view(np.int32)
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
        self.to_device()


class CandidateMemory(Mirrored):
    """Candidates of a step over `rows` rows, `count` for each."""

    def __init__(self, runtime: CudaRuntime, rows: int, count: int) -> None:
        id_bytes = 8 * rows * count
        super().__init__(runtime, id_bytes + 4 * rows * count)
        self.ids_address, self.log_probs_address = self.address, self.address + id_bytes  # on the device
        # Views of the host's memory, [rows, count] each. They are valid once the copy of `to_host` is done.
        self.ids: IntArray = self.host[:id_bytes].view(np.int64).reshape(rows, count)
        self.log_probs: FloatArray = self.host[id_bytes:].view(np.float32).reshape(rows, count)


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
    def logits(self) -> Mirrored:
        """Logits, float32 [R, V]."""
        return Mirrored(self._runtime, 4 * self._shape.rows * self._vocab_size)

    def logits_to_host(self, n: int) -> None:
        """Queue a copy of the logits of the first n rows to the host."""
        self.logits.to_host(4 * n * self._vocab_size)

    def read_logits(self, n: int) -> FloatArray:
        """Return the logits of the first n rows, [n, V]. The copy must be done."""
        logits: FloatArray = self.logits.host.view(np.float32).reshape(-1, self._vocab_size)
        return logits[:n]

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
