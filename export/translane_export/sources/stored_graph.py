"""A graph of a bundle, read back: its weights in float32."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from translane_export.int8.dequantize import dequantize_graph
from translane_export.int8.keys_values import dequantize_encoder
from translane_server.bundle.bundle import Bundle
from translane_server.core.files import read_regular
from translane_server.core.terminal import shown

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def load_graph(bundle: Bundle, name: str) -> ir.Model:
    """Read the graph in the bundle's file `name`, with its weights where the bundle's manifest has them.

    onnx-ir takes no links that leave the folder, so weights are read from where a link leads. The bundle's reader has
    checked that place.

    Raises:
        ValueError: the file is no graph, or the weights are in a file that the manifest does not list.
    """
    try:
        model = ir.from_proto(onnx.ModelProto.FromString(read_regular(bundle.path(name))))
    except DecodeError:
        raise ValueError(f"{name} is no ONNX graph") from None
    for value in model.graph.initializers.values():
        stored = value.const_value
        if isinstance(stored, ir.ExternalTensor):
            if str(stored.location) not in bundle.manifest.files:
                raise ValueError(
                    f"{name} has weights in {shown(str(stored.location))}, which the manifest does not list"
                )
            place = bundle.path(str(stored.location)).resolve()
            value.const_value = ir.ExternalTensor(
                place.name,
                stored.offset,
                stored.length,
                stored.dtype,
                shape=ir.Shape(stored.shape),
                name=stored.name,
                base_dir=place.parent,
            )
    return model


class StoredGraph:
    """A graph, and the weights in it by the names of `translane_export.graphs`, all float32.

    `ranges` are those of the inputs of its int8 projections, by weight; `keys_values` are the units of what is int8
    beside that, by name.
    """

    def __init__(self, model: ir.Model) -> None:
        self.keys_values = dequantize_encoder(model)
        self.ranges = dequantize_graph(model)
        self.weights: dict[str, Tensor] = {}
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            assert tensor is not None
            if tensor.dtype in _FLOATS:
                self.weights[name.removesuffix(".float16")] = torch.from_numpy(tensor.numpy().astype(np.float32))
