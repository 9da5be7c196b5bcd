"""What the manifest of a model bundle says: every field, and which values fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 5
READABLE_VERSIONS = (1, 2, 3, 4, 5)

Precision = Literal["fp32", "fp16", "bf16", "int8"]
# What attention and norms compute in, and self-attention's keys and values are.
COMPUTED_IN: dict[Precision, str] = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "int8": "float32"}
_KEY_VALUE_TYPES = ("float32", "float16", "bfloat16", "int8")


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Architecture(_Model):
    """Sizes the server needs to lay out memory, and those people want to know."""

    family: str
    encoder_layers: int = Field(ge=1)
    decoder_layers: int = Field(ge=1)
    d_model: int = Field(ge=1)
    heads: int = Field(ge=1)
    head_size: int = Field(ge=8, multiple_of=8)
    ffn_size: int = Field(ge=1)
    source_vocab_size: int = Field(ge=1)
    target_vocab_size: int = Field(ge=1)
    parameters: int = Field(ge=1)


class SpecialIds(_Model):
    """Ids with a meaning. The decoder is first fed `decoder_start`; generation ends with `eos`."""

    pad: int = Field(ge=0)
    unk: int = Field(ge=0)
    bos: int = Field(ge=0)
    eos: int = Field(ge=0)
    decoder_start: int = Field(ge=0)


class ModelLimits(_Model):
    """Longest source and target the model can take [tokens, end-of-sentence included]."""

    source_tokens: int = Field(ge=1)
    target_tokens: int = Field(ge=1)


class DecodingDefaults(_Model):
    """What an unset decoding option means."""

    max_length: int = Field(ge=1)


class SentencePieceTokenizerEntry(_Model):
    """Two SentencePiece models; the same file where the vocabulary is joint. Sources end with `eos`.

    Where the model numbers pieces in its own way, `source_ids` and `target_ids` are files that tell how: a JSON object
    of ids by piece. A piece that is not in it is unknown to the model.
    """

    kind: Literal["sentencepiece"] = "sentencepiece"
    source: str
    target: str
    source_ids: str | None = None
    target_ids: str | None = None
    source_eos: bool = True  # some models' sources have no end

    @property
    def files(self) -> set[str]:
        """The files of the bundle it is made of."""
        return {self.source, self.target} | {name for name in (self.source_ids, self.target_ids) if name}


class JsonTokenizerEntry(_Model):
    """A `tokenizer.json` of the library tokenizers, for both sides, less its template: sources end with `eos`."""

    kind: Literal["tokenizers"] = "tokenizers"
    file: str
    source_eos: bool = True

    @property
    def files(self) -> set[str]:
        """The files of the bundle it is made of."""
        return {self.file}


TokenizerEntry = Annotated[SentencePieceTokenizerEntry | JsonTokenizerEntry, Field(discriminator="kind")]

_Ids = tuple[Annotated[int, Field(ge=0)], ...]


class LanguageTokens(_Model):
    """Tokens that tell a model one of its languages.

    Attributes:
        source_prefix: source ids before the text; a target language's come after the source language's.
        source_suffix: source ids after the end-of-sentence token.
        forced: target ids that the decoder is made to generate first.
    """

    source_prefix: _Ids = ()
    source_suffix: _Ids = ()
    forced: _Ids = ()


class LanguageTemplates(_Model):
    """How a model is told its languages; by default not at all, as it translates from one to one.

    Attributes:
        source: tokens for source languages, by tag; none for those that are not here.
        target: tokens for target languages.
        text_prefix: what comes before each source text.
        pair_prefixes: what comes there instead, by source and by target language. Where there are any, the model
            translates between these pairs alone.
    """

    source: dict[str, LanguageTokens] = {}
    target: dict[str, LanguageTokens] = {}
    text_prefix: str = ""
    pair_prefixes: dict[str, dict[str, str]] = {}


class Languages(_Model):
    """Languages of a model, by the tags its users know them by, and how it is told them."""

    source: tuple[str, ...] = Field(min_length=1)
    target: tuple[str, ...] = Field(min_length=1)
    templates: LanguageTemplates = LanguageTemplates()


class GraphTensor(_Model):
    """An input or output of a graph; a dimension is a number or a name."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Graph(_Model):
    """An ONNX graph of the bundle and its signature."""

    file: str
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]


class Graphs(_Model):
    """The two graphs a translation runs, and those that some bundles have beside them.

    Attributes:
        encoder: sources to the keys and values of cross-attention.
        decoder: one step, and all that may be asked of it.
        greedy: one step that gives each row's best token and nothing else.
        alignment: a step's query to attention weights.
        vocabulary_blocks: how many blocks the decoder searches the vocabulary by, where it has an input num_blocks: the
            lesser of this and num_candidates.
    """

    encoder: Graph
    decoder: Graph
    greedy: Graph | None = None
    alignment: Graph | None = None
    vocabulary_blocks: int | None = Field(default=None, ge=1)

    @property
    def cross_dtype(self) -> str:
        """Of what type the keys and values of cross-attention are."""
        return self.encoder.outputs[0].dtype

    @property
    def returns_cross(self) -> bool:
        """Whether a step returns these keys and values, too, as it was given them."""
        return any(tensor.name.startswith("present_cross_") for tensor in self.decoder.outputs)

    @model_validator(mode="after")
    def _keys_and_values_are_numbers(self) -> Graphs:
        types = sorted({tensor.dtype for tensor in self.encoder.outputs})
        if len(types) != 1 or types[0] not in _KEY_VALUE_TYPES:
            raise ValueError(
                "encoder.outputs: keys and values are all float32, float16, bfloat16 or int8,"
                f" not {', '.join(types) or 'none'}"
            )
        return self


class Alignment(_Model):
    """Whose cross-attention tells which source token a target token comes from: some heads of a decoder layer.

    Both count from 0; the heads' weights are averaged.
    """

    layer: int = Field(ge=0)
    heads: tuple[int, ...] = Field(min_length=1)


class Activation(_Model):
    """A number that a model computes: how large it is, without its sign, and in which tensor.

    `tensor` is such as "output of encoder.layers.0.self_attention.v_proj", by the names of the PyTorch model's modules.
    """

    tensor: str
    value: float


class Parity(_Model):
    """How the exported graphs compare with the PyTorch model, over greedy decodes by the server's own backend.

    Attention weights are compared where the bundle gives them. The largest activation is that of an fp16 bundle, whose
    numbers have to stay below 65,504.
    """

    sentences: int
    tokens: int
    max_logit_difference: float
    tolerance: float
    token_mismatches: int
    max_attention_difference: float | None = None
    attention_tolerance: float | None = None
    max_activation: Activation | None = None


class Quality(_Model):
    """What an int8 bundle's translations are like beside those of the float32 one it is made of.

    Attributes:
        sentences: how many were translated by both.
        unchanged: how many of these translations are the same tokens.
        tested: how many of them have a reference.
        bleu: of these, 0 to 100.
        fp32_bleu: of these, in float32.
    """

    sentences: int
    unchanged: int
    tested: int = 0
    bleu: float | None = None
    fp32_bleu: float | None = None


class FileEntry(_Model):
    """Size [bytes] and digest of a file of the bundle."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(_Model):
    """`manifest.json`."""

    schema_version: Literal[1, 2, 3, 4, 5] = 5
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str
    source_languages: tuple[str, ...] = Field(min_length=1)
    target_languages: tuple[str, ...] = Field(min_length=1)
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
    license: str
    provenance: dict[str, Any]
    parity: Parity | None
    quality: Quality | None = None
    files: dict[str, FileEntry]

    @model_validator(mode="after")
    def _ids_are_in_the_vocabularies(self) -> Manifest:
        ids, sizes = self.special_ids, self.architecture
        if ids.pad >= sizes.source_vocab_size:
            raise ValueError(f"special_ids.pad: {ids.pad} is not one of {sizes.source_vocab_size} source ids")
        for name in ("bos", "eos", "decoder_start"):
            if (number := getattr(ids, name)) >= sizes.target_vocab_size:
                raise ValueError(f"special_ids.{name}: {number} is not one of {sizes.target_vocab_size} target ids")
        return self

    @model_validator(mode="after")
    def _templates_fit(self) -> Manifest:
        sizes = self.architecture
        pairs = self.language_templates.pair_prefixes
        if self.schema_version == 1 and self.language_templates != LanguageTemplates():
            raise ValueError("language_templates: schema version 1 has none")
        for side, tags, templates, named in (
            ("source", self.source_languages, self.language_templates.source, list(pairs)),
            (
                "target",
                self.target_languages,
                self.language_templates.target,
                [tag for by in pairs.values() for tag in by],
            ),
        ):
            if unknown := sorted({*templates, *named} - set(tags)):
                raise ValueError(f"language_templates: {unknown[0]} is not one of {side}_languages")
            for tag, tokens in templates.items():
                wrong = [
                    id_ for id_ in (*tokens.source_prefix, *tokens.source_suffix) if id_ >= sizes.source_vocab_size
                ]
                wrong += [id_ for id_ in tokens.forced if id_ >= sizes.target_vocab_size]
                if wrong:
                    raise ValueError(f"language_templates.{side}.{tag}: the model has no id {wrong[0]}")
        return self

    @model_validator(mode="after")
    def _alignment_is_complete(self) -> Manifest:
        alignment, sizes = self.alignment, self.architecture
        if (alignment is None) != (self.graphs.alignment is None):
            raise ValueError("alignment: it and graphs.alignment go together")
        if alignment is None:
            return self
        if self.schema_version == 1:
            raise ValueError("alignment: schema version 1 has none")
        if alignment.layer >= sizes.decoder_layers:
            raise ValueError(f"alignment.layer: {alignment.layer} is not one of {sizes.decoder_layers} decoder layers")
        if len(set(alignment.heads)) < len(alignment.heads) or not set(alignment.heads) <= set(range(sizes.heads)):
            raise ValueError(f"alignment.heads: {list(alignment.heads)} are not different ones of {sizes.heads} heads")
        return self

    @model_validator(mode="after")
    def _cuda_form_is_complete(self) -> Manifest:
        graphs = self.graphs
        if self.schema_version < 5 and (graphs.greedy or graphs.vocabulary_blocks):
            raise ValueError(f"graphs.greedy: schema version {self.schema_version} has none")
        takes_blocks = any(tensor.name == "num_blocks" for tensor in graphs.decoder.inputs)
        if takes_blocks != (graphs.vocabulary_blocks is not None):
            raise ValueError("graphs.vocabulary_blocks: it and the decoder's input num_blocks go together")
        if (graphs.vocabulary_blocks or 0) > self.architecture.target_vocab_size:
            raise ValueError(
                f"graphs.vocabulary_blocks: {graphs.vocabulary_blocks} are more than there are ids of the vocabulary"
            )
        for_cuda = self.schema_version >= 5 and self.precision in ("fp16", "bf16")
        if for_cuda and graphs.decoder.file.endswith(".onnx") and graphs.greedy is None:
            raise ValueError(f"graphs.greedy: it is missing, and {self.precision} bundles have one")
        return self

    @model_validator(mode="after")
    def _tensors_are_of_the_precision(self) -> Manifest:
        wanted = COMPUTED_IN[self.precision]
        for tensor in self.graphs.decoder.inputs:
            if tensor.name.startswith("self_") and tensor.dtype != wanted:
                raise ValueError(
                    f"graphs.decoder: {tensor.name} is {tensor.dtype}, and precision {self.precision} computes in"
                    f" {wanted}"
                )
        return self

    @model_validator(mode="after")
    def _named_files_are_listed(self) -> Manifest:
        named = {self.graphs.encoder.file, self.graphs.decoder.file, *self.tokenizer.files}
        named |= {graph.file for graph in (self.graphs.greedy, self.graphs.alignment) if graph}
        if missing := sorted(named - self.files.keys()):
            raise ValueError(f"files: no entry for {', '.join(missing)}")
        for name in self.files:
            path = Path(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name:
                raise ValueError(f"files: {name!r} leaves the bundle")
        return self

    @property
    def languages(self) -> Languages:
        """The model's languages, and how it is told them."""
        return Languages(source=self.source_languages, target=self.target_languages, templates=self.language_templates)
