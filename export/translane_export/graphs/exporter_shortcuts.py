"""Shortcuts for PyTorch's ONNX exporter: the same graphs in a third of the time.

The exporter has no options for them, so functions of its own are replaced while it runs.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Node
from torch.onnx._internal.exporter import _decomp, _fx_passes
from torch.onnx._internal.exporter._registration import ONNXRegistry
from torch.onnx._internal.fx.passes import type_promotion

_aten = torch.ops.aten
_registry = functools.cache(ONNXRegistry.from_torchlib)
_decompose = _fx_passes.decompose_with_registry
_Promotion = type_promotion._TypePromotionInterpreter
_run_node = _Promotion.run_node


@contextlib.contextmanager
def exporter_shortcuts() -> Iterator[None]:
    """While entered, `torch.onnx.export` makes its table of translations once, and decomposes a graph only if it must.

    The table takes half a second. A decomposition traces the graph three more times. Promoting types would compute each
    shape once more, and the cache of shapes finds too little for what it costs: a quarter of an export together. A
    tenth goes into the lines of code that each node comes from, which the file does not keep.
    """
    with (
        _replaced(ONNXRegistry, "from_torchlib", staticmethod(_registry)),
        _replaced(_fx_passes, "decompose_with_registry", decompose_if_needed),
        _replaced(_Promotion, "run_node", _promote_types),
        _replaced(torch.fx.config, "do_not_emit_stack_traces", True),
        torch._dynamo.config.patch(fake_tensor_cache_enabled=False),
    ):
        yield


def decompose_if_needed(program: ExportedProgram, registry: ONNXRegistry) -> ExportedProgram:
    """Return a program whose every operator the exporter translates: `program`, rewritten in place, if that is enough.

    A decomposition would give the same operators: it leaves alone whatever has a translation.
    """
    for node in program.graph.nodes:
        if node.target in _REWRITES:
            _REWRITES[node.target](node)
    translated = _translated(registry)
    if all(_is_translated(node, translated) for node in program.graph.nodes):
        return program
    return _decompose(program, registry)


def _promote_types(interpreter: Any, node: Node) -> Any:
    """Convert what an operator takes to its type, and return the tensor without numbers that the node stands for."""
    if node.op != "call_function" or "val" not in node.meta:
        return _run_node(interpreter, node)
    with interpreter._set_current_node(node):
        if rule := type_promotion.get_type_promotion_rule(node, interpreter.type_promotion_table):
            interpreter._maybe_promote_node(node, rule)
    return node.meta["val"]


def _is_translated(node: Node, translated: frozenset[Any]) -> bool:
    if node.op != "call_function":
        return node.op != "call_module"
    schema = getattr(node.target, "_schema", None)
    mutates = schema is not None and schema.is_mutable  # a decomposition would make it a function
    return node.target in translated and not mutates


@functools.lru_cache(maxsize=1)
def _translated(registry: ONNXRegistry) -> frozenset[Any]:
    return frozenset((*_decomp.get_onnx_implemented_overloads(registry), operator.getitem, *_CHECKS))


def _convert(node: Node) -> None:
    """Write `to(x, dtype)` as a copy; without a change of type it is a plain one, which the optimizer removes."""
    x, dtype = node.args[0], node.args[1]
    if _value(x).dtype == dtype:
        _become(node, _aten.clone.default, x)
    else:
        _become(node, _aten._to_copy.default, x, dtype=dtype)


def _copy(node: Node) -> None:
    _become(node, _aten.clone.default, node.args[0])


def _permute(node: Node) -> None:
    """Write `movedim(x, source, destination)` as a permutation."""
    arguments: Any = node.args
    x, *ends = arguments
    size = _value(x).ndim
    source, destination = (end % size for end in ends)
    order = [axis for axis in range(size) if axis != source]
    order.insert(destination, source)
    _become(node, _aten.permute.default, x, order)


def _view(node: Node) -> None:
    """Write `flatten(x, …)` as a view, where at most one of the sizes is known only when the graph runs."""
    shape = [size if isinstance(size, int) else -1 for size in _value(node).shape]
    if shape.count(-1) <= 1:
        _become(node, _aten.view.default, node.args[0], shape)


def _become(node: Node, target: Any, *args: Any, **kwargs: Any) -> None:
    node.target, node.args, node.kwargs = target, args, kwargs


def _value(node: Any) -> torch.Tensor:
    """Return the tensor without numbers that a node stands for."""
    value: torch.Tensor = node.meta["val"]
    return value


# The few operators of the graphs that have no translation, or one that gives another node.
_REWRITES: dict[Any, Callable[[Node], None]] = {
    _aten.to.dtype: _convert,
    _aten.detach_.default: _copy,
    _aten.movedim.int: _permute,
    _aten.flatten.using_ints: _view,
}
# The exporter removes them afterwards.
_CHECKS = (_aten._assert_scalar.default, _aten._assert_tensor_metadata.default)


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)
