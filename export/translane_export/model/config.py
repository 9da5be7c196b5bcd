"""The sizes and choices that define one Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

Activation = Literal["relu", "gelu", "silu"]
NormPlacement = Literal["post", "pre"]
PositionKind = Literal["sinusoidal", "learned"]
Tying = Literal["none", "two-way", "three-way"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "activation": get_args(Activation),
    "norm": get_args(NormPlacement),
    "positions": get_args(PositionKind),
    "tie_embeddings": get_args(Tying),
}
_SIZES = (
    "source_vocab_size",
    "target_vocab_size",
    "d_model",
    "encoder_layers",
    "decoder_layers",
    "heads",
    "ffn_size",
    "max_positions",
)
_RATES = ("dropout", "attention_dropout", "activation_dropout")
_SPECIAL_IDS = ("pad_id", "unk_id", "bos_id", "eos_id")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Everything needed to build a :class:`Transformer`; the defaults are the paper's base model (Table 3).

    ``head_size`` None means ``d_model // heads``; ``head_dim`` is the resolved number.
    ``norm`` "post" is the paper's LayerNorm(x + Sublayer(x)); "pre" is x + Sublayer(LayerNorm(x)) with one more
    norm after each stack (Xiong et al. 2020, https://arxiv.org/abs/2002.04745).
    ``tie_embeddings`` "two-way" shares the target embedding with the output projection, "three-way" the source
    embedding too (paper §3.4).

    Raises ValueError naming the field when a value makes no sense.
    """

    source_vocab_size: int
    target_vocab_size: int
    d_model: int = 512
    encoder_layers: int = 6
    decoder_layers: int = 6
    heads: int = 8
    head_size: int | None = None
    ffn_size: int = 2048
    activation: Activation = "relu"
    norm: NormPlacement = "post"
    positions: PositionKind = "sinusoidal"
    max_positions: int = 512
    scale_embeddings: bool = True
    tie_embeddings: Tying = "two-way"
    dropout: float = 0.1
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    layer_norm_eps: float = 1e-5
    pad_id: int = 0
    unk_id: int = 1
    bos_id: int = 2
    eos_id: int = 3

    def __post_init__(self) -> None:
        for name in _SIZES:
            self._require_int(name, minimum=1)
        if self.head_size is not None:
            self._require_int("head_size", minimum=1)
        elif self.d_model % self.heads:
            raise ValueError(f"d_model: {self.d_model} is not divisible by {self.heads} heads; set head_size")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model: sinusoidal positions need an even number, not {self.d_model}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: {getattr(self, name)!r} is not one of {', '.join(choices)}")
        for name in _RATES:
            rate = self._require_number(name)
            if not 0 <= rate < 1:
                raise ValueError(f"{name}: {rate} is outside [0, 1)")
        if not 0 < self._require_number("layer_norm_eps") < 1:
            raise ValueError(f"layer_norm_eps: {self.layer_norm_eps} is outside (0, 1)")
        if not isinstance(self.scale_embeddings, bool):
            raise ValueError(f"scale_embeddings: {self.scale_embeddings!r} is not true or false")
        if self.tie_embeddings == "three-way" and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                "tie_embeddings: three-way tying needs one vocabulary, but source_vocab_size is "
                f"{self.source_vocab_size} and target_vocab_size is {self.target_vocab_size}"
            )
        self._check_special_ids()

    @property
    def head_dim(self) -> int:
        """D, the size of one attention head."""
        return self.d_model // self.heads if self.head_size is None else self.head_size

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """Build a config from :meth:`to_dict`'s result. Raises ValueError naming unknown or missing keys."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown Transformer settings: {', '.join(unknown)}")
        missing = sorted({"source_vocab_size", "target_vocab_size"} - set(values))
        if missing:
            raise ValueError(f"missing Transformer settings: {', '.join(missing)}")
        return cls(**values)

    def _check_special_ids(self) -> None:
        smallest_vocabulary = min(self.source_vocab_size, self.target_vocab_size)
        owners: dict[int, str] = {}
        for name in _SPECIAL_IDS:
            value = self._require_int(name, minimum=0)
            if value >= smallest_vocabulary:
                raise ValueError(f"{name}: {value} is outside a vocabulary of {smallest_vocabulary}")
            if value in owners:
                raise ValueError(f"{name}: {value} is already {owners[value]}")
            owners[value] = name

    def _require_int(self, name: str, *, minimum: int) -> int:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(f"{name}: {value!r} is not an integer of at least {minimum}")
        return value

    def _require_number(self, name: str) -> float:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: {value!r} is not a number")
        return value


# Sizes only; spread one into a config: TransformerConfig(source_vocab_size=…, target_vocab_size=…, **PRESETS["base"]).
PRESETS: dict[str, dict[str, Any]] = {
    "base": {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "heads": 8, "ffn_size": 2048},
    "small": {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "heads": 4, "ffn_size": 1024},
    "tiny": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "heads": 2, "ffn_size": 256},
}
