"""The CUDA backend on a CPU: the CPU's provider runs its graphs, and `helpers.cuda_on_cpu` its kernels.

The stream runs what is queued in order, and at moments that only chance decides, as on a GPU: at once, or as late as
when somebody waits for it. So a test shows what the host writes or reads too early, and what it relies on too late.
"""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np

from helpers.cuda_on_cpu import CpuDevice, kernels_library
from translane_server.errors import DeviceError
from translane_server.runtime.cuda.backend import CudaBackend
from translane_server.runtime.sessions import Sessions


class CpuRuntime(CpuDevice):
    """See `translane_server.runtime.cuda.runtime.CudaRuntime`.

    Attributes:
        counts: how often each call was made.
        launched: how many graphs were launched.
    """

    def __init__(self, seed=0, capture_fails=None):
        super().__init__(kernels_library(), seed)
        self._queue, self._recorded, self._graphs = [], None, {}
        # How likely it is that the stream catches up when something is queued: never, always, or now and then.
        self._promptness, self._chance = (0.0, 1.0, 0.3)[seed % 3], random.Random(seed)
        self._capture_fails = capture_fails
        self.counts = {"synchronize": 0, "launch_graph": 0, "capture": 0, "copy": 0, "run": 0}

    def allocate_pinned(self, size):
        pinned = super().view(self.allocate(size), np.uint8, size)
        pinned.fill(0)
        return pinned

    def free_pinned(self, pinned):
        self.free(pinned.ctypes.data)

    def load_kernels(self, code, names):
        assert code.endswith(b"\0")

    def queue(self, work):
        if self._recorded is not None:
            self._recorded.append(work)
            return
        self._queue.append(work)
        if self._chance.random() < self._promptness:
            self._catch_up()

    def _catch_up(self):
        queued, self._queue = self._queue, []
        for work in queued:
            work()

    def copy(self, target, source, size):
        self.counts["copy"] += 1
        copied, read = self._piece(target, size), self._piece(source, size)
        self.queue(lambda: np.copyto(copied, read))

    def launch(self, name, grid, block, arguments):
        kept = [type(argument).from_buffer_copy(argument) for argument in arguments]
        self.queue(lambda: super(CpuRuntime, self).launch(name, grid, block, kept))

    def run(self, session, binding):
        self.counts["run"] += 1
        if self._recorded is not None and self._capture_fails == "within":
            raise RuntimeError("operation not permitted when stream is capturing")
        self.queue(lambda: session.run_with_iobinding(binding))

    def synchronize(self):
        assert self._recorded is None, "CUDA refuses to wait while it captures"
        self.counts["synchronize"] += 1
        self._catch_up()

    def begin_capture(self):
        assert self._recorded is None
        self._recorded = []

    def abandon_capture(self):
        self._recorded = None

    def end_capture(self):
        if self._capture_fails == "at its end":
            self._recorded = None
            raise DeviceError("CUDA: cudaGraphInstantiate failed: out of memory")
        self.counts["capture"] += 1
        handle = self.counts["capture"]
        self._graphs[handle], self._recorded = self._recorded, None
        return handle

    def launch_graph(self, graph):
        self.counts["launch_graph"] += 1
        for work in self._graphs[graph]:
            self.queue(work)

    def destroy_graph(self, graph):
        del self._graphs[graph]

    def close(self):
        self.synchronize()
        assert not self._graphs, "a graph is not released"
        self._memory.clear()

    def _piece(self, address, size):
        for start, memory in self._memory.items():
            if start <= address and address + size <= start + memory.size:
                return memory[address - start :][:size]
        raise AssertionError("a copy reaches beyond what is allocated")


def _queued(runtime, session):
    """A session whose runs are queued."""
    if session is None:
        return None
    return SimpleNamespace(
        io_binding=session.io_binding, run_with_iobinding=lambda binding, _options: runtime.run(session, binding)
    )


def cuda_backend_on_cpu(bundle, *, capture=True, capture_fails=None, seed=0, **sizes):
    """A `CudaBackend` over `bundle`, and the runtime it is on."""
    runtime = CpuRuntime(seed, capture_fails)
    real = Sessions(bundle, threads=1)
    sessions = SimpleNamespace(
        bundle=bundle,
        device="cpu",
        cuda=runtime,
        run_options=None,
        close=runtime.close,
        **{name: _queued(runtime, getattr(real, name)) for name in ("encoder", "decoder", "greedy", "alignment")},
    )
    return CudaBackend(sessions, capture=capture, **sizes), runtime
