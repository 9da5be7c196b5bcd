"""Rules for ONNX models that run on CUDA without copies in the middle of a step, and as a CUDA graph.

A rule returns its violations as sentences that name the node. A table says which operator has a kernel for which type.
tests/rehearsal/operators.py makes the table from where ONNX Runtime puts the nodes of real bundles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

TABLE = Path(__file__).parents[1] / "data" / "cuda_operators.json"

Triple = tuple[str, str, str]  # domain, operator, type of its elements

_BRANCHES = {"If", "Loop", "Scan"}
_COUNTS = {"num_candidates", "num_blocks"}
_COMPARISONS = {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not", "Xor", "IsNaN"}
_KEY_PADDING_MASK = 4  # input of MultiHeadAttention
_KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _ATTENTION_BIAS = 1, 2, 3, 4, 10  # inputs of GroupQueryAttention


@dataclass(frozen=True)
class OperatorTable:
    """Where ONNX Runtime's CUDA provider runs the nodes of exported graphs."""

    onnxruntime: str  # the version of ONNX Runtime
    cuda: frozenset[Triple]  # nodes that run on the GPU
    cpu: frozenset[Triple]  # nodes that stay on the CPU, because they compute shapes

    @classmethod
    def load(cls, file: Path = TABLE) -> OperatorTable:
        values = json.loads(file.read_text(encoding="utf-8"))
        cuda, cpu = ([(domain, operator, kind) for domain, operator, kind in values[name]] for name in ("cuda", "cpu"))
        for triples in (cuda, cpu):
            assert triples == sorted(set(triples)), f"{file.name} is not sorted, or has something twice"
        return cls(values["onnxruntime"], frozenset(cuda), frozenset(cpu))


def violations(model: ModelProto, table: OperatorTable) -> dict[str, list[str]]:
    """Return the violations by the name of the rule. A rule without violations is left out."""
    rules: dict[str, Callable[[GraphProto], Iterator[str]]] = {
        "caches": _caches,
        "bias": _bias,
        "padding": _padding,
        "counts": _counts,
        "computed counts": _computed_counts,
        "branches": _branches,
        "operators": lambda graph: _operators(graph, table.cuda | table.cpu),
    }
    found = {name: list(rule(model.graph)) for name, rule in rules.items()}
    return {name: sentences for name, sentences in found.items() if sentences}


def triples(graph: GraphProto) -> Iterator[tuple[NodeProto, Triple]]:
    """Yield each node, with the operator and the type by which ONNX Runtime looks a kernel up.

    The type is the type of the first input. Where is the exception: its first input is always bool, so the second input
    counts. The model gives the types of its inputs and weights. All other types follow from these. "" is an unknown
    type.
    """
    types = {value.name: value.type.tensor_type.elem_type for value in graph.input}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    for node in graph.node:
        inputs = [types.get(name, TensorProto.UNDEFINED) for name in node.input] or [TensorProto.UNDEFINED]
        kind = inputs[1] if node.op_type == "Where" else inputs[0]
        types |= zip(node.output, _computed_types(node, kind), strict=False)
        name = "" if kind == TensorProto.UNDEFINED else TensorProto.DataType.Name(kind).lower()
        yield node, (node.domain, node.op_type, name)


def _computed_types(node: NodeProto, kind: int) -> list[int]:
    """Return the types of a node's outputs."""
    match node.op_type:
        case "Cast":
            return [next(attribute.i for attribute in node.attribute if attribute.name == "to")]
        case "Shape" | "Size" | "ArgMax" | "NonZero":
            return [TensorProto.INT64]
        case "TopK":
            return [kind, TensorProto.INT64]
        case operator if operator in _COMPARISONS:
            return [TensorProto.BOOL]
    return [kind] * len(node.output)


def _caches(graph: GraphProto) -> Iterator[str]:
    """GroupQueryAttention returns keys and values, or appends nothing to the keys and values that it gets."""
    for node in _attention(graph):
        present = len(node.output) > 2 and all(node.output[1:3])
        borrowed = all(_has(node, place) for place in (_PAST_KEY, _PAST_VALUE)) and all(
            _has(node, place) and _is_empty(graph, node.input[place]) for place in (_KEY, _VALUE)
        )
        if not present and not borrowed:
            yield (
                f"{_named(node)} has neither its outputs 1 and 2, nor a past to which it appends keys and values of"
                " length zero"
            )


def _bias(graph: GraphProto) -> Iterator[str]:
    """GroupQueryAttention that is not causal has a bias. Without the bias, some GPUs attend to the padding."""
    for node in _attention(graph):
        causal = all(attribute.i for attribute in node.attribute if attribute.name == "causal")
        if not causal and not _has(node, _ATTENTION_BIAS):
            yield f"{_named(node)} is not causal and has no attention_bias"


def _padding(graph: GraphProto) -> Iterator[str]:
    """MultiHeadAttention has the lengths of the sources. Without the lengths, it attends to the padding."""
    for node in graph.node:
        if node.op_type == "MultiHeadAttention" and not _has(node, _KEY_PADDING_MASK):
            yield f"{_named(node)} has no key_padding_mask"


def _counts(graph: GraphProto) -> Iterator[str]:
    """TopK reads K on the host, so K must be known before the graph runs."""
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "TopK" and node.input[1] not in given:
            yield f"{_named(node)}: its K, {node.input[1]}, is neither an input nor an initializer of the graph"


def _computed_counts(graph: GraphProto) -> Iterator[str]:
    """Only TopK reads a number that lies on the host, and only as its K."""
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in _COUNTS and (node.op_type, place) != ("TopK", 1):
                yield f"{_named(node)} computes with {name}"


def _branches(graph: GraphProto) -> Iterator[str]:
    """No condition makes the host wait."""
    for node in graph.node:
        if node.op_type in _BRANCHES:
            yield f"{_named(node)} makes the host wait for a condition"


def _operators(graph: GraphProto, known: frozenset[Triple]) -> Iterator[str]:
    """The table knows where ONNX Runtime has a kernel for each node."""
    for node, (domain, operator, kind) in triples(graph):
        if (domain, operator, kind) not in known:
            name = f"{domain}::{operator}" if domain else operator
            yield f"{_named(node)}: {name} of {kind or 'an unknown type'} is not in {TABLE.name}"


def _attention(graph: GraphProto) -> Iterator[NodeProto]:
    return (node for node in graph.node if node.op_type == "GroupQueryAttention")


def _has(node: NodeProto, place: int) -> bool:
    return len(node.input) > place and bool(node.input[place])


def _is_empty(graph: GraphProto, name: str) -> bool:
    """Whether `name` is a slice [:, 0:0], which has no positions."""
    node = next((node for node in graph.node if name in node.output), None)
    if node is None or node.op_type != "Slice" or len(node.input) < 4:
        return False
    values = {tensor.name: tensor for tensor in graph.initializer if tensor.name in node.input}
    if not values.keys() >= set(node.input[1:4]):
        return False
    starts, ends, axes = (numpy_helper.to_array(values[name]) for name in node.input[1:4])
    return bool(np.array_equal(axes, [1]) and np.array_equal(starts, ends))


def _named(node: NodeProto) -> str:
    return f"{node.op_type} {node.name}"
