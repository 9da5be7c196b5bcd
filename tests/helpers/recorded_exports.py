"""What the exporter makes of every architecture: nodes of the graphs, names in the `state_dict`.

`tests/data/exports.json` has a line for each graph. After a change that is meant to change graphs or names,
`PYTHONPATH=tests .venv/bin/python -m helpers.recorded_exports` records them anew, or those of the architectures that it
is given: look at the diff.

Nothing in the record depends on the processor. Weights do in their last bits, so they are not in it: other tests read
them back. The integers of shapes, axes and tables are the same everywhere. They are part of the nodes.
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

import onnx_ir as ir

from helpers.architectures import ARCHITECTURES, COMBINED, EXPORT_SIZES, FOR_CUDA, ONE_LAYER, TRAINED, VARIANTS
from helpers.bundles import bundle_model, random_bundle
from helpers.decomposition import no_decomposition
from helpers.store import ROOT, opened
from translane_export.graphs.numerics import as_stored, choose_numerics
from translane_export.graphs.writer import write_graphs
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
_CALIBRATED_WITH = 8  # pairs of ids
_WIDTH = 2  # characters that stand for a line of a graph


@dataclass(frozen=True)
class Graph:
    """A graph that the exporter made."""

    lines: list[str]  # operator sets, inputs, nodes in their order, and outputs
    operators: dict[str, int]  # how many nodes there are of each operator

    @property
    def digests(self) -> list[str]:
        """What the record has of each line."""
        digests = (base64.urlsafe_b64encode(hashlib.sha256(line.encode()).digest()) for line in self.lines)
        return [digest[:_WIDTH].decode() for digest in digests]


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
        files = {graph: folder / f"{graph}.onnx" for graph in _GRAPHS}
        return {graph: read_graph(ir.load(file)) for graph, file in files.items() if file.exists()}


def state_dict(name: str) -> dict[str, str]:
    """Return the shape of each tensor in an architecture's `state_dict`, and its type if that is not float32."""
    state = bundle_model(**{**EXPORT_SIZES, **NAMES[name]}).state_dict()
    return {
        key: f"{_shape(tensor.shape)} {tensor.dtype}".removesuffix(" torch.float32") for key, tensor in state.items()
    }


def recorded_graphs(name: str, precision: Precision) -> dict[str, tuple[dict[str, int], list[str]]]:
    """Return what the record has of an architecture's graphs, by their names: operators, and digests of lines."""
    return {
        key.split()[1]: (entry["operators"], re.findall("." * _WIDTH, entry["lines"]))
        for key, entry in _record()[name].items()
        if key.startswith(f"{precision} ")
    }


def recorded_state_dict(name: str) -> dict[str, str]:
    """Return what the record has of an architecture's `state_dict`, in the form of `state_dict`."""
    return dict(_record()[name][STATE_DICT])


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


def read_graph(model: ir.Model) -> Graph:
    operators: Counter[str] = Counter()
    lines = [f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(model.opset_imports.items())]
    lines += [f"input {value.name} {value.dtype} {value.shape}" for value in model.graph.inputs]
    lines += _nodes(model.graph, {}, operators)
    lines += [f"output {value.name} {value.dtype} {value.shape}" for value in model.graph.outputs]
    return Graph(lines, dict(sorted(operators.items())))


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


def _shape(sizes: Any) -> str:
    return ",".join(map(str, sizes))


@cache
def _record() -> dict[str, dict[str, Any]]:
    record: dict[str, dict[str, Any]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return record


def _entries(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what the record has of an architecture: its names, and each of its graphs."""
    yield STATE_DICT, state_dict(name)
    for precision in precisions(name):
        for key, graph in exported(name, precision).items():
            yield f"{precision} {key}", {"operators": graph.operators, "lines": "".join(graph.digests)}


def _written(record: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the record as JSON in which each graph has a line."""
    of_names = []
    for name, entries in record.items():
        lines = (f"{json.dumps(key)}:{json.dumps(entry, separators=(',', ':'))}" for key, entry in entries.items())
        of_names.append(f"{json.dumps(name)}:{{\n" + ",\n".join(lines) + "}")
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
