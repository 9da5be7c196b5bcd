"""The sizes and choices that define one Transformer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args

from translane_server.manifest import MOST_HEADS, MOST_LAYERS, MOST_PIECES, MOST_TOKENS, MOST_WIDTH
from translane_server.printable import printable, shown

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
NormPlacement = Literal["post", "pre"]
NormKind = Literal["layer", "rms"]
PositionKind = Literal["sinusoidal", "learned", "none"]
Tying = Literal["none", "two-way", "three-way"]

_CHOICES: dict[str, tuple[str, ...]] = {
    "activation": get_args(Activation),
    "norm": get_args(NormPlacement),
    "norm_kind": get_args(NormKind),
    "positions": get_args(PositionKind),
    "tie_embeddings": get_args(Tying),
}
# The most of each size, so that a number from a file never decides about much memory or time by itself.
_SIZES = {
    "source_vocab_size": MOST_PIECES,
    "target_vocab_size": MOST_PIECES,
    "d_model": MOST_WIDTH,
    "encoder_layers": MOST_LAYERS,
    "decoder_layers": MOST_LAYERS,
    "heads": MOST_HEADS,
    "ffn_size": MOST_WIDTH,
    "max_positions": MOST_TOKENS,
}
_MOST_BUCKETS = 10_000
_RATES = ("dropout", "attention_dropout", "activation_dropout")
_SWITCHES = ("scale_embeddings", "embedding_norm", "biases", "gated", "attention_scale")
_SPECIAL_IDS = ("pad_id", "unk_id", "bos_id", "eos_id")


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Everything needed to build a :class:`Transformer`; the defaults are the paper's base model (Table 3).

    ``head_size`` None means ``d_model // heads``; ``head_dim`` is the resolved number.
    ``norm`` "post" is the paper's LayerNorm(x + Sublayer(x)); "pre" is x + Sublayer(LayerNorm(x)) with one more
    norm after each stack (Xiong et al. 2020, https://arxiv.org/abs/2002.04745).
    ``tie_embeddings`` "two-way" shares the target embedding with the output projection, "three-way" the source
    embedding too (paper §3.4).

    What the paper's model has not, and its descendants have:

    ``norm_kind`` "rms" is RMSNorm (Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467), which has no bias, and
    ``embedding_norm`` one more norm right after each stack's embeddings (BART, https://arxiv.org/abs/1910.13461).
    ``gated`` is act(x W_gate) * (x W_up) in the feed-forward network (Shazeer 2020, https://arxiv.org/abs/2002.05202);
    ``activation`` "gelu_tanh" is GELU by its tanh approximation (https://arxiv.org/abs/1606.08415, section 2).
    ``biases`` false takes the bias of every projection away. ``attention_scale`` false leaves out 1/√D.
    ``relative_buckets`` other than 0 adds a learned bias to self-attention that depends on how far apart query and key
    are, up to ``relative_max_distance`` (T5, https://arxiv.org/abs/1910.10683, section 2.1); such models often
    have no ``positions`` besides. ``logit_scale`` multiplies the decoder's output before its projection.
    ``decoder_start_id`` is what the decoder is first fed (None: ``bos_id``). ``bos_id`` itself may be any id: of many
    published models it is another special one. ``suppressed_ids`` are target ids that are never generated, though they
    keep their share of the probability.

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
    decoder_start_id: int | None = None
    embedding_norm: bool = False
    norm_kind: NormKind = "layer"
    biases: bool = True
    gated: bool = False
    relative_buckets: int = 0
    relative_max_distance: int = 128
    attention_scale: bool = True
    logit_scale: float = 1.0
    suppressed_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, most in _SIZES.items():
            self._require_int(name, minimum=1, maximum=most)
        if self.head_size is not None:
            self._require_int("head_size", minimum=1, maximum=MOST_WIDTH)
        elif self.d_model % self.heads:
            raise ValueError(f"d_model: {self.d_model} is not divisible by {self.heads} heads; set head_size")
        if self.positions == "sinusoidal" and self.d_model % 2:
            raise ValueError(f"d_model: sinusoidal positions need an even number, not {self.d_model}")
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{name}: {shown(getattr(self, name))} is not one of {', '.join(choices)}")
        for name in _RATES:
            rate = self._require_number(name)
            if not 0 <= rate < 1:
                raise ValueError(f"{name}: {rate} is outside [0, 1)")
        if not 0 < self._require_number("layer_norm_eps") < 1:
            raise ValueError(f"layer_norm_eps: {self.layer_norm_eps} is outside (0, 1)")
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}: {shown(getattr(self, name))} is not true or false")
        if not 0 < self._require_number("logit_scale") < math.inf:
            raise ValueError(f"logit_scale: {self.logit_scale} is not a finite number above 0")
        self._check_relative_positions()
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

    @property
    def start_id(self) -> int:
        """What the decoder is first fed."""
        return self.bos_id if self.decoder_start_id is None else self.decoder_start_id

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values; :meth:`from_dict` reads them back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """Build a config from :meth:`to_dict`'s result. Raises ValueError naming unknown or missing keys."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"unknown Transformer settings: {printable(', '.join(unknown), 200)}")
        missing = sorted({"source_vocab_size", "target_vocab_size"} - set(values))
        if missing:
            raise ValueError(f"missing Transformer settings: {', '.join(missing)}")
        arguments = dict(values)
        if isinstance(suppressed := arguments.get("suppressed_ids"), list):  # JSON has no tuples
            arguments["suppressed_ids"] = tuple(suppressed)
        return cls(**arguments)

    def _check_relative_positions(self) -> None:
        buckets = self._require_int("relative_buckets", minimum=0, maximum=_MOST_BUCKETS)
        most = self._require_int("relative_max_distance", minimum=1, maximum=MOST_TOKENS)
        if buckets == 0:
            return
        if buckets < 4 or buckets % 2:  # the encoder has half of them for either direction
            raise ValueError(f"relative_buckets: {buckets} is neither 0 nor an even number of at least 4")
        if most <= buckets // 2:
            raise ValueError(f"relative_max_distance: {most} is not above half of {buckets} relative_buckets")

    def _check_special_ids(self) -> None:
        smallest_vocabulary = min(self.source_vocab_size, self.target_vocab_size)
        owners: dict[int, str] = {}
        for name in _SPECIAL_IDS:
            value = self._require_int(name, minimum=0)
            if value >= smallest_vocabulary:
                raise ValueError(f"{name}: {value} is outside a vocabulary of {smallest_vocabulary}")
            if name == "bos_id":
                continue
            if value in owners:
                raise ValueError(f"{name}: {value} is already {owners[value]}")
            owners[value] = name
        if self.decoder_start_id is not None:
            start = self._require_int("decoder_start_id", minimum=0)
            if start >= self.target_vocab_size:
                raise ValueError(f"decoder_start_id: {start} is outside a vocabulary of {self.target_vocab_size}")
        self._check_suppressed_ids()

    def _check_suppressed_ids(self) -> None:
        suppressed = self.suppressed_ids
        if not isinstance(suppressed, tuple):
            raise ValueError(f"suppressed_ids: {shown(suppressed)} is not a tuple of ids")
        for number in suppressed:
            if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < self.target_vocab_size:
                raise ValueError(f"suppressed_ids: {shown(number)} is not one of {self.target_vocab_size} target ids")
        if self.eos_id in suppressed:
            raise ValueError(f"suppressed_ids: {self.eos_id} is eos_id, and no sentence would end")

    def _require_int(self, name: str, *, minimum: int, maximum: int = MOST_PIECES) -> int:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ValueError(f"{name}: {shown(value)} is not an integer of at least {minimum}")
        if value > maximum:
            raise ValueError(f"{name}: {shown(value)} is above {maximum:,}, the most that is supported")
        return value

    def _require_number(self, name: str) -> float:
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{name}: {shown(value)} is not a number")
        return value


# Sizes only; spread one into a config: TransformerConfig(source_vocab_size=…, target_vocab_size=…, **PRESETS["base"]).
PRESETS: dict[str, dict[str, Any]] = {
    "base": {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "heads": 8, "ffn_size": 2048},
    "small": {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "heads": 4, "ffn_size": 1024},
    "tiny": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "heads": 2, "ffn_size": 256},
}
