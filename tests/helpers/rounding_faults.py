"""Checks that an export's verification can tell faults from rounding errors, even in models that amplify rounding."""

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from helpers import hugging_face
from helpers.architectures import ARCHITECTURES
from helpers.bundles import bundle_model, random_bundle
from translane_export.checks.recording import Decode, record_decodes
from translane_export.checks.verify import compare, passes, verification_sources
from translane_export.core.errors import ExportError
from translane_export.graphs.numerics import choose_numerics
from translane_export.model import Transformer
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

_FP32 = choose_numerics("fp32", None)
_CAPACITY = 24


def a_wrong_weight(model: Transformer) -> None:
    layer: Any = model.decoder.layers[1]
    layer.cross_attention.v_proj.weight[3] *= -1


def a_wrong_scale(model: Transformer) -> None:
    layer: Any = model.decoder.layers[0]
    weight = layer.cross_attention.out_proj.weight
    weight[: len(weight) // 2] *= 1.001  # only half of it, because the next norm undoes a change of the whole


def a_swapped_head(model: Transformer) -> None:
    layer: Any = model.decoder.layers[0]
    for tensor in layer.self_attention.q_proj.parameters():
        tensor.copy_(torch.cat(tensor.chunk(2)[::-1]))


def a_position_off_by_one(model: Transformer) -> None:
    positions: Any = model.decoder.embedding.positions
    relative: Any = model.decoder.relative_positions
    if positions is not None:
        table = positions.embedding.weight if hasattr(positions, "embedding") else positions.table
        table[:-1] = table[1:].clone()
    else:
        between = relative.between
        relative.between = lambda queries, keys: between(queries + 1, keys)


FAULTS: tuple[Callable[[Transformer], None], ...] = (
    a_wrong_weight,
    a_wrong_scale,
    a_swapped_head,
    a_position_off_by_one,
)


@dataclass(frozen=True)
class Exported:
    """A model, and the output of its export at each step of some decodes."""

    model: Transformer
    decodes: Sequence[Decode]

    def passes(self, fault: Callable[[Transformer], None] | None = None) -> bool:
        """Whether the decodes pass the comparison with the model, after `fault` is put into the model."""
        model = copy.deepcopy(self.model)
        if fault:
            with torch.no_grad():
                fault(model)
        return passes(compare(self.decodes, model, _FP32))


def export(name: str, scale: float) -> Exported:
    """Export one of `ARCHITECTURES` with matrices that are multiplied by `scale`."""
    settings: dict[str, Any] = {
        "encoder_layers": 1,
        "decoder_layers": 2,
        "max_positions": _CAPACITY,
        "weight_scale": scale,
        **ARCHITECTURES[name],
    }
    model = bundle_model(**settings)
    with tempfile.TemporaryDirectory() as scratch:
        bundle = load_bundle(random_bundle(Path(scratch) / "bundle", **settings))
        backend = OrtBackend(Sessions(bundle, threads=1), rows=8, source_capacity=_CAPACITY, target_capacity=_CAPACITY)
        return Exported(model, record_decodes(backend, model.config, verification_sources([], model.config, _CAPACITY)))


def exports(model: Any, scale: float) -> bool:
    """Multiply the matrices of a model of transformers by `scale`. Return whether the model exports."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= scale
    with tempfile.TemporaryDirectory() as scratch:
        model.save_pretrained(Path(scratch) / "model")
        try:
            bundle = hugging_face.export(Path(scratch) / "model", Path(scratch) / "bundle", threads=1)
        except ExportError:
            return False
        assert bundle.manifest.parity is not None
        return passes(bundle.manifest.parity)
