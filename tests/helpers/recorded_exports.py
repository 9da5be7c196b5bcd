"""What the exporter makes of every architecture: nodes of the graphs, sums of the weights, names in the `state_dict`.

`tests/data/exports.json` has a line for each graph. After a change that is meant to change graphs or weights,
`PYTHONPATH=tests .venv/bin/python -m helpers.recorded_exports` records them anew, or those of the architectures that it
is given: look at the diff.

Nothing in the record depends on the processor:

- PyTorch draws random numbers with other instructions on other processors. Of 2,674 weights, 2,355 differ in their
  last bits between AVX2 and plain x86. So weights are recorded as sums, which are compared with a tolerance.
- Rounding and calibration turn a last bit into a unit of int8, or into the next of the ranges that calibration tries.
  The tolerances of int8 have room for both.
- int8 is calibrated with fixed ids: a last bit could turn a token of the translations that an export calibrates with.
- The integers of shapes, axes and tables are the same everywhere. They are part of the nodes.
"""

import base64
import hashlib
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from helpers.architectures import ARCHITECTURES, COMBINED, EXPORT_SIZES, FOR_CUDA, ONE_LAYER, TRAINED, VARIANTS
from helpers.bundles import bundle_model, random_bundle
from helpers.decomposition import no_decomposition
from helpers.store import ROOT, opened
from translane_export.graphs.numerics import as_stored, choose_numerics
from translane_export.graphs.writer import initializers, write_graphs
from translane_export.int8.calibration import measure_ranges
from translane_export.int8.stage import quantize_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.bundle.manifest import Precision

RECORD = ROOT / "tests" / "data" / "exports.json"
NAMES = {**TRAINED, **ARCHITECTURES, **VARIANTS}
STATE_DICT = "state_dict"

# Others stand for what is alone in its variant, but for norms in places that no other has: these are recorded in fp32.
_ALONE = VARIANTS.keys() - set(COMBINED)
_NORMS = {"batch norm, post", "RMS norm, post", "no norm after pre-norm stacks"}
# What 16 bits change of a graph does not depend on the architecture, but for the attention and the norms of these.
_IN_FP16 = {"Marian", "T5", *FOR_CUDA}
# The graphs of bf16 are those of fp16 but for the types. ONNX Runtime has no batch norm of bfloat16.
_IN_BF16 = _IN_FP16 - {"batch norm, pre"}
_GRAPHS = ("encoder", "decoder", "greedy", "alignment")
_EXACT = (ir.DataType.INT64, ir.DataType.INT32, ir.DataType.BOOL)
_UNIT = {ir.DataType.FLOAT16: 2.0**-11, ir.DataType.BFLOAT16: 2.0**-8}  # the share of a number that rounding adds
_TURNED = 4  # numbers of a tensor that may be rounded the other way
_SHARE = 1e-4  # of the sum of all that is added up
_CLIPPED = 0.06  # of the scale of activations: two ranges that calibration tries differ by less
_CALIBRATED_WITH = 8  # pairs of ids
_WIDTH = 2  # characters that stand for a line of a graph


@dataclass(frozen=True)
class Sum:
    """The sum of a tensor's numbers, and by how much the recorded sum may differ."""

    value: float
    tolerance: float


@dataclass(frozen=True)
class Graph:
    """A graph that the exporter made."""

    lines: list[str]  # operator sets, inputs, nodes in their order, and outputs
    operators: dict[str, int]  # how many nodes there are of each operator
    sums: dict[str, Sum]  # weights by name, without those that the bundle stores for a graph before this one

    @property
    def digests(self) -> list[str]:
        """What the record has of each line."""
        digests = (base64.urlsafe_b64encode(hashlib.sha256(line.encode()).digest()) for line in self.lines)
        return [digest[:_WIDTH].decode() for digest in digests]


@dataclass(frozen=True)
class Recorded:
    """A graph in the record."""

    operators: dict[str, int]
    digests: list[str]  # of its lines
    sums: dict[str, float]


def precisions(name: str) -> tuple[Precision, ...]:
    """Return the precisions that an architecture is recorded in."""
    if name in _ALONE:
        return ("fp32",) if name in _NORMS else ()
    narrow: tuple[Precision, ...] = ("fp16", "bf16") if name in _IN_BF16 else ("fp16",) if name in _IN_FP16 else ()
    return ("fp32", "int8", *narrow)


def exported(name: str, precision: Precision) -> dict[str, Graph]:
    """Return the graphs of an architecture, by name. Other tests make the exports, as far as they need them."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bundle"
        _export(name, precision, folder)
        known: set[bytes] = set()
        files = {graph: folder / f"{graph}.onnx" for graph in _GRAPHS}
        return {graph: read_graph(ir.load(file), known) for graph, file in files.items() if file.exists()}


def state_dict(name: str) -> dict[str, str]:
    """Return the shape of each tensor in an architecture's `state_dict`, and its type if that is not float32."""
    state = bundle_model(**{**EXPORT_SIZES, **NAMES[name]}).state_dict()
    return {
        key: f"{_shape(tensor.shape)} {tensor.dtype}".removesuffix(" torch.float32") for key, tensor in state.items()
    }


def recorded_graphs(name: str, precision: Precision) -> dict[str, Recorded]:
    """Return what the record has of an architecture's graphs, by their names."""
    return {
        key.split()[1]: Recorded(entry["operators"], re.findall("." * _WIDTH, entry["lines"]), _flat(entry["sums"]))
        for key, entry in _record()[name].items()
        if key.startswith(f"{precision} ")
    }


def recorded_state_dict(name: str) -> dict[str, str]:
    """Return what the record has of an architecture's `state_dict`, in the form of `state_dict`."""
    return _flat(_record()[name][STATE_DICT])


def _export(name: str, precision: Precision, folder: Path) -> None:
    config = {**EXPORT_SIZES, **NAMES[name]}
    smaller = {**ONE_LAYER, **NAMES[name]}
    if precision == "int8":
        random_bundle(folder, **config)
        _quantize(folder, config)
    elif precision == "fp32" and name not in _ALONE:
        random_bundle(folder, **config)
    elif precision == "fp16" and name in FOR_CUDA:
        random_bundle(folder, export={"precision": precision}, **smaller)
    else:  # No test exports these. Capturing is a part of an export; what follows would take as long again.
        folder.mkdir()
        numerics = choose_numerics(precision, None)
        with no_decomposition():
            write_graphs("onnx", as_stored(bundle_model(**smaller), numerics), numerics, None, folder, lambda _: None)


def _quantize(folder: Path, config: Mapping[str, Any]) -> None:
    model, draw = bundle_model(**config), random.Random(0)
    sides = model.config.source_vocab_size, model.config.target_vocab_size
    pairs = [
        tuple([draw.randrange(size) for _ in range(draw.randint(2, model.config.max_positions - 1))] for size in sides)
        for _ in range(_CALIBRATED_WITH)
    ]
    ranges = measure_ranges(model, [(source, target) for source, target in pairs])
    quantize_bundle(load_bundle(folder), ranges, model.config)


def read_graph(model: ir.Model, known: set[bytes]) -> Graph:
    """Return a graph; weights in `known` are left out of it, and its own are added there."""
    operators: Counter[str] = Counter()
    lines = [f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(model.opset_imports.items())]
    lines += [f"input {value.name} {value.dtype} {value.shape}" for value in model.graph.inputs]
    lines += _nodes(model.graph, {}, operators)
    lines += [f"output {value.name} {value.dtype} {value.shape}" for value in model.graph.outputs]
    tensors = {str(value.name): value.const_value for value in initializers(model)}
    sums, stored = {}, set()
    for name, tensor in tensors.items():
        assert tensor is not None
        content = tensor.tobytes()
        if tensor.dtype not in _EXACT and content not in known:
            sums[name] = _sum(name, tensor)
            stored |= {content} if tensor.size > 1 else set()
    known |= stored
    return Graph(lines, dict(sorted(operators.items())), sums)


def _nodes(graph: ir.Graph, numbers: dict[str, str], operators: Counter[str]) -> Iterator[str]:
    """Yield a line for each node. Values that only nodes see have numbers: their names say nothing."""
    for node in graph:
        operators[node.op_type] += 1
        inputs = " ".join(_input(value, numbers) for value in node.inputs)
        for output in node.outputs:
            if output.name and not output.is_graph_output():
                numbers[output.name] = f"%{len(numbers)}"
        outputs = " ".join(numbers.get(str(output.name), output.name or "_") for output in node.outputs)
        attributes = sorted(node.attributes.items())
        plain = "".join(f" {name}={_attribute(value)}" for name, value in attributes)
        yield f"{node.domain}{'.' if node.domain else ''}{node.op_type}({inputs}){plain} -> {outputs}"
        for name, value in attributes:
            if value.type == ir.AttributeType.GRAPH:
                yield from (f"{name}: {line}" for line in _nodes(value.as_graph(), numbers, operators))


def _input(value: ir.Value | None, numbers: Mapping[str, str]) -> str:
    if value is None:
        return "_"
    tensor = value.const_value if value.is_initializer() else None
    if tensor is None:
        return numbers.get(str(value.name), str(value.name))
    content = tensor.numpy().tolist() if tensor.dtype in _EXACT else value.name
    return f"{tensor.dtype}[{_shape(tensor.shape.numpy())}]:{content}"


def _attribute(value: ir.Attr) -> str:
    if value.type == ir.AttributeType.GRAPH:
        return "graph"
    if value.type == ir.AttributeType.TENSOR:
        tensor = value.as_tensor()
        return f"{tensor.dtype}[{_shape(tensor.shape.numpy())}]:{tensor.numpy().tolist()}"
    return f"{value.value:.6g}" if isinstance(value.value, float) else str(value.value)


def _sum(name: str, tensor: ir.TensorProtocol) -> Sum:
    """Add up what is finite. Each place has a factor of its own, so that the order of numbers counts."""
    numbers = tensor.numpy().astype(np.float64).ravel()
    numbers = np.where(np.isfinite(numbers), numbers, 0.0) * (0.5 + np.arange(numbers.size) * 0.6180339887498949 % 1)
    share = _CLIPPED if ".scale" in name and tensor.size == 1 else _SHARE
    unit = float(tensor.dtype in (ir.DataType.INT8, ir.DataType.UINT8)) or (
        _UNIT.get(tensor.dtype, 0.0) * float(np.abs(numbers).max(initial=0.0))
    )
    return Sum(float(numbers.sum()), share * float(np.abs(numbers).sum()) + _TURNED * unit)


def _tree(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return names with dots as folders in folders. The name of a folder that is a tensor, too, ends with a dot."""
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *folders, last = name.split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder + ".", {})
        place[last] = value
    return tree


def _flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= {name + rest: leaf for rest, leaf in _flat(value).items()} if name.endswith(".") else {name: value}
    return flat


def _shape(sizes: Any) -> str:
    return ",".join(map(str, sizes))


@cache
def _record() -> dict[str, dict[str, Any]]:
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def _entries(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the record has of an architecture: its names, and each of its graphs."""
    yield STATE_DICT, _tree(state_dict(name))
    for precision in precisions(name):
        for key, graph in exported(name, precision).items():
            sums = _tree({tensor: float(f"{each.value:.5g}") for tensor, each in graph.sums.items()})
            yield f"{precision} {key}", {"operators": graph.operators, "lines": "".join(graph.digests), "sums": sums}


def _written(record: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the record as JSON in which each graph has a line."""

    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)

    of_names = []
    for name, entries in record.items():
        lines = [f"{compact(key)}:{compact(entry)}" for key, entry in entries.items()]
        of_names.append(f"{compact(name)}:{{\n" + ",\n".join(lines) + "}")
    return "{\n" + ",\n".join(of_names) + "}\n"


def main() -> None:
    record = _record() if RECORD.exists() else {}
    with opened(ROOT / ".pytest_cache" / "d" / "models"):  # as the tests keep exports
        for name in sys.argv[1:] or NAMES:
            record[name] = dict(_entries(name))
            RECORD.write_text(_written({each: record[each] for each in NAMES if each in record}), encoding="utf-8")
            print(f"{name}: {len(record[name]) - 1} graphs", flush=True)


if __name__ == "__main__":
    main()
