"""The int8 stage of an export: a verified float32 bundle is calibrated, quantized, and its translations scored."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import torch
from msgspec.structs import replace

from translane_export.checks.running import Log, decode_greedily
from translane_export.core.errors import ExportError
from translane_export.core.ranges import Ranges
from translane_export.core.torch_model import release_memory
from translane_export.graphs.encoder_decoder import STEP, AlignmentGraph
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.signatures import bundle_signatures
from translane_export.graphs.writer import share_weights
from translane_export.int8.calibration import measure_ranges
from translane_export.int8.keys_values import quantize_decoder, quantize_encoder
from translane_export.int8.quantize import quantize_graph
from translane_export.model import Transformer, TransformerConfig
from translane_export.train.data import SentencePair
from translane_export.train.evaluate import score
from translane_server.bundle.bundle import Bundle, file_entry
from translane_server.bundle.manifest import Graphs, Manifest, Quality
from translane_server.translation.languages import LanguagePair

_MOST_CALIBRATED = 400  # sentences


def make_int8(
    bundle: Bundle,
    reference: Transformer,
    languages: LanguagePair,
    samples: Sequence[Sequence[int]],
    test: Sequence[SentencePair],
    *,
    most_lost: float,
    threads: int,
    log: Log,
) -> Manifest:
    """Replace the graphs and weights of a float32 `bundle` by int8 ones; return its manifest, brought up to date.

    It is calibrated with ``samples``, which are source ids. Translations of the pairs of ``test`` are scored before and
    after.

    Raises:
        ExportError: the translations lose more BLEU than they may.
    """
    sources = [list(source) for source in samples[:_MOST_CALIBRATED]]
    both = [*sources, *languages.encode([pair.source for pair in test])]
    translated = [each.token_ids for each in decode_greedily(bundle, both, languages.forced_ids, threads)]
    log(f"calibrating with {len(sources)} sentences")
    release_memory()
    ranges = measure_ranges(
        reference, [(source, ids) for source, ids in zip(sources, translated, strict=False) if source]
    )
    log("quantizing")
    quantized = quantize_bundle(bundle, ranges, reference.config)
    again = [each.token_ids for each in decode_greedily(quantized, both, languages.forced_ids, threads)]
    same = sum(one == other for one, other in zip(translated, again, strict=True))
    quality = Quality(sentences=len(again), unchanged=same)
    if not test:
        log(f"{same} of {len(again)} sentences translate as in fp32; without --test FILE no BLEU tells what int8 costs")
        return replace(quantized.manifest, quality=quality)
    references = [pair.target for pair in test]
    before, after = (
        score(languages.tokenizer.decode(ids[len(sources) :]), references, languages.target).bleu
        for ids in (translated, again)
    )
    log(f"BLEU {before:.2f} in fp32, {after:.2f} in int8, {len(references)} sentences")
    if before - after > most_lost:
        raise ExportError(
            f"int8 loses {before - after:.2f} BLEU ({before:.2f} to {after:.2f}), and --max-bleu-loss is"
            f" {most_lost:g}; more or better --samples may help"
        )
    quality = replace(quality, tested=len(references), bleu=after, fp32_bleu=before)
    return replace(quantized.manifest, quality=quality)


def quantize_bundle(bundle: Bundle, ranges: Ranges, config: TransformerConfig) -> Bundle:
    """Write int8 graphs and weights in the place of the float32 ones; return the bundle, its manifest up to date."""
    graphs = bundle.manifest.graphs
    of_graphs = {graphs.encoder.file: ranges.encoder, graphs.decoder.file: ranges.decoder}
    if graphs.shortlist:  # whose weights are those of the decoder, a part of it
        of_graphs[graphs.shortlist.file] = {f"{STEP}.{name}": limits for name, limits in ranges.decoder.items()}
    names = tuple(of_graphs)
    models = [ir.load(bundle.folder / name) for name in names]
    for model, of_graph in zip(models, of_graphs.values(), strict=True):
        quantize_graph(model, of_graph)
    graphs = _quantize_keys_values(bundle, models, ranges.keys_values, config)
    (weights,) = {name for name in bundle.manifest.files if name.endswith(".bin")}
    with tempfile.TemporaryDirectory(dir=bundle.folder) as scratch:
        written = Path(scratch)
        share_weights(models, written / weights, "float32")
        for model, name in zip(models, names, strict=True):
            ir.save(model, written / name)
        for name in (weights, *names):
            shutil.move(written / name, bundle.folder / name)
    files = {name: file_entry(bundle.folder / name) for name in bundle.manifest.files}
    return Bundle(
        bundle.folder, replace(bundle.manifest, precision="int8", weight_storage="int8", graphs=graphs, files=files)
    )


def _quantize_keys_values(
    bundle: Bundle, models: Sequence[ir.Model], scales: Mapping[str, np.float32], config: TransformerConfig
) -> Graphs:
    """Have the graphs keep keys and values as int8; the alignment graph, which has no weights, is written anew.

    Without scales they stay float32.
    """
    if not scales:
        return bundle.manifest.graphs
    graphs, alignment = bundle.manifest.graphs, bundle.manifest.alignment
    encoder, *steps = models
    quantize_encoder(encoder, scales)
    for step in steps:
        quantize_decoder(step, scales)
    quantized = bundle_signatures(
        config,
        torch.float32,
        cross_dtype=torch.int8,
        alignment=alignment is not None,
        shortlist=graphs.shortlist is not None,
    )
    if alignment and quantized.alignment:
        graph = AlignmentGraph(config, alignment.heads, float(scales[f"cross_key_{alignment.layer}"]))
        ir.save(export_graph(graph, quantized.alignment), bundle.folder / quantized.alignment.file)
    return quantized
