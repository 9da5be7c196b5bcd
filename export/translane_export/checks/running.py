"""Runs what was exported: opens a bundle and decodes, by the server's own backend and engine."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import msgspec
import numpy as np
import onnx_ir as ir
from msgspec.structs import astuple, replace

from translane.progress import Progress
from translane_export.checks.recording import ADMITTED_TOGETHER, ROWS, Decode, record_decodes
from translane_export.checks.verify import LONGEST, verification_sources
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.graphs import torchscript
from translane_export.graphs.writer import WEIGHTS, initializers, share_weights
from translane_export.model import TransformerConfig
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.manifest import Graph, Graphs
from translane_server.core.errors import EngineError, StartupError
from translane_server.engine import offline
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, Sentence, TargetVocabulary
from translane_server.runtime.backend import Backend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

_MOST_LOGITS = 1 << 23  # of a sentence that is verified (32 MB), unless it is no longer than this:
_SHORTEST = 96
_MOST_SAMPLES = 128  # verified with: their logits wait in a file until PyTorch's are there
_MOST_ROWS = 32  # decoded together, unless a sentence has more beams

Log = Callable[[str], None]


def decode(bundle: Bundle, sentences: Sequence[Sentence], threads: int) -> list[Hypothesis]:
    """Open a bundle, and return the best translation of each sentence.

    None of them is longer than the limits of the model.

    Raises:
        ExportError: decoding fails.
        BundleError: the bundle does not load.
    """
    if not sentences:
        return []
    ids = bundle.manifest.special_ids
    sessions = Sessions(bundle, threads=threads)
    backend = OrtBackend(
        sessions,
        rows=max(min(_MOST_ROWS, len(sentences)), *(each.options.beam_size for each in sentences)),
        source_capacity=max(len(each.source_ids) for each in sentences),
        target_capacity=max(len(each.forced_ids) + each.options.max_length for each in sentences),
    )
    with closing(sessions), closing(backend):
        try:
            results = offline.decode(backend, TargetVocabulary(ids.decoder_start, ids.eos), sentences)
        except EngineError as error:
            raise ExportError(f"the model does not decode: {error}") from None
    return [result.hypotheses[0] for result in results]


def decode_greedily(
    bundle: Bundle, sources: Sequence[Sequence[int]], forced_ids: Sequence[int], threads: int, *, scores: bool = False
) -> list[Hypothesis]:
    """Return the translation of each of `sources`, cut off at the model's limits.

    Every translation starts with `forced_ids`, and has log-probabilities with `scores`; that of a source without tokens
    is empty. Raises as `decode` does.
    """
    limits = bundle.manifest.limits
    most = min(bundle.manifest.decoding_defaults.max_length, limits.target_tokens - len(forced_ids))
    options = DecodingOptions(most, scores=scores)
    sentences = [
        Sentence(list(source)[: limits.source_tokens], options, forced_ids=tuple(forced_ids))
        for source in sources
        if source
    ]
    found = iter(decode(bundle, sentences, threads))
    return [next(found) if source else Hypothesis((), None, is_complete=True) for source in sources]


def decode_sources(
    settings: ExportSettings, bundle: Bundle, samples: list[list[int]], config: TransformerConfig, log: Log
) -> list[Decode]:
    """Decode the sources to verify with; what runs the graphs is gone from memory afterwards.

    Raises:
        ExportError: the graphs do not load, or choose an id that there is not.
    """
    limits = bundle.manifest.limits
    longest = min(LONGEST, max(_SHORTEST, _MOST_LOGITS // config.target_vocab_size))
    source_capacity, target_capacity = min(limits.source_tokens, longest), min(limits.target_tokens, longest)
    sources = verification_sources(samples[:_MOST_SAMPLES], config, source_capacity)
    try:
        backend = _open_backend(settings, bundle, config, source_capacity, target_capacity)
    except StartupError as error:
        raise ExportError(f"the exported model does not load: {error}") from error
    log(f"verifying with {len(sources)} sentences")
    progress = Progress("sentences decoded", total=len(sources), stream=sys.stderr, say=log)
    decodes = record_decodes(
        backend,
        config,
        sources,
        attention=bundle.manifest.alignment is not None,
        greedy=bundle.manifest.graphs.greedy is not None,
        folder=bundle.folder,
        progress=progress.add,
    )
    progress.close()
    return decodes


def _open_backend(
    settings: ExportSettings, bundle: Bundle, config: TransformerConfig, source_capacity: int, target_capacity: int
) -> Backend:
    capacities: dict[str, Any] = {
        "rows": ROWS,
        "source_capacity": source_capacity,
        "target_capacity": target_capacity,
    }
    if settings.format == "torchscript":
        return torchscript.TorchScriptBackend(bundle.folder, config, **capacities)
    encode_tokens = ADMITTED_TOGETHER * source_capacity
    return OrtBackend(Sessions(bundle, threads=settings.computing_threads), encode_tokens=encode_tokens, **capacities)


def try_out(settings: ExportSettings, bundle: Bundle) -> None:
    """Run the graphs once, of a bundle whose translations nothing else asks for."""
    limits = bundle.manifest.limits
    try:
        backend = OrtBackend(
            Sessions(bundle, threads=settings.computing_threads),
            rows=2,
            source_capacity=min(limits.source_tokens, LONGEST),
            target_capacity=min(limits.target_tokens, LONGEST),
        )
        backend.warm_up()
        backend.close()
    except StartupError as error:
        raise ExportError(f"the exported model does not run: {error}") from error


_FOLDER = "float32"
_NARROW, _WIDE = ir.DataType.BFLOAT16, ir.DataType.FLOAT


@contextlib.contextmanager
def float32_twin(bundle: Bundle) -> Iterator[Bundle]:
    """Give a `bundle` in bfloat16 once more, in float32, which ONNX Runtime can run on a CPU.

    Its graphs are the bundle's own, but for the types, and have its weights. So what is verified with them holds for
    the bundle. At the end of the block the twin's folder, inside the bundle's, is removed.
    """
    folder = bundle.folder / _FOLDER
    folder.mkdir()
    files = [graph.file for graph in astuple(bundle.manifest.graphs) if isinstance(graph, Graph)]
    models = {file: ir.load(bundle.path(file)) for file in files}
    for model in models.values():
        _widen(model)
    share_weights(models.values(), folder / WEIGHTS, "float32")
    for file, model in models.items():
        ir.save(model, folder / file)
    signatures = msgspec.json.encode(bundle.manifest.graphs).replace(b'"bfloat16"', b'"float32"')
    graphs = msgspec.json.decode(signatures, type=Graphs)
    yield Bundle(folder, replace(bundle.manifest, graphs=graphs, precision="fp32", weight_storage="float32"))
    shutil.rmtree(folder)


def _widen(model: ir.Model) -> None:
    """Turn the type bfloat16 into float32: of weights, inputs, outputs, attributes and all between."""
    graph = model.graph
    for value in (*graph.inputs, *initializers(model)):
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
