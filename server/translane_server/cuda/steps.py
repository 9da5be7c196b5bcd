"""Decoder steps as CUDA graphs: one launch each, whatever the number of kernels.

A graph has fixed shapes and addresses. So a step over n rows runs over a few more, as many as the next of `buckets`.
Each bucket has a graph for each need, which is captured when a step first needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from translane_server.backend import StepNeeds
from translane_server.cuda.bindings import StepBindings
from translane_server.cuda.runtime import CudaRuntime
from translane_server.cuda.step_memory import CandidateMemory
from translane_server.graph_backend import first_line

_log = logging.getLogger(__name__)

_MOST_GRAPHS = 160  # a graph takes some hundred kilobytes of the device's memory


def buckets(rows: int) -> list[int]:
    """The numbers of rows that there are graphs for, in order; the last one is all `rows`.

    At most a third of a step over more than four rows is for rows that nobody holds.
    """
    sizes = {1, 2, 3, 4, rows}
    power = 4
    while power < rows:
        sizes |= {size for size in (power, power * 3 // 2) if size <= rows}
        power *= 2
    return sorted(size for size in sizes if size <= rows)


@dataclass(frozen=True)
class Step:
    """A step that is ready to run.

    Attributes:
        queue: puts it on the stream.
        candidates: where it leaves its candidates.
        graph: the handle of its CUDA graph, if it is captured.
        uncaptured: puts its kernels on the stream one by one; it keeps the memory that they are given.
    """

    queue: Callable[[], None]
    candidates: CandidateMemory
    graph: int | None
    uncaptured: Callable[[], None]


class StepGraphs:
    """Makes steps, and keeps them.

    Args:
        runtime: of the device.
        bindings: bind the graphs of the bundle.
        capture: whether to capture steps as CUDA graphs; else their kernels are queued one by one.
    """

    def __init__(self, runtime: CudaRuntime, bindings: StepBindings, *, capture: bool) -> None:
        self._runtime = runtime
        self._bindings = bindings
        self._captures = capture
        self._steps: dict[tuple[int, StepNeeds | None], Step] = {}

    def greedy(self, bucket: int) -> Step:
        """A greedy step over `bucket` rows, which feeds every row the token that it chooses."""
        return self._steps.get((bucket, None)) or self._keep(bucket, None)

    def scored(self, bucket: int, needs: StepNeeds) -> Step:
        """A step over `bucket` rows that returns what `needs` asks for."""
        return self._steps.get((bucket, needs)) or self._keep(bucket, needs)

    def clear(self) -> None:
        """Release all steps."""
        for step in self._steps.values():
            if step.graph is not None:
                self._runtime.destroy_graph(step.graph)
            step.candidates.memory.free()
        self._steps.clear()

    def _keep(self, bucket: int, needs: StepNeeds | None) -> Step:
        if len(self._steps) >= _MOST_GRAPHS:
            self.clear()
        step = self._steps[bucket, needs] = self._make(bucket, needs)
        return step

    def _make(self, bucket: int, needs: StepNeeds | None) -> Step:
        candidates = CandidateMemory.allocate(self._runtime, bucket, needs.num_candidates if needs else 1)
        run, after = self._bindings.bind(bucket, needs, candidates)

        def uncaptured() -> None:
            run()
            after()

        if self._captures:
            # Outside a capture, libraries may reserve what they need. ONNX Runtime does so in the second run, too,
            # which it lays out by what the first one took. Running a step again changes nothing.
            run()
            run()
            try:
                graph = self._capture(uncaptured)
            except Exception as error:  # noqa: BLE001 - whatever ONNX Runtime or CUDA says, steps run without graphs, too
                _log.warning("steps are not captured as CUDA graphs, and take longer: %s", first_line(error))
                self._captures = False
            else:
                return Step(partial(self._runtime.launch_graph, graph), candidates, graph, uncaptured)
        return Step(uncaptured, candidates, None, uncaptured)

    def _capture(self, queue: Callable[[], None]) -> int:
        self._runtime.synchronize()
        self._runtime.begin_capture()
        try:
            queue()
        except BaseException:
            self._runtime.abandon_capture()
            raise
        return self._runtime.end_capture()
