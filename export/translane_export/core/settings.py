"""The settings of `translane export`, `translane explain` and `translane shortlist`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_args

import msgspec
from pydantic import BeforeValidator, Field, InstanceOf, field_validator

from translane.arguments import hint
from translane_export.core.languages import is_tag
from translane_server.bundle.bundle import problem_of
from translane_server.bundle.manifest import Precision, SearchDefaults
from translane_server.core.machine import available_cpus
from translane_server.core.terminal import shown
from translane_server.settings.loader import Flag, Settings
from translane_server.text.language_tags import LONGEST_TAG

ENV_PREFIX = "TRANSLANE_EXPORT_"

_GREEDY = ("", "none")
# Words for flags; "null", which msgspec takes for a value that is not set, is none.
_FLAGS = {"yes": "true", "on": "true", "no": "false", "off": "false", "null": "'null'"}


def read_defaults(value: Any) -> Any:
    """Turn text such as beam_size=4,length_penalty=0.6, or a table, into `SearchDefaults`. Others stay as they are.

    Raises:
        ValueError: an item is not NAME=VALUE, its name is unknown or occurs twice, or its value is wrong.
    """
    if not isinstance(value, str | dict):
        return value
    found: dict[str, Any] = _items(value) if isinstance(value, str) else dict(value)
    known = SearchDefaults.__struct_fields__
    for name, text in found.items():
        if name not in known:
            raise ValueError(f"{shown(name)} is none of {', '.join(known)}{hint(name, known)}")
        if isinstance(text, str):
            found[name] = _FLAGS.get(text.lower(), text)
    try:
        return msgspec.convert(found, SearchDefaults, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(problem_of(error).replace(" | null", "").removesuffix(", got str")) from None


def _items(text: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if text.strip() in _GREEDY:
        return found
    for item in text.split(","):
        name, equals, value = map(str.strip, item.partition("="))
        if not equals:
            raise ValueError(f"{shown(item)} has no value: write NAME=VALUE, such as beam_size=4")
        if name == "max_length":
            raise ValueError("max_length has a setting of its own, --default-max-length")
        if name in found:
            raise ValueError(f"{name} occurs twice")
        found[name] = value
    return found


PRECISIONS: tuple[Precision, ...] = get_args(Precision)
Format = Literal["onnx", "torchscript"]


class ExportSettings(Settings):
    """Exports a trained checkpoint as a model bundle. `translane explain BUNDLE TEXT` looks inside a bundle."""

    short_help: ClassVar[tuple[str, ...]] = (
        *("precision", "force", "threads", "name", "license", "source_language", "target_language", "languages"),
        *("decoding_defaults", "shortlist", "test"),
    )

    checkpoint: Annotated[Path, Flag(positional=True)]
    """Folder of the checkpoint: of translane train, Hugging Face, fairseq, OpenNMT-py or Marian, or a bundle; or a
    model of Firefox, such as firefox:de-en."""
    output: Annotated[Path, Flag("FOLDER", short="-o")]
    """Folder to write the bundle to; it appears once it is complete."""
    precision: Annotated[str, Flag("NAMES")] = "fp32"
    """What the model computes in: fp32, int8 (for CPUs), fp16 or bf16 (both for CUDA). Several, such as fp16,int8, make
    a folder with a bundle for each; the server takes the one for its device. By default that of a bundle, int8 for a
    checkpoint that is int8 itself, and else fp32."""
    format: Format = "onnx"
    """The server reads onnx; torchscript is for LibTorch programs."""
    weight_storage: Literal["float32", "float16"] | None = None
    """Type the weights are stored in; float16 halves an fp32 bundle. By default fp32's own."""
    force: bool = False
    """Replace the bundle that is there."""
    threads: int | None = Field(default=None, ge=1)
    """Threads to compute with; by default the CPUs granted."""
    name: Annotated[str | None, Flag(heading="the bundle's description")] = Field(
        default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
    )
    """What clients call the model; by default the languages, such as zh-en."""
    model_version: str = Field(default="1", min_length=1)
    """Version of the model."""
    license: str | None = Field(default=None, min_length=1)
    """Licence of the model (SPDX); by default that of its data."""
    attribution: str = ""
    """Whom to credit for the data, for the model card."""
    model_card: Annotated[Path | None, Flag("FILE")] = None
    """Markdown file to use as the model card."""
    source_language: Annotated[str | None, Flag("TAG", heading="languages and limits")] = None
    """BCP-47 tag of the language it translates from, for checkpoints that do not say or say otherwise."""
    target_language: Annotated[str | None, Flag("TAG")] = None
    """BCP-47 tag of the language it translates to."""
    languages: Annotated[tuple[str, ...], Flag("TAGS")] = ()
    """Languages to keep of a model of many, such as de,en; by default all."""
    vocabulary_from: Annotated[tuple[Path, ...], Flag("FILES")] = ()
    """Text files of the languages, one sentence a line: pieces that their sentences do not use leave the vocabulary,
    but for single characters. By default all pieces stay."""
    source_prefix: str | None = None
    """Text before every source, such as "translate English to German: " for T5; by default what the checkpoint says."""
    max_source_tokens: int | None = Field(default=None, ge=2)
    """Longest source the bundle promises [tokens]; by default the model's limit."""
    max_target_tokens: int | None = Field(default=None, ge=1)
    """Longest translation the bundle promises [tokens]; by default the model's limit."""
    default_max_length: int = Field(default=256, ge=1)
    """Longest translation where a request sets none [tokens]."""
    default_length_factor: float | None = Field(default=None, gt=0, le=1_000)
    """Longest translation where a request sets none, as tokens for each token of the source; by default what the
    checkpoint says."""
    decoding_defaults: Annotated[
        InstanceOf[SearchDefaults] | None, BeforeValidator(read_defaults), Flag("NAME=VALUE,…")
    ] = None
    """Search of requests that set no search, such as beam_size=4,length_penalty=0.6; none is greedy search; by default
    as the checkpoint's generation_config.json says."""
    shortlist: Annotated[Path | None, Flag("FILE")] = None
    """File of the target pieces of each source piece, such as `translane shortlist` writes; requests that use_shortlist
    generate no others."""
    firefox_models: Annotated[str | None, Flag("URL")] = None
    """List of Firefox's models: Mozilla's, another collection of Remote Settings, a .json file, or its folder."""
    samples: Annotated[Path | None, Flag("FILE", heading="verification")] = None
    """Text file of source sentences, one a line, to verify with and to choose the alignment layer by; by default the
    checkpoint's."""
    alignment_layer: int | None = Field(default=None, ge=0)
    """Decoder layer whose cross-attention aligns words, from 0; by default the exporter chooses."""
    test: Annotated[Path | None, Flag("FILE")] = None
    """int8: parallel text (TSV of source and reference, gzipped or not) to score translations with, before and
    after."""
    max_bleu_loss: float = Field(default=0.5, ge=0)
    """int8: how much BLEU may be lost on --test."""
    quality_data: Annotated[Path | None, Flag("FILE")] = None
    """Parallel text (TSV of source and reference, gzipped or not) to calibrate the estimated quality with; 100
    sentences or more."""

    @property
    def computing_threads(self) -> int:
        """Threads of PyTorch and of ONNX Runtime."""
        return self.threads or available_cpus()

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """Each precision there is to be a bundle of."""
        return tuple(known for name in self.precision.split(",") for known in PRECISIONS if known == name)

    @field_validator("precision")
    @classmethod
    def _check_precisions(cls, value: str) -> str:
        names = value.split(",")
        if not set(names) <= set(PRECISIONS) or len(set(names)) < len(names):
            raise ValueError(f"it should be one of {', '.join(PRECISIONS)}, or different ones such as fp16,int8")
        return value

    @field_validator("source_language", "target_language")
    @classmethod
    def _check_tag(cls, value: str | None) -> str | None:
        if value is not None and not is_tag(value):
            raise ValueError("it should be a BCP-47 tag such as zh or pt-BR")
        return value

    @field_validator("languages")
    @classmethod
    def _check_languages(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(0 < len(tag) <= LONGEST_TAG for tag in value):
            raise ValueError("it should be tags of languages, such as de,en")
        return value


EXPLAIN_PREFIX = "TRANSLANE_EXPLAIN_"


class ExplainSettings(Settings):
    """Shows what a bundle's model does with one sentence: attention, positions, operators and shapes."""

    bundle: Annotated[Path, Flag(positional=True)]
    """Folder of a model bundle with ONNX graphs."""
    text: Annotated[str, Flag(positional=True)] = Field(min_length=1)
    """The sentence to translate."""
    output: Annotated[Path, Flag("FOLDER", short="-o")]
    """Folder to write the page to; it appears once it is complete."""
    force: bool = False
    """Replace an earlier output of this command."""
    threads: int | None = Field(default=None, ge=1, le=1024)
    """Threads to compute with; by default the CPUs granted."""
    beam_size: Annotated[int, Flag(heading="translation")] = Field(default=1, ge=1, le=64)
    """Number of beams; 1 is greedy search."""
    max_length: int | None = Field(default=None, ge=1)
    """Longest translation [tokens]; by default the bundle's default."""
    source_language: Annotated[str, Flag("TAG")] = ""
    """Language of the text, for a model of several."""
    target_language: Annotated[str, Flag("TAG")] = ""
    """Language to translate to, for a model of several."""

    @property
    def computing_threads(self) -> int:
        """Threads of PyTorch and of ONNX Runtime."""
        return self.threads or available_cpus()


SHORTLIST_PREFIX = "TRANSLANE_SHORTLIST_"


class ShortlistSettings(Settings):
    """Finds which target pieces translate each source piece, from parallel text, for `translane export --shortlist`."""

    checkpoint: Annotated[Path, Flag(positional=True)]
    """Folder of the checkpoint or bundle whose pieces are meant."""
    text: Annotated[Path, Flag("FILE")]
    """Parallel text (TSV of source and target, gzipped or not)."""
    output: Annotated[Path, Flag("FILE", short="-o")]
    """File to write the rules to, in the format of CTranslate2's vmap."""
    force: bool = False
    """Replace the file that is there."""
    always: int = Field(default=500, ge=1, le=1_000_000)
    """Most frequent target pieces, which every translation may use."""
    max_per_piece: int = Field(default=50, ge=1, le=10_000)
    """Largest number of target pieces of a source piece."""
    min_probability: float = Field(default=0.001, ge=0, le=1)
    """Least probability of a target piece, given the source piece."""
    iterations: int = Field(default=5, ge=1, le=100)
    """Iterations of expectation maximization."""
    max_pairs: int = Field(default=1_000_000, ge=1, le=100_000_000)
    """Sentence pairs to read, the first ones of the file."""
    source_language: Annotated[str, Flag("TAG")] = ""
    """Language of the source texts, for a model of several."""
    target_language: Annotated[str, Flag("TAG")] = ""
    """Language of the target texts, for a model of several."""
