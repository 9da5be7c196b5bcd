"""The float32 twin of a bundle in bfloat16, which ONNX Runtime can run on a CPU.

Its graphs are captured in the same form with the same rounded weights, and checked to be the same but for their types.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator

from translane_export.checks.same_graphs import check_same_graphs
from translane_export.graphs.numerics import Numerics
from translane_export.graphs.writer import write_graphs
from translane_export.model import Transformer
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import Graph

_FOLDER = "float32"


@contextlib.contextmanager
def float32_twin(
    bundle: Bundle, reference: Transformer, numerics: Numerics, log: Callable[[str], None]
) -> Iterator[Bundle]:
    """Give a `bundle` in bfloat16 once more, in float32; at the end of the block its folder is removed.

    Args:
        bundle: whose graphs are written already; the twin's folder is inside its own.
        reference: the model, in float32 with the rounded weights. The twin's files hold them, and it does not keep it.
        numerics: of the twin; see `verified_as`.
        log: takes lines for people.

    Raises:
        ExportError: the graphs differ in more than their types.
    """
    log("writing the graphs in float32, to verify them")
    folder = bundle.folder / _FOLDER
    folder.mkdir()
    manifest = bundle.manifest
    graphs = write_graphs("onnx", reference, numerics, manifest.alignment, folder, lambda _line: None)
    del reference
    for _, graph in graphs:
        if isinstance(graph, Graph):
            check_same_graphs(bundle.path(graph.file), folder / graph.file)
    changed = {"graphs": graphs, "precision": numerics.precision, "weight_storage": numerics.storage}
    yield Bundle(folder, manifest.model_copy(update=changed))
    shutil.rmtree(folder)
