"""An int8 bundle with weights of 8 bits that computes what another one does with weights of 7."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import onnx_ir as ir

from translane_export.graphs.shared_weights import share_weights
from translane_export.int8.quantize import SCALES, UNITS
from translane_server.bundle import Bundle, file_entry, load_bundle


def with_eight_bits(bundle: Bundle, folder: Path) -> Bundle:
    """Write `bundle` to `folder` with units of weights that are twice as large, and scales that are half as large."""
    shutil.copytree(bundle.folder, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bin"))
    graphs, files = bundle.manifest.graphs, bundle.manifest.files
    names = [graph.file for graph in (graphs.encoder, graphs.decoder, graphs.shortlist) if graph]
    models = [ir.load(bundle.folder / name) for name in names]
    for model in models:
        for name, value in model.graph.initializers.items():
            assert value.const_value is not None
            array = value.const_value.numpy()
            if name.endswith(UNITS):
                value.const_value = ir.tensor((array * 2).astype(np.int8), name=name)
            elif name.endswith(SCALES):
                value.const_value = ir.tensor(array / np.float32(2), name=name)
    (weights,) = {name for name in files if name.endswith(".bin")}
    share_weights(models, folder / weights, "float32")
    for model, name in zip(models, names, strict=True):
        ir.save(model, folder / name)
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    manifest["provenance"].pop("weight_bits", None)
    for name in (weights, *names):
        manifest["files"][name] = file_entry(folder / name).model_dump()
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return load_bundle(folder)
