"""The float32 twin of a bundle in bfloat16, which ONNX Runtime can run on a CPU.

Its graphs are the bundle's own, with float32 in the place of bfloat16. So what is verified with them holds for the
bundle, whose weights they have.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from translane_export.graphs.shared_weights import share_weights
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import Graph, Graphs

_FOLDER, _WEIGHTS = "float32", "weights.bin"
_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT


@contextlib.contextmanager
def float32_twin(bundle: Bundle) -> Iterator[Bundle]:
    """Give a `bundle` in bfloat16 once more, in float32; at the end of the block its folder, inside it, is removed."""
    folder = bundle.folder / _FOLDER
    folder.mkdir()
    files = [graph.file for _, graph in bundle.manifest.graphs if isinstance(graph, Graph)]
    models = {file: ir.load(bundle.path(file)) for file in files}
    for model in models.values():
        widen(model)
    share_weights(models.values(), folder / _WEIGHTS, "float32")
    for file, model in models.items():
        ir.save(model, folder / file)
    signatures = bundle.manifest.graphs.model_dump_json().replace('"bfloat16"', '"float32"')
    graphs = Graphs.model_validate_json(signatures)
    changed = {"graphs": graphs, "precision": "fp32", "weight_storage": "float32"}
    yield Bundle(folder, bundle.manifest.model_copy(update=changed))
    shutil.rmtree(folder)


def widen(model: ir.Model) -> None:
    """Turn the type bfloat16 into float32: of weights, inputs, outputs, attributes and all between."""
    graph = model.graph
    for value in (*graph.inputs, *graph.initializers.values()):
        _widen_value(value)
    for node in graph.all_nodes():
        for output in node.outputs:
            _widen_value(output)
        for name, attribute in node.attributes.items():
            if attribute.type == ir.AttributeType.INT and name in ("to", "dtype") and attribute.as_int() == _NARROW:
                node.attributes[name] = ir.AttrInt64(name, int(_WIDE))
            elif attribute.type == ir.AttributeType.TENSOR:
                node.attributes[name] = ir.AttrTensor(name, _widened(attribute.as_tensor()))


def _widen_value(value: ir.Value) -> None:
    if value.const_value is not None:
        value.const_value = _widened(value.const_value)
    if value.dtype == _NARROW:
        value.dtype = _WIDE


def _widened(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
    """Return the tensor, whose numbers are converted when they are stored: memory holds one tensor at a time."""
    if tensor.dtype != _NARROW:
        return tensor
    return ir.LazyTensor(
        lambda: ir.tensor(tensor.numpy().astype(np.float32)),
        dtype=_WIDE,
        shape=ir.Shape(tensor.shape.numpy()),
        name=tensor.name,
    )
