"""The manifest of a model bundle: its fields, and the checks across fields."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from sys import float_info
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from translane_server.core.terminal import shown

SCHEMA_VERSION: Final = 6

Precision = Literal["fp32", "fp16", "bf16", "int8"]
# The type in which attention and norms compute. The keys and values of self-attention have this type too.
COMPUTED_IN: dict[Precision, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "float32"}
_KEY_VALUE_TYPES = ("float32", "float16", "bfloat16", "int8")

# Far beyond any model, and small enough that a number from a file never decides about much memory or time by itself.
MOST_LAYERS = 1_000
MOST_HEADS = 10_000
MOST_WIDTH = 1_000_000
MOST_PIECES = 10_000_000
MOST_TOKENS = 131_072
MOST_BEAMS = 4_096
_LARGEST_PENALTY = 1e6
_MOST_CHARACTERS = 1_000

# The form of a model's name, a regular expression, and its longest length [characters].
MODEL_NAME = "[A-Za-z0-9][A-Za-z0-9._-]*"
LONGEST_MODEL_NAME = 100

_Layers = Annotated[int, Meta(ge=1, le=MOST_LAYERS)]
_Heads = Annotated[int, Meta(ge=1, le=MOST_HEADS)]
_Width = Annotated[int, Meta(ge=1, le=MOST_WIDTH)]
_Pieces = Annotated[int, Meta(ge=1, le=MOST_PIECES)]
_Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS)]
_Natural = Annotated[int, Meta(ge=0)]
_Positive = Annotated[int, Meta(ge=1)]
_Number = Annotated[float, Meta(ge=-float_info.max, le=float_info.max)]  # none but finite ones
_Texts = Annotated[tuple[str, ...], Meta(min_length=1)]


def _as_flag(value: bool | float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:.9g}"


class _Part(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a manifest. Its types and bounds are checked where it is read, and not where it is made."""


class Architecture(_Part, frozen=True, kw_only=True):
    """Sizes of the model: the server lays out memory by some, and others inform people."""

    family: str
    encoder_layers: _Layers
    decoder_layers: _Layers
    d_model: _Width
    heads: _Heads
    head_size: Annotated[int, Meta(ge=8, le=MOST_WIDTH, multiple_of=8)]
    kv_heads: _Heads | None = None  # of keys and values; None: as many as queries have
    # How the decoder knows earlier tokens. A recurrent unit has cells, `d_model` numbers in each layer.
    decoder_unit: Literal["self-attention", "ssru"] = "self-attention"
    ffn_size: _Width
    source_vocab_size: _Pieces
    target_vocab_size: _Pieces
    parameters: _Positive

    @property
    def key_value_heads(self) -> int:
        """How many heads keys and values have."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def cell_size(self) -> int:
        """How many numbers a layer's recurrent unit keeps of earlier tokens; 0 with self-attention."""
        return self.d_model if self.decoder_unit == "ssru" else 0

    def __post_init__(self) -> None:
        if self.heads % self.key_value_heads:
            raise ValueError(f"kv_heads: {self.kv_heads} does not divide {self.heads} heads")
        if self.cell_size % 8:
            raise ValueError(f"d_model: decoder_unit ssru needs a multiple of 8, not {self.d_model}")


class SpecialIds(_Part, frozen=True):
    """Ids of special tokens. The first token fed to the decoder is `decoder_start`; generation ends with `eos`."""

    pad: _Natural
    unk: _Natural
    bos: _Natural
    eos: _Natural
    decoder_start: _Natural


class ModelLimits(_Part, frozen=True):
    """Longest source and target that the model can take [tokens, with the end-of-sentence token]."""

    source_tokens: _Tokens
    target_tokens: _Tokens


class SearchDefaults(_Part, frozen=True):
    """The search of requests that set no search: decoding options by name. None leaves an option at its own default.

    `str()` gives the options that are set, such as beam_size=4,length_penalty=0.6, or none.
    """

    beam_size: Annotated[int, Meta(ge=1, le=MOST_BEAMS)] | None = None
    length_penalty: Annotated[float, Meta(ge=-10, le=10)] | None = None
    early_stopping: bool | None = None
    repetition_penalty: Annotated[float, Meta(ge=1 / _LARGEST_PENALTY, le=_LARGEST_PENALTY)] | None = None
    no_repeat_ngram_size: Annotated[int, Meta(ge=0, le=MOST_TOKENS)] | None = None
    min_length: Annotated[int, Meta(ge=0, le=MOST_TOKENS)] | None = None
    use_shortlist: bool | None = None

    @property
    def given(self) -> dict[str, Any]:
        """The options that are set, by name."""
        values = {name: getattr(self, name) for name in SearchDefaults.__struct_fields__}
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        return ",".join(f"{name}={_as_flag(value)}" for name, value in self.given.items()) or "none"


class DecodingDefaults(SearchDefaults, frozen=True, kw_only=True):
    """Values of decoding options that a request leaves unset.

    `length_factor` bounds a translation, beside `max_length`, by so many tokens for each token of its source.
    """

    max_length: _Tokens
    length_factor: Annotated[float, Meta(gt=0, le=_LARGEST_PENALTY)] | None = None

    @property
    def search(self) -> SearchDefaults:
        """These defaults without the lengths."""
        return SearchDefaults(**self.given)


class SentencePieceTokenizerEntry(_Part, frozen=True, tag_field="kind", tag="sentencepiece"):
    """Two SentencePiece models; the same file twice if the vocabulary is joint.

    Some models number the pieces in their own way. Then `source_ids` and `target_ids` are JSON files, each an object of
    piece -> id. The model does not know pieces that are missing there.
    """

    source: str
    target: str
    source_ids: str | None = None
    target_ids: str | None = None
    source_eos: bool = True  # whether the end-of-sentence token ends sources

    @property
    def files(self) -> set[str]:
        """The files of the bundle that the tokenizer reads."""
        return {self.source, self.target} | {name for name in (self.source_ids, self.target_ids) if name}


class JsonTokenizerEntry(_Part, frozen=True, tag_field="kind", tag="tokenizers"):
    """A `tokenizer.json` of the library `tokenizers`. Its template is ignored.

    `file` is for both sides, or for sources alone if `target` names another file for targets.
    """

    file: str
    target: str | None = None
    source_eos: bool = True

    @property
    def files(self) -> set[str]:
        """The files of the bundle that the tokenizer reads."""
        return {self.file} | ({self.target} if self.target else set())


TokenizerEntry = SentencePieceTokenizerEntry | JsonTokenizerEntry

_Ids = tuple[_Natural, ...]


class LanguageTokens(_Part, frozen=True):
    """The tokens that tell a model one of its languages."""

    # source ids before the text. The prefix of the source language comes before the prefix of the target language
    source_prefix: _Ids = ()
    source_suffix: _Ids = ()  # source ids after the end-of-sentence token
    forced: _Ids = ()  # target ids that the translation starts with


class LanguageTemplates(_Part, frozen=True):
    """How a request's languages are told to the model. By default they are not: the model has a single pair."""

    source: dict[str, LanguageTokens] = {}  # source language -> tokens. A language that is missing here has none
    target: dict[str, LanguageTokens] = {}  # target language -> tokens. A language that is missing here has none
    text_prefix: str = ""  # text before each source text
    # source language -> target language -> text, in place of `text_prefix`. If there are any, the model translates
    # between these pairs only
    pair_prefixes: dict[str, dict[str, str]] = {}


class Languages(_Part, frozen=True):
    """The languages of a model, by their public tags, and how the model is told a language."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    templates: LanguageTemplates = LanguageTemplates()


class GraphTensor(_Part, frozen=True):
    """An input or output of a graph. A dimension is a number or a name."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Graph(_Part, frozen=True):
    """An ONNX graph of the bundle and its signature."""

    file: str
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]


class Graphs(_Part, frozen=True):
    """The encoder and decoder graphs, and the graphs that only some bundles have."""

    encoder: Graph  # maps sources to the keys and values of cross-attention
    decoder: Graph  # runs one decode step with all its possible results
    greedy: Graph | None = None  # runs one decode step and returns only the best token of each row
    alignment: Graph | None = None  # maps the query of a decode step to attention weights
    shortlist: Graph | None = None  # runs one decode step over the tokens of shortlists alone
    # upper bound of the decoder's input num_blocks, if the decoder has this input. The decoder searches the vocabulary
    # by min(vocabulary_blocks, num_candidates) blocks
    vocabulary_blocks: _Positive | None = None

    @property
    def cross_dtype(self) -> str:
        """The type of the keys and values of cross-attention."""
        return self.encoder.outputs[0].dtype

    @property
    def returns_cross(self) -> bool:
        """Whether a decode step returns the keys and values of cross-attention unchanged."""
        return any(tensor.name.startswith("present_cross_") for tensor in self.decoder.outputs)

    @property
    def searches_on_request(self) -> bool:
        """Whether a decode step looks for candidates only where it is asked to. Others always do."""
        return any(tensor.name == "with_candidates" for tensor in self.decoder.inputs)

    def __post_init__(self) -> None:
        types = sorted({tensor.dtype for tensor in self.encoder.outputs})
        if len(types) != 1 or types[0] not in _KEY_VALUE_TYPES:
            raise ValueError(
                "encoder.outputs: keys and values are all float32, float16, bfloat16 or int8,"
                f" not {', '.join(types) or 'none'}"
            )


class Alignment(_Part, frozen=True):
    """The decoder layer and the heads whose cross-attention aligns target tokens with source tokens.

    Layers and heads are numbered from 0. The weights of the heads are averaged.
    """

    layer: _Natural
    heads: Annotated[tuple[int, ...], Meta(min_length=1)]


class Activation(_Part, frozen=True):
    """The absolute value of an activation, and its tensor.

    `tensor` uses the module names of the PyTorch model: "output of encoder.layers.0.self_attention.v_proj".
    """

    tensor: str
    value: _Number


class Parity(_Part, frozen=True):
    """The comparison of the exported graphs with the PyTorch model, over greedy decoding by the server's backend.

    Attention weights are compared if the bundle has an alignment graph. `max_activation` is measured for fp16 bundles,
    whose numbers must stay below 65,504.
    """

    sentences: int
    tokens: int
    max_logit_difference: _Number
    tolerance: _Number
    token_mismatches: int
    max_attention_difference: _Number | None = None
    attention_tolerance: _Number | None = None
    max_activation: Activation | None = None


class Quality(_Part, frozen=True):
    """The comparison of an int8 bundle's translations with those of its fp32 original."""

    sentences: int  # number of sentences that both have translated
    unchanged: int  # number of sentences whose two translations have equal tokens
    tested: int = 0  # number of sentences with a reference translation
    bleu: _Number | None = None  # BLEU of the int8 translations of the tested sentences, 0 … 100
    fp32_bleu: _Number | None = None  # BLEU of the fp32 translations of the tested sentences, 0 … 100


class QualityEstimation(_Part, frozen=True):
    """How the mean probability of a translation's tokens becomes an estimate of its quality; see `core.quality`."""

    weight: Annotated[float, Meta(gt=0, le=10)]  # of the mean probability's log-odds
    bias: Annotated[float, Meta(ge=-100, le=100)]  # what is added to them. The sum is the log-odds of the estimate
    fitted: _Positive  # number of sentences on which weight and bias were found
    tested: _Positive  # number of other sentences, on which the estimates were compared with chrF
    correlation: Annotated[float, Meta(ge=-1, le=1)]  # Pearson's correlation of estimate and chrF there
    mean_error: Annotated[float, Meta(ge=0, le=1)]  # mean distance of estimate and chrF there, both 0 … 1


class Provenance(_Part, frozen=True):
    """Where a model comes from."""

    checkpoint: str
    attribution: str  # whom to credit for the data
    training: dict[str, Any]  # what the checkpoint says of its training
    model: dict[str, Any]  # the model's whole configuration, of which `translane export` makes the model again
    exporter: dict[str, str]  # the versions of the programs that wrote the bundle


class FileEntry(_Part, frozen=True):
    """Size [bytes] and digest of a file of the bundle."""

    size: Annotated[int, Meta(ge=0, le=2**50)]
    sha256: Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]


class Manifest(_Part, frozen=True, kw_only=True):
    """The content of `manifest.json`."""

    schema_version: Literal[6] = SCHEMA_VERSION
    name: Annotated[str, Meta(pattern=rf"^{MODEL_NAME}\Z", max_length=LONGEST_MODEL_NAME)]
    version: str
    source_languages: _Texts
    target_languages: _Texts
    language_templates: LanguageTemplates = LanguageTemplates()
    architecture: Architecture
    precision: Precision
    weight_storage: Literal["float32", "float16", "bfloat16", "int8"]
    special_ids: SpecialIds
    limits: ModelLimits
    decoding_defaults: DecodingDefaults
    tokenizer: TokenizerEntry
    graphs: Graphs
    alignment: Alignment | None = None
    # symbols that the model has learnt to copy: each is one token of either vocabulary; see `text.stand_ins`
    stand_ins: tuple[str, ...] = ()
    shortlist: str | None = None  # the file with the shortlist; see `translane_server.bundle.shortlist`
    license: str
    provenance: Provenance
    parity: Parity | None
    quality: Quality | None = None
    quality_estimation: QualityEstimation | None = None
    files: dict[str, FileEntry]

    def __post_init__(self) -> None:
        for check in (_shown_texts, _numbers, _templates, _parts_of_graphs, _names_of_files):
            for problem in check(self):
                raise ValueError(problem)

    @property
    def languages(self) -> Languages:
        """The languages of the model, and how the model is told a language."""
        return Languages(source=self.source_languages, target=self.target_languages, templates=self.language_templates)

    @property
    def model_files(self) -> list[str]:
        """The files of the graphs and their weights. Others are the tokenizer's, or a text for people."""
        return [name for name in self.files if name not in self.tokenizer.files and not name.endswith(".md")]


# What is wrong between the parts of a manifest: each function yields sentences, of which the first one is told.


def _shown_texts(manifest: Manifest) -> Iterator[str]:
    """Logs, metrics and clients show these texts."""
    for name in ("version", "license", "source_languages", "target_languages", "stand_ins"):
        value = getattr(manifest, name)
        for text in [value] if isinstance(value, str) else value:
            if len(text) > _MOST_CHARACTERS:
                yield f"{name}: it has {len(text):,} characters, and at most {_MOST_CHARACTERS:,} are allowed"
            if not text.isprintable():
                yield f"{name}: it has control characters"


def _numbers(manifest: Manifest) -> Iterator[str]:
    ids, sources, targets = manifest.special_ids, *_vocabularies(manifest)
    if ids.pad >= sources:
        yield f"special_ids.pad: {ids.pad} is not one of {sources} source ids"
    if ids.unk >= max(sources, targets):
        yield f"special_ids.unk: {ids.unk} is not one of {max(sources, targets)} ids"
    for name in ("bos", "eos", "decoder_start"):
        if (number := getattr(ids, name)) >= targets:
            yield f"special_ids.{name}: {number} is not one of {targets} target ids"


def _templates(manifest: Manifest) -> Iterator[str]:
    templates, (sources, targets) = manifest.language_templates, _vocabularies(manifest)
    pairs = templates.pair_prefixes
    for side, tags, tokens_of, named in (
        ("source", manifest.source_languages, templates.source, pairs),
        ("target", manifest.target_languages, templates.target, chain.from_iterable(pairs.values())),
    ):
        if unknown := sorted({*tokens_of, *named} - set(tags)):
            yield f"language_templates: {unknown[0]} is not one of {side}_languages"
        for tag, tokens in tokens_of.items():
            wrong = [id_ for id_ in (*tokens.source_prefix, *tokens.source_suffix) if id_ >= sources]
            wrong += [id_ for id_ in tokens.forced if id_ >= targets]
            if wrong:
                yield f"language_templates.{side}.{tag}: the model has no id {wrong[0]}"


def _parts_of_graphs(manifest: Manifest) -> Iterator[str]:
    graphs, sizes, precision = manifest.graphs, manifest.architecture, manifest.precision
    alignment, blocks, shortlist = manifest.alignment, graphs.vocabulary_blocks, manifest.shortlist
    if (alignment is None) != (graphs.alignment is None):
        yield "alignment: must be given together with graphs.alignment"
    if alignment:
        if alignment.layer >= sizes.decoder_layers:
            yield f"alignment.layer: {alignment.layer} is not one of {sizes.decoder_layers} decoder layers"
        if len(set(alignment.heads)) < len(alignment.heads) or not set(alignment.heads) <= set(range(sizes.heads)):
            yield f"alignment.heads: {list(alignment.heads)} must be distinct and among {sizes.heads} heads"
    if any(tensor.name == "num_blocks" for tensor in graphs.decoder.inputs) != (blocks is not None):
        yield "graphs.vocabulary_blocks: must be given together with the decoder's input num_blocks"
    if (blocks or 0) > sizes.target_vocab_size:
        yield f"graphs.vocabulary_blocks: {blocks} exceeds the size of the target vocabulary"
    if precision in ("fp16", "bf16") and graphs.decoder.file.endswith(".onnx") and graphs.greedy is None:
        yield f"graphs.greedy: it is missing, and {precision} bundles have one"
    if (shortlist is None) != (graphs.shortlist is None):
        yield "shortlist: must be given together with graphs.shortlist"
    if shortlist is None and manifest.decoding_defaults.use_shortlist is not None:
        yield "decoding_defaults.use_shortlist: the bundle has no shortlist"
    if shortlist is not None and precision not in ("fp32", "int8"):
        yield f"shortlist: {precision} bundles have none"
    wanted = COMPUTED_IN[precision]
    for tensor in graphs.decoder.inputs:
        if tensor.name.startswith("self_") and tensor.dtype != wanted:
            yield f"graphs.decoder: {tensor.name} is {tensor.dtype}, and precision {precision} computes in {wanted}"


def _names_of_files(manifest: Manifest) -> Iterator[str]:
    graphs = manifest.graphs
    used = (graphs.encoder, graphs.decoder, graphs.greedy, graphs.alignment, graphs.shortlist)
    named = {*manifest.tokenizer.files, *(graph.file for graph in used if graph), *filter(None, [manifest.shortlist])}
    if missing := sorted(named - manifest.files.keys()):
        yield f"files: no entry for {', '.join(missing)}"
    for name in manifest.files:
        path = Path(name)
        if not name.isprintable() or len(name) > _MOST_CHARACTERS:
            yield f"files: {shown(name)} is no name of a file"
        if path.is_absolute() or ".." in path.parts or "\\" in name:
            yield f"files: {name!r} leaves the bundle"


def _vocabularies(manifest: Manifest) -> tuple[int, int]:
    return manifest.architecture.source_vocab_size, manifest.architecture.target_vocab_size
