"""Moves the weights of several graphs into one file that they share.

Tensors with the same bytes are stored once, whichever graph they belong to. Each starts at a page boundary, so that
the file can be memory-mapped (https://onnx.ai/onnx/repo-docs/ExternalData.html). Small ones stay in the graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

WeightStorage = Literal["float32", "float16", "bfloat16"]

_INLINE_BELOW = 1024  # bytes
_ALIGNMENT = 4096  # a page


def share_weights(models: Iterable[ir.Model], path: Path, storage: WeightStorage) -> None:
    """Move the weights of `models` to the new file `path`; the graphs must be saved beside it.

    With float16 storage every float32 matrix is stored as float16 and cast back by the graph, which ONNX Runtime does
    once, when it loads it. Vectors (biases and norms, a thousandth of a model) stay as they are.
    """
    with path.open("xb") as file:
        writer = _Writer(file)
        for model in models:
            for value in list(model.graph.initializers.values()):
                if storage == "float16" and _is_matrix(value):
                    value = _cast_from_float16(model.graph, value)
                tensor = value.const_value
                assert tensor is not None
                if tensor.nbytes < _INLINE_BELOW:
                    continue
                offset = writer.offset_of(_bytes(tensor))
                value.const_value = ir.ExternalTensor(
                    path.name,
                    offset,
                    tensor.nbytes,
                    tensor.dtype,
                    shape=ir.Shape(tensor.shape.numpy()),
                    name=str(value.name),
                    base_dir=path.parent,
                )


class _Writer:
    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._offsets: dict[bytes, int] = {}

    def offset_of(self, content: memoryview) -> int:
        """Where `content` lies in the file; it is written the first time."""
        digest = hashlib.sha256(content).digest()
        if digest not in self._offsets:
            self._file.write(bytes(-self._file.tell() % _ALIGNMENT))
            self._offsets[digest] = self._file.tell()
            self._file.write(content)
        return self._offsets[digest]


def _bytes(tensor: ir.TensorProtocol) -> memoryview:
    """Return what a little-endian file holds of the tensor; its own memory, where it is contiguous."""
    array = np.ascontiguousarray(tensor.numpy())
    return array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data


def _is_matrix(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.dtype == ir.DataType.FLOAT and len(tensor.shape) >= 2


def _cast_from_float16(graph: ir.Graph, value: ir.Value) -> ir.Value:
    """Replace the initializer `value` by a float16 one and a Cast node; return the new initializer."""
    assert value.const_value is not None
    halves: npt.NDArray[np.float16] = value.const_value.numpy().astype(np.float16)
    name = str(value.name)
    del graph.initializers[name]
    stored = ir.Value(name=f"{name}.float16", shape=value.shape, type=ir.TensorType(ir.DataType.FLOAT16))
    stored.const_value = ir.tensor(halves, name=stored.name)
    graph.register_initializer(stored)
    cast = ir.node("Cast", [stored], {"to": int(ir.DataType.FLOAT)})
    output = cast.outputs[0]
    output.name, output.dtype, output.shape = name, ir.DataType.FLOAT, value.shape
    value.name = None
    ir.convenience.replace_all_uses_with(value, output)
    graph.insert_before(graph[0], cast)
    return stored
