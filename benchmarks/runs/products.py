"""How far a decoder step is from its matrix products alone, measured with ONNX Runtime for both.

    python -m benchmarks.runs.products models/zh-en
    python -m benchmarks.runs.products runs/bench/models/base-fp32-bundle --rows 1 32 128 --threads 1

The products are a graph with nothing but the decoder's matrix products, one after the other: the same operators on the
same weights, in the same layout, over as many rows. What a step takes beyond them is attention, norms, embeddings, the
choice of candidates, and what runs these. The two take turns. On one thread, times are processor times.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks import places
from benchmarks.machine import Usage, describe
from benchmarks.report import tables
from benchmarks.report.results import write
from helpers.sessions import open_session
from translane_server.bundle.bundle import Bundle, load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

# What multiplies matrices, and the type of its activations.
PRODUCTS = {
    "Gemm": TensorProto.FLOAT,
    "MatMul": TensorProto.FLOAT,
    "MatMulNBits": TensorProto.FLOAT,
    "DynamicQuantizeMatMul": TensorProto.FLOAT,
    "MatMulInteger": TensorProto.UINT8,
    "MatMulIntegerToFloat": TensorProto.UINT8,
}
SOURCE_LENGTH, POSITION = 12, 12  # of every row
SHORTEST = 0.2  # seconds of a round's repeated runs


def products_of(model: onnx.ModelProto) -> onnx.ModelProto:
    """A graph of the matrix products of `model` by weights, each over an input of its own width.

    Inputs "x512" and so on hold the activations, "scale" is every scale that is computed at run time, and each product
    is an output.

    Raises:
        ValueError: `model` has no such product.
    """
    graph = model.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    producers = {output: node for node in graph.node for output in node.output}
    nodes: list[onnx.NodeProto] = []
    kept: dict[str, None] = {}
    inputs: dict[str, onnx.ValueInfoProto] = {}
    outputs: list[onnx.ValueInfoProto] = []

    def constant(name: str) -> bool:
        """Whether a value is a weight, stored or made of stored ones; then it comes along."""
        if name in initializers or not name:
            kept[name] = None
            return True
        node = producers.get(name)
        if node is None or not all(map(constant, node.input)):
            return False
        if node not in nodes:
            nodes.append(node)
        return True

    for node in graph.node:
        if node.op_type not in PRODUCTS or not constant(node.input[1]):
            continue
        width = _width(node, initializers, producers)
        product = onnx.NodeProto()
        product.CopyFrom(node)
        kind = PRODUCTS[node.op_type]
        product.input[0] = f"x{width}" + ("" if kind == TensorProto.FLOAT else "_uint8")
        inputs[product.input[0]] = helper.make_tensor_value_info(product.input[0], kind, ["rows", width])
        for index, name in enumerate(node.input[2:], start=2):
            if not constant(name):
                product.input[index] = "scale"
                inputs["scale"] = helper.make_tensor_value_info("scale", TensorProto.FLOAT, [])
        nodes.append(product)
        result = TensorProto.INT32 if node.op_type == "MatMulInteger" else TensorProto.FLOAT
        outputs.append(helper.make_tensor_value_info(node.output[0], result, None))
    if not outputs:
        raise ValueError("the graph has no matrix product by a weight")
    stored = [initializers[name] for name in kept if name]
    products = helper.make_graph(nodes, "products", list(inputs.values()), outputs, stored)
    return helper.make_model(products, opset_imports=model.opset_import, ir_version=model.ir_version)


def _width(
    node: onnx.NodeProto, initializers: dict[str, onnx.TensorProto], producers: dict[str, onnx.NodeProto]
) -> int:
    """How many numbers of a row go into the product."""
    attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    if "K" in attributes:
        return int(attributes["K"])
    name, dimension = node.input[1], 1 if attributes.get("transB") else 0
    while name not in initializers:  # a Cast, or another operator that leaves the shape alone, but for Transpose
        if producers[name].op_type == "Transpose":
            dimension = 1 - dimension
        name = producers[name].input[0]
    return int(initializers[name].dims[dimension])


class MatrixProducts:
    """Runs the matrix products of a bundle's decoder."""

    def __init__(self, bundle: Bundle, threads: int) -> None:
        model = products_of(onnx.load(bundle.path(bundle.manifest.graphs.decoder.file)))
        self.count = len(model.graph.output)
        self._session = open_session(model.SerializeToString(), threads=threads)

    def bind(self, rows: int) -> Callable[[], None]:
        """What runs all products once over so many rows."""
        random = np.random.default_rng(0)
        binding = self._session.io_binding()
        for value in self._session.get_inputs():
            if not value.shape:
                numbers = np.array(0.01, np.float32)
            elif "uint8" in value.type:
                numbers = random.integers(0, 255, (rows, value.shape[1])).astype(np.uint8)
            else:
                numbers = random.standard_normal((rows, value.shape[1])).astype(np.float32)
            binding.bind_cpu_input(value.name, numbers)
        for value in self._session.get_outputs():
            binding.bind_output(value.name)
        self._session.run_with_iobinding(binding)
        results = binding.get_outputs()
        for value, result in zip(self._session.get_outputs(), results, strict=True):
            binding.bind_ortvalue_output(value.name, result)
        return lambda: self._session.run_with_iobinding(binding)


def bind_step(backend: OrtBackend, bundle: Bundle, rows: int) -> Callable[[], object]:
    """What runs a decoder step over so many rows once."""
    random = np.random.default_rng(0)
    source = random.integers(4, bundle.manifest.architecture.source_vocab_size - 1, (rows, SOURCE_LENGTH))
    backend.encode(source.tolist(), 0)
    token_ids, positions = np.full(rows, 5, np.int64), np.zeros(rows, np.int32)
    for position in range(POSITION):
        positions[:] = position
        backend.decode_step(token_ids, positions)
    positions[:] = POSITION
    return lambda: backend.decode_step(token_ids, positions)


def seconds_of(run: Callable[[], object], clock: Callable[[], float]) -> float:
    """The least time of runs that take `SHORTEST` seconds together: only other programs make a run take longer."""
    times: list[float] = []
    while sum(times) < SHORTEST or len(times) < 5:
        started = clock()
        run()
        times.append(clock() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64, 128])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    bundle = load_bundle(arguments.bundle)
    sessions = Sessions(bundle, threads=arguments.threads)
    backend = OrtBackend(sessions, rows=max(arguments.rows), source_capacity=32, target_capacity=32)
    backend.warm_up()
    products = MatrixProducts(bundle, arguments.threads)
    manifest, usage = bundle.manifest, Usage()
    output = arguments.output or places.result(f"products-{manifest.name}-{manifest.precision}")
    times: dict[int, dict[str, list[float]]] = {rows: {"products": [], "step": []} for rows in arguments.rows}
    record = {
        "machine": describe(),
        "model": manifest.name,
        "precision": manifest.precision,
        "parameters": manifest.architecture.parameters,
        "threads": arguments.threads,
    }
    clock = time.thread_time if arguments.threads == 1 else time.perf_counter
    for _ in range(arguments.rounds):
        for rows, found in times.items():
            found["products"].append(seconds_of(products.bind(rows), clock))
            found["step"].append(seconds_of(bind_step(backend, bundle, rows), clock))
        write(output, record | {"usage": usage.so_far(), "rows": times})
    backend.close()
    measured: dict[str, Any] = record | {"usage": usage.so_far(), "rows": times}
    print("\n".join([f"{products.count} products", *tables.products([measured])]))


if __name__ == "__main__":
    main()
