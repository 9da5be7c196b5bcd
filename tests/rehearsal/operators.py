"""Makes tests/data/cuda_operators.json: what of the exported graphs ONNX Runtime puts on CUDA, and what on the CPU.

    cuda-rehearsal run -- python tests/rehearsal/operators.py BUNDLE… > tests/data/cuda_operators.json

The bundles are of every architecture, and of every precision that is for CUDA. Nodes are placed as they are exported:
what optimisations make of them has other names.
"""

import json
import sys
from importlib.metadata import version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import onnx
import onnxruntime

from helpers.cuda_rules import Triple, triples

_PLACES = {"CUDAExecutionProvider": "cuda", "CPUExecutionProvider": "cpu"}
_COMMAND = "cuda-rehearsal run -- python tests/rehearsal/operators.py BUNDLE…"


def placement(file: Path) -> dict[str, str]:
    """Where each node of a graph is put, by its name."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    session = onnxruntime.InferenceSession(str(file), options, providers=list(_PLACES))
    return {
        node.name: _PLACES[part.ep_name]
        for part in session.get_provider_graph_assignment_info()
        for node in part.get_nodes()
    }


def main() -> None:
    """Write the table of all graphs in the folders that the arguments name."""
    files = [file for folder in sys.argv[1:] for file in sorted(Path(folder).glob("*.onnx"))]
    if not files:
        sys.exit("operators.py: no graphs; name folders of bundles")
    found: dict[str, set[Triple]] = {"cuda": set(), "cpu": set()}
    for file in files:
        places = placement(file)
        for node, triple in triples(onnx.load(file, load_external_data=False).graph):
            if node.name not in places:
                sys.exit(f"operators.py: {file}: ONNX Runtime does not say where it puts {node.op_type} {node.name!r}")
            if "" in triple[1:]:
                sys.exit(f"operators.py: {file}: nothing tells of what type {node.op_type} {node.name!r} is")
            found[places[node.name]].add(triple)
    lines = [
        f' "onnxruntime": {json.dumps(version("onnxruntime-gpu"))}',
        f' "made by": {json.dumps(_COMMAND, ensure_ascii=False)}',
    ]
    for place, known in found.items():
        lines.append(f' "{place}": [\n  ' + ",\n  ".join(json.dumps(triple) for triple in sorted(known)) + "\n ]")
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
