"""Decoder steps as CUDA graphs: a step is one launch, whatever its number of kernels.

A graph has fixed shapes and addresses. So a step over n rows runs over as many rows as the next larger of `buckets`.
Each bucket has one graph for each kind of step. A graph is captured when a step first needs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from translane_server.core.errors import first_line
from translane_server.runtime.backend import BEST_TOKEN, StepNeeds
from translane_server.runtime.cuda.bindings import BoundStep, StepBindings
from translane_server.runtime.cuda.step_memory import CandidateMemory
from translane_server.runtime.cuda_runtime import CudaRuntime

_log = logging.getLogger(__name__)

_MOST_STEPS = 160  # each step holds device memory for its candidates and its graph


def buckets(rows: int) -> list[int]:
    """Return the numbers of rows that have graphs, in order. The last number is `rows`.

    In a step over more than four rows, at most a third of the rows are free.
    """
    sizes = {1, 2, 3, rows}
    power = 4
    while power < rows:
        sizes |= {power, power * 3 // 2}
        power *= 2
    return sorted(size for size in sizes if size <= rows)


@dataclass(frozen=True)
class Step:
    """A step that is ready to run."""

    bound: BoundStep  # queues the step kernel by kernel. It owns memory that the graph reads
    candidates: CandidateMemory  # where the step leaves its candidates
    graph: int | None  # the handle of its CUDA graph; None if it is not captured
    queue: Callable[[], None]


@dataclass(eq=False)
class StepGraphs:
    """Makes steps, and keeps them. Without `captures`, their kernels are queued one by one."""

    runtime: CudaRuntime
    bindings: StepBindings
    captures: bool  # turned off after the first capture that fails
    _steps: dict[tuple[int, StepNeeds | None, bool], Step] = field(default_factory=dict)

    def greedy(self, bucket: int, *, with_query: bool) -> Step:
        """Return a greedy step over `bucket` rows. The step feeds every row the token that it chooses."""
        return self._find(bucket, BEST_TOKEN if with_query else None, feeds_back=True)

    def scored(self, bucket: int, needs: StepNeeds) -> Step:
        """Return a step over `bucket` rows that returns what `needs` asks for, and the query."""
        return self._find(bucket, needs, feeds_back=False)

    def clear(self) -> None:
        """Release all steps."""
        for step in self._steps.values():
            self._release(step)
        self._steps.clear()

    def _find(self, bucket: int, needs: StepNeeds | None, *, feeds_back: bool) -> Step:
        step = self._steps.pop((bucket, needs, feeds_back), None)
        if step is None:
            if len(self._steps) >= _MOST_STEPS:
                self._release(self._steps.pop(next(iter(self._steps))))  # used longest ago
            step = self._make(bucket, needs, feeds_back=feeds_back)
        self._steps[bucket, needs, feeds_back] = step
        return step

    def _release(self, step: Step) -> None:
        if step.graph is not None:
            self.runtime.destroy_graph(step.graph)
        step.candidates.free()

    def _make(self, bucket: int, needs: StepNeeds | None, *, feeds_back: bool) -> Step:
        candidates = CandidateMemory(self.runtime, bucket, needs.num_candidates if needs else 1)
        bound = self.bindings.bind(bucket, needs, candidates, feeds_back=feeds_back)
        if self.captures:
            # A capture fails if something reserves memory in it. Libraries reserve memory when they first need it.
            # ONNX Runtime measures its need in the first run, and reserves one block in the second run.
            bound.run()
            bound.run()
            try:
                graph = self._capture(bound)
            except Exception as error:  # noqa: BLE001 - steps run without graphs, too, whatever ONNX Runtime or CUDA says
                _log.warning(
                    "a step over %d rows cannot be captured as a CUDA graph; this step and all new kinds of steps"
                    " take longer: %s",
                    bucket,
                    first_line(error),
                )
                self.captures = False
            else:
                return Step(bound, candidates, graph, partial(self.runtime.launch_graph, graph))
        return Step(bound, candidates, None, bound.queue)

    def _capture(self, step: BoundStep) -> int:
        self.runtime.synchronize()
        self.runtime.begin_capture()
        try:
            step.queue()
        except BaseException:
            self.runtime.abandon_capture()
            raise
        return self.runtime.end_capture()
