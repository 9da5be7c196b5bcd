"""Makes the sessions of ONNX Runtime for the graphs of tests. No test makes a session in another way."""

from pathlib import Path

import onnx_ir as ir
import onnxruntime

from translane_server.core.machine import adds_int8_exactly


def open_session(graph: Path | bytes | ir.Model, *, threads: int = 1) -> onnxruntime.InferenceSession:
    """Load a graph for the CPU, from a file, its bytes or memory. It computes as in the server.

    So a processor without VNNI adds up int8 products exactly: see `translane_server.runtime.sessions`.
    """
    if isinstance(graph, ir.Model):
        graph = ir.to_proto(graph).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.x64quantprecision", "0" if adds_int8_exactly() else "1")
    path_or_bytes = graph if isinstance(graph, bytes) else str(graph)
    return onnxruntime.InferenceSession(path_or_bytes, options, providers=["CPUExecutionProvider"])
