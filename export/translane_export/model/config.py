"""The sizes and choices that define one Transformer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

Activation = Literal["relu", "gelu", "gelu_tanh", "silu"]
NormPlacement = Literal["post", "pre"]
NormKind = Literal["layer", "rms", "batch"]
PositionKind = Literal["sinusoidal", "learned", "rotary", "alibi", "none"]
AttentionNormalizer = Literal["softmax", "softmax1"]
DecoderUnit = Literal["self-attention", "ssru"]
Tying = Literal["none", "two-way", "three-way"]

# The most of each size, so that a number from a file never decides about much memory or time by itself.
_MOST_TOKENS = 131_072
_MOST_PLACES = 1 << 18  # of all heads: so many numbers for each position of a sentence
_MOST_FOLLOWING = 1 << 28  # numbers that no file holds, as they follow from sizes: 1 GiB
_Pieces = Annotated[int, Field(ge=1, le=10_000_000)]
_Id = Annotated[int, Field(ge=0, le=10_000_000)]
_Layers = Annotated[int, Field(ge=1, le=1_000)]
_Heads = Annotated[int, Field(ge=1, le=10_000)]
_Width = Annotated[int, Field(ge=1, le=1_000_000)]
_Tokens = Annotated[int, Field(ge=0, le=_MOST_TOKENS)]
_Rate = Annotated[float, Field(ge=0, lt=1)]


class ModelChoices(BaseModel):
    """What a model is composed of, sizes and ids apart; the defaults are the paper's. `translane train` takes it whole.

    What the paper's model has not, its descendants have; docs/attention.md tells the variants of attention apart, and
    `translane_export.model.positions` what tells positions apart. A decoder looks forward nowhere.
    """

    head_size: _Width | None = Field(None, description="Size of a head; d-model / heads unless given.")
    activation: Activation = Field("relu", description="Activation of the feed-forward networks.")
    gated: bool = Field(False, description="A gate in the feed-forward networks.")
    biases: bool = Field(True, description="Biases of the projections.")
    norm: NormPlacement = Field("post", description="Norm after (the paper) or before each sublayer.")
    norm_kind: NormKind = Field("layer", description="Layer norm, RMS norm, or batch norm over features.")
    embedding_norm: bool = Field(False, description="One more norm after the embeddings.")
    positions: PositionKind = Field("sinusoidal", description="Position vectors, or positions that attention knows.")
    max_positions: int = Field(512, ge=1, le=_MOST_TOKENS, description="Longest sequence the model takes.")
    scale_embeddings: bool = Field(True, description="Multiply embeddings by the square root of d-model.")
    tie_embeddings: Tying = Field("two-way", description="Share target embedding and output (and source: three-way).")
    decoder_unit: DecoderUnit = Field(
        "self-attention", description="How a decoder knows earlier tokens: self-attention, or a recurrent unit."
    )
    dropout: _Rate = Field(0.1, description="Dropout after embeddings and sublayers.")
    attention_dropout: _Rate = Field(0.0, description="Dropout on attention weights.")
    activation_dropout: _Rate = Field(0.0, description="Dropout inside the feed-forward networks.")
    value_size: _Width | None = Field(None, description="Size of a head's values; head-size unless given.")
    kv_heads: _Heads | None = Field(None, description="Heads of keys and values; heads unless given.")
    attention_biases: bool | None = Field(None, description="Biases of attention; unless given, as of the others.")
    attention_normalizer: AttentionNormalizer = Field(
        "softmax", description="softmax, or softmax1, by which a position may attend to nothing."
    )
    rotary_base: float = Field(10_000.0, gt=1, description="Base of rotary positions.")
    rotary_interleaved: bool = Field(False, description="Rotary positions turn neighbours, not halves.")
    relative_window: int = Field(0, ge=0, le=1_000, description="Vectors for distances up to this one; 0 is none.")
    relative_shared: bool = Field(True, description="One table of such vectors for all heads.")
    relative_clipped: bool = Field(True, description="Distances beyond have the vector of the window's edge.")
    relative_buckets: int = Field(
        0, ge=0, le=10_000, description="Biases for so many ranges of distances, as T5 has them; 0 is none."
    )
    relative_max_distance: int = Field(
        128, ge=1, le=_MOST_TOKENS, description="Distance from which on such biases are alike."
    )
    proximal_bias: bool = Field(False, description="Scores fall with the logarithm of the distance.")
    proximal_init: bool = Field(False, description="Keys start out projected as queries are.")
    block_length: _Tokens = Field(0, description="A position sees so many on either side; 0 is all.")
    window_size: _Tokens = Field(0, description="Positions are cut into windows of this size; 0 is none.")
    look_backward: _Tokens = Field(1, description="Windows that a position sees before its own.")
    look_forward: _Tokens = Field(1, description="Windows that a position of the encoder sees after its own.")
    exact_window: bool = Field(False, description="A position sees so many windows' worth of positions, and no more.")


class TransformerConfig(ModelChoices):
    """Everything needed to build a :class:`Transformer`; the defaults are the paper's base model (Table 3).

    Raises ValueError naming the field when a value makes no sense.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)

    source_vocab_size: _Pieces
    target_vocab_size: _Pieces
    d_model: _Width = Field(512, description="Model size.")
    encoder_layers: _Layers = Field(6, description="Layers of the encoder.")
    decoder_layers: _Layers = Field(6, description="Layers of the decoder.")
    heads: _Heads = Field(8, description="Attention heads.")
    ffn_size: _Width = Field(2048, description="Inner size of the feed-forward networks.")
    layer_norm_eps: float = Field(1e-5, gt=0, lt=1, description="What a norm adds to the variance.")
    final_norm: bool | None = Field(None, description="A norm after each stack; with pre-norm alone unless given.")
    logit_scale: float = Field(1.0, gt=0, description="Factor of the decoder's output before its projection.")
    attention_scale: bool | float = Field(True, description="Factor of scores: 1/√d_k if true, 1 if false.")
    pad_id: _Id = 0
    unk_id: _Id = 1
    bos_id: _Id = Field(2, description="Any id: of many published models it is another special one.")
    eos_id: _Id = 3
    decoder_start_id: _Id | None = Field(None, description="What the decoder is first fed; bos_id unless given.")
    suppressed_ids: tuple[_Id, ...] = Field((), description="Target ids that are never generated.")
    suppressed_share: bool = Field(True, description="Whether suppressed ids keep their share of the probability.")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ValueError(_sentence(error)) from None

    @model_validator(mode="after")
    def _check(self) -> Self:
        for check in (_check_sizes, _check_attention, _check_decoder, _check_tables, _check_ids):
            check(self)
        return self

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

    def changed(self, **values: Any) -> TransformerConfig:
        """Return a config with other values of some fields."""
        return TransformerConfig(**{**dict(self), **values})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-compatible values; :meth:`from_dict` reads them back."""
        return self.model_dump(mode="json")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TransformerConfig:
        """Build a config from :meth:`to_dict`'s result. Raises ValueError naming unknown or missing keys."""
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


def _check_sizes(config: TransformerConfig) -> None:
    if config.head_size is None and config.d_model % config.heads:
        raise ValueError(f"d_model: {config.d_model} is not divisible by {config.heads} heads; set head_size")
    if config.heads % config.key_value_heads:
        raise ValueError(f"kv_heads: {config.kv_heads} does not divide {config.heads} heads")
    if config.positions == "sinusoidal" and config.d_model % 2:
        raise ValueError(f"d_model: sinusoidal positions need an even number, not {config.d_model}")
    if config.tie_embeddings == "three-way" and config.source_vocab_size != config.target_vocab_size:
        raise ValueError(
            "tie_embeddings: three-way tying needs one vocabulary, but source_vocab_size is "
            f"{config.source_vocab_size} and target_vocab_size is {config.target_vocab_size}"
        )


def _check_attention(config: TransformerConfig) -> None:
    if config.attention_scale is not True and config.attention_scale is not False and config.attention_scale <= 0:
        raise ValueError(f"attention_scale: {config.attention_scale} is not above 0")
    if config.positions == "rotary" and config.head_dim % 2:
        raise ValueError(f"head_size: rotary positions need an even number, not {config.head_dim}")
    if config.relative_window and config.positions == "rotary":
        raise ValueError(
            "relative_window: relative positions are vectors, or angles as rotary positions are; choose one"
        )
    if config.proximal_init and config.key_value_heads != config.heads:
        raise ValueError("proximal_init: keys cannot start as queries where kv_heads are fewer than heads")
    if config.block_length and config.window_size:
        raise ValueError("window_size: attention is local by block_length or by window_size; choose one")
    buckets, most = config.relative_buckets, config.relative_max_distance
    if buckets and (buckets < 4 or buckets % 2):  # the encoder has half of them for either direction
        raise ValueError(f"relative_buckets: {buckets} is neither 0 nor an even number of at least 4")
    if buckets and most <= buckets // 2:
        raise ValueError(f"relative_max_distance: {most} is not above half of {buckets} relative_buckets")


def _check_decoder(config: TransformerConfig) -> None:
    """Refuse what is known to self-attention alone where the decoder has none."""
    if config.decoder_unit != "ssru":
        return
    if config.d_model % 8:  # GPUs copy the state by 16 bytes
        raise ValueError(f"d_model: decoder_unit ssru needs a multiple of 8, not {config.d_model}")
    if config.positions in ("rotary", "alibi"):
        raise ValueError(f"positions: {config.positions} are of self-attention, which decoder_unit ssru has not")
    for name in (
        "relative_window",
        "relative_buckets",
        "proximal_bias",
        "proximal_init",
        "block_length",
        "window_size",
    ):
        if getattr(config, name):
            raise ValueError(f"{name}: it is of self-attention, which decoder_unit ssru has not")


def _check_tables(config: TransformerConfig) -> None:
    """Bound the tables that follow from sizes: a small file could ask for any memory by them."""
    layers = config.encoder_layers + config.decoder_layers
    tables = {"sinusoidal": 2 * config.d_model, "rotary": layers * config.head_dim}
    if (numbers := config.max_positions * tables.get(config.positions, 0)) > _MOST_FOLLOWING:
        raise ValueError(
            f"max_positions: the tables of {config.max_positions:,} {config.positions} positions have {numbers:,}"
            f" numbers, and at most {_MOST_FOLLOWING:,} are supported"
        )
    if not config.relative_window:
        return
    distances = 2 * config.relative_window + 1
    places = config.heads * distances
    if places > _MOST_PLACES:
        raise ValueError(
            f"relative_window: {config.heads:,} heads with {distances:,} distances each are {places:,}, and at most"
            f" {_MOST_PLACES:,} are supported"
        )
    # Tables of their own are one matrix in a graph, with zeros where a head meets another's table.
    width = config.heads * (config.head_dim + config.value_dim)
    if not config.relative_shared and (numbers := layers * places * width) > _MOST_FOLLOWING:
        raise ValueError(
            f"relative_window: the tables of {config.heads:,} heads have {numbers:,} numbers in graphs, and at most"
            f" {_MOST_FOLLOWING:,} are supported; share them (relative_shared)"
        )


def _check_ids(config: TransformerConfig) -> None:
    smallest = min(config.source_vocab_size, config.target_vocab_size)
    owners: dict[int, str] = {}
    for name in ("pad_id", "unk_id", "bos_id", "eos_id"):
        value = getattr(config, name)
        if value >= smallest:
            raise ValueError(f"{name}: {value} is outside a vocabulary of {smallest}")
        if name != "bos_id" and owners.setdefault(value, name) != name:
            raise ValueError(f"{name}: {value} is already {owners[value]}")
    size = config.target_vocab_size
    if config.start_id >= size:
        raise ValueError(f"decoder_start_id: {config.start_id} is outside a vocabulary of {size}")
    for number in config.suppressed_ids:
        if number >= size:
            raise ValueError(f"suppressed_ids: {number} is not one of {size} target ids")
    if config.eos_id in config.suppressed_ids:
        raise ValueError(f"suppressed_ids: {config.eos_id} is eos_id, and no sentence would end")


def _sentence(error: ValidationError) -> str:
    """Return what is wrong first, and with which field."""
    problems = error.errors(include_url=False)
    for kind, what in (("extra_forbidden", "unknown"), ("missing", "missing")):
        if names := sorted(str(problem["loc"][0]) for problem in problems if problem["type"] == kind):
            return f"{what} Transformer settings: {_shown(', '.join(names)).strip(chr(39))}"
    field = problems[0]["loc"][:1]
    problem = [each for each in problems if each["loc"][:1] == field][-1]  # the last type that a value may have
    message = problem["msg"].removeprefix("Value error, ")
    return f"{field[0]}: {message[:1].lower()}{message[1:]}, not {_shown(problem['input'])}" if field else message


def _shown(value: object) -> str:
    """Return a value on one line, however large it is."""
    if isinstance(value, int) and abs(value) >= 10**60:  # Python refuses to write numbers of many digits
        return "a number of more than 60 digits"
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:196]} …"
