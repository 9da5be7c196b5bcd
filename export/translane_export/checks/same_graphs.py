"""Whether two graphs are the same but for their floating-point types.

A bundle in bfloat16 cannot run on a CPU. The exporter verifies a float32 copy instead. The result holds for the bundle
only if both graphs compute the same. So the two are walked through together, from their outputs to their inputs. Each
node has the same operator, attributes and inputs as its counterpart. Each constant has the same numbers, as far as
bfloat16 has the digits. A Cast from one floating-point type to another is passed over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir

from translane_export.errors import ExportError

_FLOATS = (ir.DataType.FLOAT, ir.DataType.BFLOAT16)
_TYPE_ATTRIBUTES = ("to", "dtype")
_UNIT = 2.0**-8  # how far bfloat16 may round a number, as a share of it


def check_same_graphs(narrow: Path, wide: Path) -> None:
    """Refuse two ONNX files that differ in more than the floating-point types of their tensors.

    Args:
        narrow: the file whose floating-point numbers are bfloat16.
        wide: the file whose floating-point numbers are float32.

    Raises:
        ExportError: they differ; it names the first difference.
    """
    first, second = (ir.load(path).graph for path in (narrow, wide))
    problem = _names_differ(first, second) or _Walk().differ(first.outputs, second.outputs)
    if problem:
        raise ExportError(f"the bfloat16 graph {narrow.name} is not the one that was verified: {problem}")


def _names_differ(narrow: ir.Graph, wide: ir.Graph) -> str | None:
    for what, ours, theirs in (("inputs", narrow.inputs, wide.inputs), ("outputs", narrow.outputs, wide.outputs)):
        names, expected = ([str(value.name) for value in values] for values in (ours, theirs))
        if names != expected:
            return f"its {what} are {', '.join(names)}, and not {', '.join(expected)}"
    return None


class _Walk:
    """Compares values with their counterparts, each once."""

    def __init__(self) -> None:
        self._counterparts: dict[ir.Node, ir.Node] = {}
        self._waiting: list[tuple[ir.Value | None, ir.Value | None]] = []

    def differ(self, narrow: Sequence[ir.Value], wide: Sequence[ir.Value]) -> str | None:
        """Return the first difference in what these values are computed from; None where there is none."""
        self._waiting = list(zip(narrow, wide, strict=True))
        while self._waiting:
            if problem := self._values_differ(*self._waiting.pop()):
                return problem
        return None

    def _values_differ(self, narrow: ir.Value | None, wide: ir.Value | None) -> str | None:
        narrow, wide = _before_casts(narrow), _before_casts(wide)
        if narrow is None or wide is None:
            return None if narrow is wide else "a node has an input that its counterpart has not"
        node, counterpart = narrow.producer(), wide.producer()
        if node is not None and counterpart is not None:
            if narrow.index() != wide.index():
                return f"{_place(node)} gives another of its outputs"
            return self._nodes_differ(node, counterpart)
        if node is not None or counterpart is not None:
            return f"{narrow.name} is computed in one graph and given in the other"
        if narrow.const_value is not None and wide.const_value is not None:
            same = _same_numbers(narrow.const_value, wide.const_value)
            return None if same else f"the numbers of {narrow.name} differ"
        same = narrow.const_value is wide.const_value and narrow.name == wide.name
        return None if same else f"{narrow.name} stands where {wide.name} is"

    def _nodes_differ(self, node: ir.Node, counterpart: ir.Node) -> str | None:
        if node in self._counterparts:
            return None if self._counterparts[node] is counterpart else f"{_place(node)} is one node, and two elsewhere"
        self._counterparts[node] = counterpart
        if node.op_identifier() != counterpart.op_identifier():
            return f"{_place(node)} is {counterpart.op_type} elsewhere"
        if (len(node.inputs), len(node.outputs)) != (len(counterpart.inputs), len(counterpart.outputs)):
            return f"{_place(node)} has other numbers of inputs and outputs"
        if node.attributes.keys() != counterpart.attributes.keys():
            return f"{_place(node)} has other attributes"
        for name, attribute in node.attributes.items():
            if not _same_attribute(attribute, counterpart.attributes[name]):
                return f"{_place(node)} has another {name}"
        self._waiting += zip(node.inputs, counterpart.inputs, strict=True)
        return None


def _before_casts(value: ir.Value | None) -> ir.Value | None:
    """Return what casts between floating-point types were made of."""
    while value is not None and (node := value.producer()) is not None and node.op_type == "Cast":
        given = node.inputs[0]
        assert given is not None
        if node.attributes["to"].as_int() not in _FLOATS or given.dtype not in _FLOATS:
            break
        value = given
    return value


def _same_attribute(narrow: ir.Attr, wide: ir.Attr) -> bool:
    if narrow.type != wide.type:
        return False
    if narrow.name in _TYPE_ATTRIBUTES and narrow.value in _FLOATS:
        return wide.value in _FLOATS
    if narrow.type == ir.AttributeType.TENSOR:
        return _same_numbers(narrow.as_tensor(), wide.as_tensor())
    return bool(narrow.value == wide.value)


def _same_numbers(narrow: ir.TensorProtocol, wide: ir.TensorProtocol) -> bool:
    if narrow.dtype not in _FLOATS or wide.dtype not in _FLOATS:
        return narrow.dtype == wide.dtype and np.array_equal(narrow.numpy(), wide.numpy())
    numbers, expected = narrow.numpy().astype(np.float32), wide.numpy().astype(np.float32)
    if numbers.shape != expected.shape:
        return False
    if np.array_equal(numbers, expected):  # as weights are, which are rounded in both
        return True
    return bool(np.isclose(numbers.astype(np.float64), expected.astype(np.float64), rtol=_UNIT, atol=0).all())


def _place(node: ir.Node) -> str:
    return f"the {node.op_type} of {node.outputs[0].name}"
