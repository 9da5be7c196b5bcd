"""The sizes and choices that define one Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from translane_export.model.config_checks import check_config
from translane_server.core.terminal import printable

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
NormPlacement = Literal["post", "pre"]
NormKind = Literal["layer", "rms", "batch"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
AttentionNormalizer = Literal["softmax", "softmax1"]
Tying = Literal["none", "two-way", "three-way"]


@dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """Everything needed to build a :class:`Transformer`; the defaults are the paper's base model (Table 3).

    ``head_size`` None means ``d_model // heads``; ``head_dim`` is the resolved number.
    ``norm`` "post" is the paper's LayerNorm(x + Sublayer(x)); "pre" is x + Sublayer(LayerNorm(x)) with one more
    norm after each stack (Xiong et al. 2020, https://arxiv.org/abs/2002.04745). ``final_norm`` says otherwise of that
    norm: torch.nn.Transformer has it in either case.
    ``tie_embeddings`` "two-way" shares the target embedding with the output projection, "three-way" the source
    embedding too (paper §3.4).

    What the paper's model has not, and its descendants have:

    ``norm_kind`` "rms" is RMSNorm (Zhang and Sennrich 2019, https://arxiv.org/abs/1910.07467), which has no bias, and
    ``embedding_norm`` one more norm right after each stack's embeddings (BART, https://arxiv.org/abs/1910.13461).
    ``gated`` is act(x W_gate) * (x W_up) in the feed-forward network (Shazeer 2020, https://arxiv.org/abs/2002.05202);
    ``activation`` "gelu_tanh" is GELU by its tanh approximation (https://arxiv.org/abs/1606.08415, section 2).
    ``biases`` false takes the bias of every projection away, and ``attention_biases`` says otherwise for attention's.
    ``attention_scale`` false leaves out 1/√D; a number takes its place.
    ``relative_buckets`` other than 0 adds a learned bias to self-attention that depends on how far apart query and key
    are, up to ``relative_max_distance`` (T5, https://arxiv.org/abs/1910.10683, section 2.1); such models often
    have no ``positions`` besides. ``logit_scale`` multiplies the decoder's output before its projection.
    ``decoder_start_id`` is what the decoder is first fed (None: ``bos_id``). ``bos_id`` itself may be any id: of many
    published models it is another special one. ``suppressed_ids`` are target ids that are never generated. They keep
    their share of the probability unless ``suppressed_share`` is false.

    What attention is composed of; docs/attention.md tells the variants apart:

    ``kv_heads`` fewer than ``heads`` are grouped queries; ``value_size`` is the size of a head's values, ``head_size``
    unless given. ``attention_normalizer`` "softmax1" lets a query attend to nothing (`normalizers`).
    ``positions`` "rotary" and "alibi" have no vectors: self-attention turns queries and keys by angles of
    ``rotary_base`` (`rotary`), or falls off with distance (`distance_biases`), as it does with ``proximal_bias``.
    ``relative_window`` other than 0 adds vectors for distances up to it to self-attention's keys and values, which
    heads share or not (``relative_shared``), and which distances beyond have or not (``relative_clipped``); see
    `relative_embeddings`. ``proximal_init`` starts training with self-attention's keys projected as queries are.
    ``block_length`` other than 0 lets a position see so many on either side. ``window_size`` other than 0 cuts a
    sequence into windows, and lets a position see its own and ``look_backward`` before and ``look_forward`` after it,
    of which ``exact_window`` counts positions (`masks`). A decoder looks forward nowhere.
    ``norm_kind`` "batch" is batch norm over features (`norms`).

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
    attention_scale: bool | float = True
    logit_scale: float = 1.0
    suppressed_ids: tuple[int, ...] = ()
    suppressed_share: bool = True
    final_norm: bool | None = None
    kv_heads: int | None = None
    value_size: int | None = None
    attention_biases: bool | None = None
    attention_normalizer: AttentionNormalizer = "softmax"
    rotary_base: float = 10_000.0
    rotary_interleaved: bool = False
    relative_window: int = 0
    relative_shared: bool = True
    relative_clipped: bool = True
    proximal_bias: bool = False
    proximal_init: bool = False
    block_length: int = 0
    window_size: int = 0
    look_backward: int = 1
    look_forward: int = 1
    exact_window: bool = False

    def __post_init__(self) -> None:
        check_config(self)

    @property
    def head_dim(self) -> int:
        """d_k, the size of one attention head's queries and keys."""
        return self.d_model // self.heads if self.head_size is None else self.head_size

    @property
    def value_dim(self) -> int:
        """d_v, the size of one attention head's values."""
        return self.head_dim if self.value_size is None else self.value_size

    @property
    def key_value_heads(self) -> int:
        """How many heads keys and values have."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def has_attention_biases(self) -> bool:
        """Whether the projections of attention have biases."""
        return self.biases if self.attention_biases is None else self.attention_biases

    @property
    def score_scale(self) -> float:
        """What scores of attention are multiplied with."""
        if isinstance(self.attention_scale, bool):
            return self.head_dim**-0.5 if self.attention_scale else 1.0
        return self.attention_scale

    @property
    def start_id(self) -> int:
        """What the decoder is first fed."""
        return self.bos_id if self.decoder_start_id is None else self.decoder_start_id

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values; :meth:`from_dict` reads them back."""
        return {**asdict(self), "suppressed_ids": list(self.suppressed_ids)}

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


# Sizes only; spread one into a config: TransformerConfig(source_vocab_size=…, target_vocab_size=…, **PRESETS["base"]).
PRESETS: dict[str, dict[str, Any]] = {
    "base": {"d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "heads": 8, "ffn_size": 2048},
    "small": {"d_model": 256, "encoder_layers": 3, "decoder_layers": 3, "heads": 4, "ffn_size": 1024},
    "tiny": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "heads": 2, "ffn_size": 256},
}
