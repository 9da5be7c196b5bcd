"""Where the time of a run of a graph goes: ONNX Runtime's profile, added up by type of operator.

The format of a profile: https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
"""

from __future__ import annotations

import json
import tempfile
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from translane_export.explain.translation import Translated
from translane_server.bundle.bundle import Bundle
from translane_server.runtime.backend import BEST_TOKEN_ALONE
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

_MOST_RUNS = 200
_LEAST_RUNS = 10
_SECONDS = 2.0  # of the runs of one graph, once there are the fewest
_WARM_UP = 5  # runs that do not count: the first ones allocate memory
# A profile takes 640 bytes for each node of each run; a layer has some 40 nodes.
_MOST_EVENTS = 40_000
_NODES_OF_A_LAYER = 40

Event = Mapping[str, Any]
_Run = TypeVar("_Run")


@dataclass(frozen=True)
class OperatorTime:
    """The nodes of one type in a run: their number, their time [µs], and its share of all operators' time (0 … 1)."""

    operator: str
    nodes: float
    microseconds: float
    share: float


@dataclass(frozen=True)
class GraphTime:
    """The time of a graph by type of operator, the longest first. The faster half of the runs count.

    ``microseconds`` are the mean time of a run, and ``profiled_microseconds`` that with the profiler, which takes time
    between the operators. Their shares sum to 1.
    """

    graph: str
    runs: int
    microseconds: float
    profiled_microseconds: float
    operators: tuple[OperatorTime, ...]

    @property
    def headline(self) -> str:
        """The time of a run in a line."""
        inside = sum(each.microseconds for each in self.operators)
        return (
            f"a run takes {self.microseconds:,.0f} µs; with the profiler {self.profiled_microseconds:,.0f} µs, of which"
            f" operators take {inside:,.0f} µs (mean of the {self.runs} fastest runs, half of all)"
        )


def profile_graphs(bundle: Bundle, translated: Translated, threads: int) -> tuple[GraphTime, ...]:
    """Return the time of a greedy decoder step of one row, and of the encoder, over this sentence.

    The steps feed the translation's own tokens at their own positions, so their mean is that of the sentence.
    """
    layers = max(bundle.manifest.architecture.encoder_layers, bundle.manifest.architecture.decoder_layers)
    runs = max(_LEAST_RUNS, min(_MOST_RUNS, _MOST_EVENTS // (_NODES_OF_A_LAYER * layers)))
    with tempfile.TemporaryDirectory() as folder:
        plain = _time_runs(Sessions(bundle, threads=threads), translated, runs)
        sessions = Sessions(bundle, threads=threads, profile=str(Path(folder) / "profile"))
        _time_runs(sessions, translated, runs)
        step = sessions.greedy or sessions.decoder
        profiles = [json.loads(Path(session.end_profiling()).read_bytes()) for session in (step, sessions.encoder)]
        sessions.close()
    timed = zip(("decoder step", "encoder"), profiles, plain, strict=True)
    return tuple(summarise(name, events, mean, _WARM_UP) for name, events, mean in timed)


def summarise(graph: str, events: Sequence[Event], unprofiled: float, left_out: int) -> GraphTime:
    """Add up the `events` of the faster half of a profile's runs, of which the first `left_out` do not count.

    A node that holds a graph of its own, such as If, counts without the nodes of that graph.
    """
    runs = sorted((each for each in events if each["name"] == "model_run"), key=lambda each: each["ts"])[left_out:]
    counted = _faster_half(runs, key=lambda each: each["dur"])
    starts = [each["ts"] for each in runs]
    fast = {each["ts"] for each in counted}
    nodes = [
        each
        for each in events
        if each["cat"] == "Node"
        and each["name"].endswith("_kernel_time")
        and (place := bisect_right(starts, each["ts"]))
        and starts[place - 1] in fast
    ]
    times: dict[str, float] = defaultdict(float)
    counts: dict[str, int] = defaultdict(int)
    for operator, own in _own_times(nodes):
        times[operator] += own
        counts[operator] += 1
    inside = max(sum(times.values()), 1e-9)
    operators = [
        OperatorTime(name, counts[name] / len(counted), total / len(counted), total / inside)
        for name, total in times.items()
    ]
    operators.sort(key=lambda each: (-each.microseconds, each.operator))
    profiled = sum(run["dur"] for run in counted) / len(counted)
    return GraphTime(graph, len(counted), unprofiled, profiled, tuple(operators))


def _faster_half(runs: Iterable[_Run], key: Callable[[_Run], float]) -> list[_Run]:
    """Return the faster half of the runs: the others may have waited for other programs."""
    ordered = sorted(runs, key=key)
    return ordered[: (len(ordered) + 1) // 2]


def _own_times(nodes: Sequence[Event]) -> list[tuple[str, float]]:
    """Return the operator of each node and its time [µs], less that of the nodes that run within it."""
    own: list[tuple[str, float]] = []
    open_until: list[tuple[float, int]] = []  # end and number of each node that others may run within
    for node in sorted(nodes, key=lambda each: (each["ts"], -each["dur"])):
        start, duration = node["ts"], node["dur"]
        while open_until and open_until[-1][0] < start + duration:
            open_until.pop()
        if open_until:
            outer = open_until[-1][1]
            own[outer] = (own[outer][0], own[outer][1] - duration)
        open_until.append((start + duration, len(own)))
        own.append((node["args"]["op_name"], duration))
    return [(operator, max(0.0, time_)) for operator, time_ in own]


def _time_runs(sessions: Sessions, translated: Translated, runs: int) -> tuple[float, float]:
    """Return the mean time of a decoder step and of an encoder run [µs]."""
    source, fed = translated.source.ids, translated.fed_ids
    backend = OrtBackend(sessions, rows=1, source_capacity=len(source), target_capacity=len(fed))
    tokens = [np.array([token], np.int64) for token in fed]
    positions = [np.array([position], np.int32) for position in range(len(fed))]

    def step(number: int) -> None:
        place = number % len(fed)
        backend.decode_step(tokens[place], positions[place], BEST_TOKEN_ALONE)

    def encode(_number: int) -> None:
        backend.encode([source], 0)

    encoder = _mean_time(encode, runs)  # first: the steps look at what it leaves
    decoder = _mean_time(step, runs)
    backend.close()
    return decoder, encoder


def _mean_time(run: Callable[[int], None], runs: int) -> float:
    """Return the mean time of the faster half of so many `runs` [µs], or of fewer where they take long."""
    for number in range(_WARM_UP):
        run(number)
    times: list[float] = []
    while len(times) < runs and (len(times) < _LEAST_RUNS or sum(times) < _SECONDS):
        start = time.perf_counter()
        run(_WARM_UP + len(times))
        times.append(time.perf_counter() - start)
    fast = _faster_half(times, key=float)
    return sum(fast) / len(fast) * 1e6
