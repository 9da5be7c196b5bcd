"""The model bundle: a folder that `translane-export` writes and the server reads, described by its manifest.

Loading checks everything that can be checked without running the model: the schema version, every field, and the
sha256 of every file. What is wrong is one sentence.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from translane_server.errors import BundleError

SCHEMA_VERSION = 2
_READABLE = (1, 2)
MANIFEST = "manifest.json"

Precision = Literal["fp32", "fp16", "int8"]


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


class SentencePieceTokenizer(_Model):
    """Two SentencePiece models; the same file where the vocabulary is joint. Sources end with `eos`."""

    kind: Literal["sentencepiece"] = "sentencepiece"
    source: str
    target: str


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
    """The two graphs a translation runs, and the one that gives attention weights."""

    encoder: Graph
    decoder: Graph
    alignment: Graph | None = None


class Alignment(_Model):
    """Whose cross-attention tells which source token a target token comes from: some heads of a decoder layer.

    Both count from 0; the heads' weights are averaged.
    """

    layer: int = Field(ge=0)
    heads: tuple[int, ...] = Field(min_length=1)


class Parity(_Model):
    """How the exported graphs compare with the PyTorch model, over greedy decodes by the server's own backend.

    Attention weights are compared where the bundle gives them.
    """

    sentences: int
    tokens: int
    max_logit_difference: float
    tolerance: float
    token_mismatches: int
    max_attention_difference: float | None = None
    attention_tolerance: float | None = None


class FileEntry(_Model):
    """Size [bytes] and digest of a file of the bundle."""

    size: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Manifest(_Model):
    """`manifest.json`."""

    schema_version: Literal[1, 2] = 2
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    version: str
    source_languages: tuple[str, ...] = Field(min_length=1)
    target_languages: tuple[str, ...] = Field(min_length=1)
    architecture: Architecture
    precision: Precision
    weight_storage: Literal["float32", "float16"]
    special_ids: SpecialIds
    limits: ModelLimits
    decoding_defaults: DecodingDefaults
    tokenizer: SentencePieceTokenizer
    graphs: Graphs
    alignment: Alignment | None = None
    license: str
    provenance: dict[str, Any]
    parity: Parity | None
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
    def _named_files_are_listed(self) -> Manifest:
        named = {self.graphs.encoder.file, self.graphs.decoder.file, self.tokenizer.source, self.tokenizer.target}
        if self.graphs.alignment:
            named.add(self.graphs.alignment.file)
        if missing := sorted(named - self.files.keys()):
            raise ValueError(f"files: no entry for {', '.join(missing)}")
        for name in self.files:
            path = Path(name)
            if path.is_absolute() or ".." in path.parts or "\\" in name:
                raise ValueError(f"files: {name!r} leaves the bundle")
        return self


class Bundle:
    """A checked bundle: its folder and its manifest."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def path(self, name: str) -> Path:
        """Where the file `name` of the manifest is."""
        return self.folder / name


def load_bundle(folder: Path) -> Bundle:
    """Read and check the bundle in `folder`.

    Raises:
        BundleError: it is missing, corrupted, tampered with, or of a schema version this server does not read.
    """
    manifest = read_manifest(folder)
    for name, entry in sorted(manifest.files.items()):
        _check_file(folder, name, entry)
    return Bundle(folder, manifest)


def read_manifest(folder: Path) -> Manifest:
    """Read `folder`'s manifest without looking at the files it lists.

    Raises:
        BundleError: the manifest is missing, malformed, or of an unsupported schema version.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise BundleError(f"model bundle {folder}: there is no such folder")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"model bundle {folder}: it has no {MANIFEST}; translane-export writes bundles") from None
    except OSError as error:
        raise BundleError(f"model bundle {folder}: {MANIFEST} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BundleError(f"model bundle {folder}: {MANIFEST} is not JSON: {error}") from None
    version = content.get("schema_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or isinstance(version, bool):
        raise BundleError(f"model bundle {folder}: {MANIFEST} has no schema_version")
    if version not in _READABLE:
        hint = "upgrade the server" if version > SCHEMA_VERSION else "export the checkpoint again with translane-export"
        raise BundleError(
            f"model bundle {folder}: this server reads schema versions"
            f" {' and '.join(map(str, _READABLE))}, not {version}; {hint}"
        )
    try:
        return Manifest.model_validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        raise BundleError(f"model bundle {folder}: {MANIFEST}: {_first_problem(error)}") from None


def file_entry(path: Path) -> FileEntry:
    """Size and digest of the file at `path`."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    return FileEntry(size=path.stat().st_size, sha256=digest.hexdigest())


def _check_file(folder: Path, name: str, expected: FileEntry) -> None:
    path = folder / name
    try:
        if path.stat().st_size == expected.size and file_entry(path).sha256 == expected.sha256:
            return
    except FileNotFoundError:
        raise BundleError(f"model bundle {folder}: {name} is missing") from None
    except OSError as error:
        raise BundleError(f"model bundle {folder}: {name} cannot be read: {error.strerror}") from None
    raise BundleError(
        f"model bundle {folder}: {name} is not the file that was exported ({MANIFEST} lists another size or sha256)"
    )


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {problem['msg']}{more}" if where else f"{problem['msg']}{more}"
