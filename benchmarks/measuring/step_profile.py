"""Where a decoder step's time goes, by what a node is for: ONNX Runtime's profile, read run by run.

The profiler itself takes some of each node's time, and counts whole microseconds. Nodes that only give a tensor another
shape do next to nothing, so their median is taken for the profiler's share of any node.
https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
"""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROLES = (
    "products",
    "self-attention",
    "cross-attention",
    "norms",
    "quantization",
    "additions",
    "activations",
    "embeddings",
    "candidates",
    "shapes",
)
PRODUCTS = ("Gemm", "FusedGemm", "MatMul", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "MatMulNBits")
_NORMS = (
    "LayerNormalization",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
    "BatchNormalization",
    "InstanceNormalization",
)
_ACTIVATIONS = ("Relu", "Gelu", "QuickGelu", "BiasGelu", "FastGelu", "Sigmoid", "Erf")
_BY_OPERATOR = {
    **dict.fromkeys(PRODUCTS, "products"),
    **dict.fromkeys(_NORMS, "norms"),
    **dict.fromkeys(_ACTIVATIONS, "activations"),
    "QuantizeLinear": "quantization",
}
_ATTENTION = ("GroupQueryAttention", "MultiHeadAttention")
RESHAPING = ("Squeeze", "Unsqueeze", "Reshape")
_SHAPES = (*RESHAPING, "Shape", "Slice", "Sub", "Identity")

Event = Mapping[str, Any]


@dataclass(frozen=True)
class StepTimes:
    """A run of a step's graph: how many nodes it has, and their time by role [µs], without the profiler's share."""

    nodes: int
    roles: Mapping[str, float]


def step_times(events: Sequence[Event], runs: int) -> StepTimes:
    """Return the times of the last `runs` runs of a profile: of each node the lower quartile.

    Other programs only make a node take longer, so the quartile is nearer to the truth than the median.

    Raises:
        ValueError: the profile has fewer runs.
    """
    starts = sorted(each["ts"] for each in events if each["name"] == "model_run")[-runs:]
    if len(starts) < runs:
        raise ValueError(f"the profile has {len(starts)} runs, and not {runs}")
    nodes: list[list[Event]] = [[] for _ in starts]
    for each in events:
        if each["cat"] == "Node" and each["name"].endswith("_kernel_time") and each["ts"] >= starts[0]:
            nodes[bisect_right(starts, each["ts"]) - 1].append(each)
    places = list(zip(*map(outermost, nodes), strict=True))  # runs have the same nodes, in the same order
    times = [_lower_quartile([each["dur"] for each in place]) for place in places]
    operators = [_operator(place[0]) for place in places]
    own = [time for time, operator in zip(times, operators, strict=True) if operator in RESHAPING]
    profiler = statistics.median(own or [0.0])
    products = [place for place, operator in enumerate(operators) if operator in PRODUCTS] or [len(places)]
    roles = dict.fromkeys(ROLES, 0.0)
    for number, (place, time) in enumerate(zip(places, times, strict=True)):
        role = _role(place[0], before=number < products[0], after=number > products[-1])
        roles[role] += max(0.0, time - profiler)
    return StepTimes(len(places), roles)


def outermost(nodes: Sequence[Event]) -> list[Event]:
    """Return the nodes of a run in order, without those that run within another one, as those of an If do."""
    kept: list[Event] = []
    end = 0.0
    for node in sorted(nodes, key=lambda each: (each["ts"], -each["dur"])):
        if kept and node["ts"] + node["dur"] <= end:
            continue
        kept.append(node)
        end = node["ts"] + node["dur"]
    return kept


def _lower_quartile(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 4]


def _role(node: Event, *, before: bool, after: bool) -> str:
    """Return what a node is for; `before` all products there are embeddings, and `after` them candidates."""
    operator = _operator(node)
    if operator in _ATTENTION:
        return "cross-attention" if _adds_nothing(node) else "self-attention"
    if operator in _BY_OPERATOR:
        return _BY_OPERATOR[operator]
    if after:
        return "candidates"
    if operator in _SHAPES:
        return "shapes"
    return "embeddings" if before else "additions" if operator in ("Add", "Mul") else "shapes"


def _operator(node: Event) -> str:
    return str(node["args"]["op_name"])


def _adds_nothing(attention: Event) -> bool:
    """Whether an attention is given keys of length zero: it reads what the encoder left."""
    shapes = [shape for each in attention["args"].get("input_type_shape", ()) for shape in each.values()]
    return any(0 in shape for shape in shapes)
