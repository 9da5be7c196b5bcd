"""The CUDA backend on a CPU: the CPU provider runs its graphs, and `helpers.cuda_on_cpu` runs its kernels.

The stream runs queued work in order, but at random moments, as on a GPU: at once, or as late as when the host waits for
the stream. So a test fails if the host reads or writes memory before the stream is done with it.
"""

import ctypes
import random
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from helpers.cuda_on_cpu import CpuDevice, kernels_library
from translane_server.bundle.bundle import Bundle
from translane_server.core.errors import DeviceError
from translane_server.runtime.cuda.backend import CudaBackend
from translane_server.runtime.cuda_runtime import Extent
from translane_server.runtime.sessions import Sessions

_Work = Callable[[], object]
_Failure = Literal["within", "at its end"]  # of a capture


class CpuRuntime(CpuDevice):
    """Stands for `translane_server.runtime.cuda_runtime.CudaRuntime`.

    Attributes:
        counts: how often each call was made.
        launched: how many graphs were launched.
    """

    def __init__(self, seed: int = 0, capture_fails: _Failure | None = None) -> None:
        super().__init__(kernels_library(), seed)
        self._queue: list[_Work] = []
        self._recorded: list[_Work] | None = None
        self._graphs: dict[int, list[_Work]] = {}
        # The chance that the stream catches up when work is queued: never, always, or sometimes.
        self._promptness, self._chance = (0.0, 1.0, 0.3)[seed % 3], random.Random(seed)
        self._capture_fails = capture_fails
        self.counts = {"synchronize": 0, "launch_graph": 0, "capture": 0, "copy": 0, "run": 0}

    def allocate_pinned(self, size: int) -> npt.NDArray[np.uint8]:
        pinned = super().view(self.allocate(size), np.uint8, size)
        pinned.fill(0)
        return pinned

    def free_pinned(self, pinned: npt.NDArray[np.uint8]) -> None:
        self.free(pinned.ctypes.data)

    def load_kernels(self, code: bytes, names: Sequence[str]) -> None:
        assert code.endswith(b"\0")

    def queue(self, work: _Work) -> None:
        if self._recorded is not None:
            self._recorded.append(work)
            return
        self._queue.append(work)
        if self._chance.random() < self._promptness:
            self._catch_up()

    def _catch_up(self) -> None:
        queued, self._queue = self._queue, []
        for work in queued:
            work()

    def copy(self, target: int, source: int, size: int) -> None:
        self.counts["copy"] += 1
        copied, read = self._piece(target, size), self._piece(source, size)
        self.queue(lambda: np.copyto(copied, read))

    def launch(self, name: str, grid: Extent, block: Extent, arguments: Sequence[ctypes.Structure]) -> None:
        kept = [type(argument).from_buffer_copy(argument) for argument in arguments]
        self.queue(lambda: super(CpuRuntime, self).launch(name, grid, block, kept))

    def run(self, session: Any, binding: object) -> None:
        self.counts["run"] += 1
        if self._recorded is not None and self._capture_fails == "within":
            raise RuntimeError("operation not permitted when stream is capturing")
        self.queue(lambda: session.run_with_iobinding(binding))

    def synchronize(self) -> None:
        assert self._recorded is None, "CUDA refuses to wait while it captures"
        self.counts["synchronize"] += 1
        self._catch_up()

    def begin_capture(self) -> None:
        assert self._recorded is None
        self._recorded = []

    def abandon_capture(self) -> None:
        self._recorded = None

    def end_capture(self) -> int:
        assert self._recorded is not None, "nothing is captured"
        if self._capture_fails == "at its end":
            self._recorded = None
            raise DeviceError("CUDA: cudaGraphInstantiate failed: out of memory")
        self.counts["capture"] += 1
        handle = self.counts["capture"]
        self._graphs[handle], self._recorded = self._recorded, None
        return handle

    def launch_graph(self, graph: int) -> None:
        self.counts["launch_graph"] += 1
        for work in self._graphs[graph]:
            self.queue(work)

    def destroy_graph(self, graph: int) -> None:
        del self._graphs[graph]

    def close(self) -> None:
        self.synchronize()
        assert not self._graphs, "a graph is not released"
        self._memory.clear()

    def _piece(self, address: int, size: int) -> npt.NDArray[np.uint8]:
        for start, memory in self._memory.items():
            if start <= address and address + size <= start + memory.size:
                return memory[address - start :][:size]
        raise AssertionError("a copy reaches beyond what is allocated")


def cuda_backend_on_cpu(
    bundle: Bundle, *, capture: bool = True, capture_fails: _Failure | None = None, seed: int = 0, **sizes: int
) -> tuple[CudaBackend, CpuRuntime]:
    """Return a `CudaBackend` with `bundle`, and its runtime."""
    runtime = CpuRuntime(seed, capture_fails)
    real = Sessions(bundle, threads=1)
    sessions = SimpleNamespace(
        bundle=bundle,
        device="cpu",
        cuda=runtime,
        bound_run=lambda session, binding: partial(runtime.run, session, binding),
        close=runtime.close,
        **{name: getattr(real, name) for name in ("encoder", "decoder", "greedy", "alignment")},
    )
    return CudaBackend(cast(Sessions, sessions), capture=capture, **sizes), runtime
