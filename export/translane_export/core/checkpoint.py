"""The checkpoint folder: what training writes and the exporter reads.

::

    config.json        format and version, model sizes, languages, tokenizer files, how it was trained
    model.safetensors  the weights; tied ones once, their other names in the header
    source.spm target.spm, or source.json target.json: a tokenizer.json for each side
    samples.txt        source sentences of the validation split, one per line, for parity reports
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save

from translane_export.core.errors import ExportError
from translane_export.core.file_readers import check_weight, read_json, read_safetensors, read_text
from translane_export.core.ranges import Ranges
from translane_export.core.tokenizer_files import TokenizerFiles, json_files, sentencepiece_files
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import Languages, LanguageTemplates, LanguageTokens, Quality, QualityEstimation
from translane_server.bundle.shortlist import Shortlist
from translane_server.core.errors import SettingsError
from translane_server.core.files import flush, parse_json, replaced_whole
from translane_server.core.terminal import shown
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.languages import LanguagePair, LanguagePairs

FORMAT = "translane-checkpoint"
FORMAT_VERSION = 1

_CONFIG = "config.json"
_WEIGHTS = "model.safetensors"
_SAMPLES = "samples.txt"
TokenizerKind = Literal["sentencepiece", "tokenizers"]
_SUFFIXES: dict[TokenizerKind, str] = {"sentencepiece": "spm", "tokenizers": "json"}

_ENTRIES = {
    *(_CONFIG, _WEIGHTS, _SAMPLES),
    *(f"{side}.{suffix}" for side in ("source", "target") for suffix in _SUFFIXES.values()),
}


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A checkpoint in memory, whatever folder it was read from; the tokenizer may stay on disk.

    ``state_dict`` is complete: tied weights appear under each of their names and share memory.
    ``metadata`` is the "training" part of config.json: settings, steps, epochs, seed, scores, data licence.
    ``name`` and ``settings`` are for models that have been exported before: what the checkpoint was called then, and
    the exporter's settings by name, which hold where none are given. Empty: the folder's name, and the defaults.
    ``ranges`` and ``quality`` are what a model that has been quantized was quantized with, and what came of it: its
    weights are rounded already, and quantized again with these ranges it translates as before.
    ``shortlist`` is the checkpoint's own.
    ``left_out_search`` names what the checkpoint's own search does and the server's does not.
    ``quality_estimation`` is the calibration of a model that has been exported before.
    ``origins`` says for weights where in the checkpoint they are, as errors name them: file, and the name there.
    """

    config: TransformerConfig
    state_dict: dict[str, torch.Tensor]
    tokenizer: TokenizerFiles
    languages: Languages
    samples: tuple[str, ...] = ()
    metadata: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    ranges: Ranges | None = None
    quality: Quality | None = None
    quality_estimation: QualityEstimation | None = None
    origins: Mapping[str, str] = field(default_factory=dict)
    left_out_search: tuple[str, ...] = ()
    shortlist: Shortlist | None = None


def save_checkpoint(
    directory: Path,
    *,
    config: TransformerConfig,
    state_dict: Mapping[str, torch.Tensor],
    source_tokenizer: Path,
    target_tokenizer: Path,
    source_language: str,
    target_language: str,
    samples: tuple[str, ...],
    metadata: Mapping[str, Any],
    tokenizer_kind: TokenizerKind = "sentencepiece",
    source_start: bool = False,
    source_end: bool = True,
) -> None:
    """Write a checkpoint folder; a checkpoint already there is replaced only once the new one is complete on disk.

    Tied weights are stored once. Both tokenizers are files of the kind that manifests call ``tokenizer_kind``. Sources
    begin with the config's bos_id if there is a ``source_start``, and end with its eos_id if there is a ``source_end``.
    """
    new = directory.with_name(directory.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    source_name, target_name = (f"{side}.{_SUFFIXES[tokenizer_kind]}" for side in ("source", "target"))
    tokenizer: dict[str, Any] = {"kind": tokenizer_kind, "source": source_name, "target": target_name}
    if tokenizer_kind == "tokenizers":
        tokenizer |= {"source_start": source_start, "source_end": source_end}
    description = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "model": config.to_dict(),
        "source_language": source_language,
        "target_language": target_language,
        "tokenizer": tokenizer,
        "training": dict(metadata),
    }
    save_tensors(new / _WEIGHTS, state_dict)
    shutil.copyfile(source_tokenizer, new / source_name)
    shutil.copyfile(target_tokenizer, new / target_name)
    (new / _SAMPLES).write_text("".join(f"{sample}\n" for sample in samples), encoding="utf-8")
    (new / _CONFIG).write_text(json.dumps(description, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for file in new.iterdir():
        flush(file)
    _swap_in(new, directory)


def is_translane_checkpoint(folder: Path) -> bool:
    """Whether the folder's config.json names the format of Translane's own checkpoints."""
    try:
        return read_json(folder / _CONFIG).get("format") == FORMAT
    except ExportError:
        return False


def is_replaceable(folder: Path) -> bool:
    """Whether a checkpoint can be written here, and nothing but an older one is lost."""
    if not folder.is_dir():
        return not os.path.lexists(folder)
    names = {path.name for path in folder.iterdir()}
    return not names or (names <= _ENTRIES and is_translane_checkpoint(folder))


def load_checkpoint(directory: Path) -> Checkpoint:
    """Read a checkpoint folder.

    Raises:
        ExportError: a file is missing, corrupt, of an unknown version, or disagrees with the others.
    """
    description = _read_description(directory / _CONFIG)
    try:
        config = TransformerConfig.from_dict(description["model"])
        tokenizer = description["tokenizer"]
        if tokenizer["kind"] not in _SUFFIXES:
            raise ValueError(f"tokenizer kind {shown(tokenizer['kind'])} is not supported")
        source_start, source_end = tokenizer.get("source_start", False), tokenizer.get("source_end", True)
        if not isinstance(source_start, bool) or not isinstance(source_end, bool):
            raise ValueError("source_start and source_end of the tokenizer are not true or false")
        for name in (tokenizer["source"], tokenizer["target"]):
            if Path(name).name != name:
                raise ValueError(f"the tokenizer's file {shown(name)} is not a file beside it")
        source_tokenizer, target_tokenizer = directory / tokenizer["source"], directory / tokenizer["target"]
        source_language = str(description["source_language"])
        prefix = LanguageTokens(source_prefix=(config.bos_id,) if source_start else ())
        languages = Languages(
            source=(source_language,),
            target=(str(description["target_language"]),),
            templates=LanguageTemplates(source={source_language: prefix} if prefix.source_prefix else {}),
        )
        metadata = dict(description["training"])
    except KeyError as error:
        raise ExportError(f"{directory / _CONFIG}: the key {error} is missing") from error
    except (TypeError, ValueError) as error:
        raise ExportError(f"{directory / _CONFIG}: {error}") from error
    for path in (source_tokenizer, target_tokenizer):
        if not path.is_file():
            raise ExportError(f"{path}: the file is missing")
    if tokenizer["kind"] == "tokenizers":
        files = json_files(source_tokenizer, target_tokenizer, source_eos=source_end)
    else:
        files = sentencepiece_files(source_tokenizer, target_tokenizer)
    state_dict = load_tensors(directory / _WEIGHTS).tensors
    for name, tensor in state_dict.items():
        check_weight(tensor, f"{directory / _WEIGHTS}: the tensor {name}")
    return Checkpoint(
        config=config,
        state_dict=state_dict,
        origins={name: f"{directory / _WEIGHTS}: the tensor {name}" for name in state_dict},
        tokenizer=files,
        languages=languages,
        samples=tuple(read_text(directory / _SAMPLES).splitlines()),
        metadata=metadata,
    )


@dataclass(frozen=True)
class StoredTensors:
    """What a safetensors file holds: tensors by name, tied ones under each name, and the note its writer left."""

    tensors: dict[str, torch.Tensor]
    note: str


def save_tensors(path: Path, state_dict: Mapping[str, torch.Tensor], note: str = "") -> None:
    """Write tensors as safetensors, those that share memory once; the file appears complete or not at all."""
    kept: dict[tuple[int, torch.Size, tuple[int, ...]], str] = {}
    tensors: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    for name, tensor in state_dict.items():
        owner = kept.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name) if tensor.numel() else name
        if owner == name:
            tensors[name] = tensor.detach().cpu().contiguous()
        else:
            aliases[name] = owner
    with replaced_whole(path) as new:
        # save_file would make the file readable by its owner alone.
        new.write_bytes(save(tensors, metadata={"format": "pt", "tied": json.dumps(aliases), "note": note}))


def load_tensors(path: Path) -> StoredTensors:
    """Read what `save_tensors` wrote. Raises ExportError naming the file."""
    tensors, header = read_safetensors(path)
    try:
        aliases = {str(name): str(owner) for name, owner in parse_json(header.get("tied", "{}").encode()).items()}
    except (ValueError, AttributeError):
        raise ExportError(f"{path}: its header does not say which weights are tied") from None
    for name, owner in aliases.items():
        if owner not in tensors:
            raise ExportError(f"{path}: the weight {owner}, which {name} is tied to, is missing")
        tensors[name] = tensors[owner]
    return StoredTensors(tensors, header.get("note", ""))


def _read_description(path: Path) -> dict[str, Any]:
    description = read_json(path)
    if description.get("format") != FORMAT:
        raise ExportError(f'{path}: not a Translane checkpoint (its "format" is not "{FORMAT}")')
    if description.get("format_version") != FORMAT_VERSION:
        version = description.get("format_version")
        raise ExportError(
            f"{path}: format version {shown(version)} is not supported; this release reads {FORMAT_VERSION}"
        )
    return description


def _swap_in(new: Path, directory: Path) -> None:
    """Put the folder `new` where `directory` is. No one call replaces a folder, so the old one steps aside first."""
    old = directory.with_name(directory.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    if directory.exists():
        directory.rename(old)
    new.rename(directory)
    shutil.rmtree(old, ignore_errors=True)


def sample_sources(checkpoint: Checkpoint, file: Path | None) -> list[list[int]]:
    """Return the source ids of each sample, as the model takes them: of `file`, or else the checkpoint's.

    A model of several languages takes them for its first ones.

    Raises:
        ExportError: the file or the tokenizer cannot be read.
    """
    texts: Sequence[str] = checkpoint.samples
    if file is not None:
        try:
            texts = read_text(file).splitlines()
        except ExportError as error:
            raise ExportError(f"--samples {error}") from None
    tokenizer = checkpoint.tokenizer.load(checkpoint.config, checkpoint.languages)
    pair = LanguagePairs(checkpoint.languages, tokenizer).default()
    return [ids for ids in pair.encode(texts) if ids]


def find_pair(languages: Languages, tokenizer: Tokenizer, source: str, target: str) -> LanguagePair:
    """Return the pair of a model's languages that --source-language and --target-language name.

    Raises:
        SettingsError: the model has no such pair, or several, and they name none.
    """
    pair, wrong = LanguagePairs(languages, tokenizer).find(source, target)
    if wrong:
        raise SettingsError(f"--{wrong[0].field.replace('_', '-')}: {wrong[0].description}")
    return pair
