"""A graph of a bundle, read back: its weights in float32, and what its nodes say of the model."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import torch
from google.protobuf.message import DecodeError
from torch import Tensor

from translane_export.int8.dequantize import dequantize_graph
from translane_export.int8.keys_values import dequantize_encoder
from translane_export.sources.placed_tensors import PROJECTION
from translane_server.bundle import Bundle
from translane_server.files import read_regular
from translane_server.printable import shown

RMS_NORMS = {"SimplifiedLayerNormalization", "SkipSimplifiedLayerNormalization"}

_ATTENTION = ("GroupQueryAttention", "MultiHeadAttention")
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_NORMS = ("LayerNormalization", "SkipLayerNormalization", *RMS_NORMS)


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
        self.graph = model.graph
        self.weights: dict[str, Tensor] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, value in model.graph.initializers.items():
            tensor = value.const_value
            assert tensor is not None
            self.shapes[name] = tuple(tensor.shape.numpy())
            if tensor.dtype in _FLOATS:
                self.weights[name.removesuffix(".float16")] = torch.from_numpy(tensor.numpy().astype(np.float32))

    def operators(self) -> set[str]:
        """Types of the nodes; "Gelu tanh" is Gelu by its approximation."""
        return {
            f"{node.op_type} tanh" if node.attributes.get_string("approximate") == "tanh" else node.op_type
            for node in self.graph
        }

    def norm_epsilon(self) -> float:
        """What the norms add to the variance."""
        epsilons = {node.attributes["epsilon"].as_float() for node in self.graph if node.op_type in _NORMS}
        if len(epsilons) != 1:
            raise ValueError("its norms differ")
        return round(epsilons.pop(), 12)  # an attribute is a float32

    def embedding_scale(self) -> float:
        """What token vectors are multiplied with: the Gather by ids is followed by a Mul."""
        for node in self.graph:
            if node.op_type == "Gather" and _is_input(node.inputs[1], self.graph):
                (following,) = node.outputs[0].consumers()
                return self._factor(following)
        return 1.0

    def logit_scale(self) -> float:
        """What the decoder's output is multiplied with: the input of its projection comes out of a Mul."""
        for node in self.graph:
            if node.op_type == "Gemm" and node.inputs[1] is not None and node.inputs[1].name == PROJECTION:
                assert node.inputs[0] is not None
                return self._factor(node.inputs[0].producer())
        return 1.0

    def scales_attention(self) -> bool:
        """Whether attention divides by √D, as it does unless a node says otherwise."""
        return not any("scale" in node.attributes for node in self.graph if node.op_type in _ATTENTION)

    def _factor(self, node: ir.Node | None) -> float:
        """The constant that a Mul multiplies with; 1 for any other node."""
        if node is None or node.op_type != "Mul":
            return 1.0
        constants = [value.name for value in node.inputs if value is not None and value.name in self.weights]
        return float(self.weights[str(constants[0])]) if constants else 1.0


def _is_input(ids: ir.Value | None, graph: ir.Graph) -> bool:
    """Whether a Gather is by an input's ids, and not by positions."""
    return ids is not None and ids in graph.inputs and ids.name != "positions"
