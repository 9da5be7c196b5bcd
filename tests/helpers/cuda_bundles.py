"""Small bundles for CUDA of every architecture. Each is exported once for a test session."""

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from helpers.bundles import stored_bundle
from helpers.hugging_face import MODELS, export_drawn
from translane_server.bundle.bundle import Bundle, load_bundle

_UNITS = 32  # of the models of `MODELS`
BY_BLOCKS = {"vocab_size": 960, "pad_token_id": 959, "decoder_start_token_id": 959}  # 960: enough to search by blocks


@dataclass(frozen=True)
class Drawn:
    """A model of `MODELS`, changes to its `config`, and the precision to export it in.

    A model of 128 units gets half the spread of one of 32, so that its products are as large. With more, each layer
    makes rounding errors several times larger, and no device computes the logits alike in half precision.
    """

    name: str
    config: dict[str, Any] = field(default_factory=dict)
    precision: str = "fp16"

    def model_and_bundle(self) -> tuple[Any, Bundle]:
        """Return the model of transformers, and its bundle. The first call exports the bundle."""
        spread = MODELS[self.name].spread * math.sqrt(_UNITS / self.config.get("d_model", _UNITS))
        return export_drawn(self.name, config=self.config, spread=spread, precision=self.precision)

    def bundle(self) -> Bundle:
        """Return only the bundle."""
        return self.model_and_bundle()[1]


class Recurrent:
    """A random model with a recurrent unit, which no model of transformers has; as `Drawn` otherwise."""

    precision = "fp16"

    def model_and_bundle(self) -> tuple[Any, Bundle]:
        """Return what tests ask of a model of transformers, and the bundle."""
        bundle = self.bundle()
        ids, sizes = bundle.manifest.special_ids, bundle.manifest.architecture
        names = {"pad_token_id": ids.pad, "eos_token_id": ids.eos, "vocab_size": sizes.source_vocab_size}
        return SimpleNamespace(config=SimpleNamespace(**names)), bundle

    def bundle(self) -> Bundle:
        """Return only the bundle."""
        checkpoint = {"decoder_unit": "ssru", "d_model": 32, "max_positions": 24}
        return load_bundle(stored_bundle({"precision": self.precision}, checkpoint))


def _one_layer(name: str) -> dict[str, Any]:
    """One layer, because all layers are alike, and heads of 64, because CUDA has other kernels for small heads."""
    if "T5" in MODELS[name].kind:
        return {"num_layers": 1, "num_decoder_layers": 1, "num_heads": 2, "d_kv": 64}
    layers = {"encoder_layers": 1, "decoder_layers": 1}
    return {"d_model": 128, "encoder_attention_heads": 2, "decoder_attention_heads": 2, **layers}


# Tests decode with these models, which have several layers. Marian has a vocabulary that is searched by blocks. BART
# has heads of 64, as most models have. T5 has relative positions.
_SEVERAL_LAYERS: dict[str, dict[str, Any]] = {
    "Marian": BY_BLOCKS,
    "BART": {"d_model": 128, "encoder_attention_heads": 2, "decoder_attention_heads": 2},
    "T5": {},
}

_RECURRENT = "recurrent unit"
DECODED = (*_SEVERAL_LAYERS, _RECURRENT)
CUDA_MODELS: dict[str, Drawn | Recurrent] = {
    _RECURRENT: Recurrent(),
    **{name: Drawn(name, _SEVERAL_LAYERS[name] if name in _SEVERAL_LAYERS else _one_layer(name)) for name in MODELS},
    "Marian in bf16": Drawn("Marian", {**BY_BLOCKS, **_one_layer("Marian")}, "bf16"),
}
