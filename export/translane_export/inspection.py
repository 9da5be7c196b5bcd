"""`translane inspect`: tells what a model bundle or a checkpoint is. PyTorch is imported for checkpoints alone."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from translane.arguments import Parser
from translane.command_error import CommandError, packages_load
from translane.errors import TranslaneError
from translane_export.model.config import TransformerConfig
from translane_server.bundle.bundle import MANIFEST, read_manifest
from translane_server.bundle.manifest import Manifest
from translane_server.core.errors import is_about_memory
from translane_server.core.terminal import printable, write_output

_PROGRAM = "translane inspect"
_LONGEST_VALUE = 300  # characters of a line for people


def inspect(argv: Sequence[str], _environ: Mapping[str, str]) -> int:
    """Write what the folder is on standard output, and return the exit code.

    Raises:
        CommandError: the folder is neither a bundle nor a checkpoint, or it cannot be read.
        ModuleNotFoundError: PyTorch is missing, and the folder is no bundle.
    """
    parser = Parser(
        _PROGRAM,
        description="Tells what a model bundle or a checkpoint is. It checks no digests, and runs no model without "
        "--quality.",
    )
    parser.add_argument("path", metavar="PATH", type=Path, help="folder of a model bundle or of a checkpoint")
    parser.add_argument("--json", action="store_true", help="write a JSON object")
    parser.add_argument(
        "--quality",
        metavar="FILE",
        type=Path,
        help="translate parallel text (TSV: source, reference) with the bundle, and tell BLEU, chrF, and what arrives "
        "of numbers, names and placeholders",
    )
    parser.add_argument("--beam-size", metavar="N", type=int, help="beams of --quality; by default the bundle's search")
    arguments = parser.parse_args(argv)
    folder: Path = arguments.path
    if not folder.is_dir():
        what = "it is a file; name the folder that it is in" if folder.is_file() else "there is no such folder"
        raise CommandError(printable(f"{folder}: {what}"))
    try:
        found = _bundle(folder) if (folder / MANIFEST).is_file() else _checkpoint(folder)
    except (OSError, MemoryError, RuntimeError) as error:
        if is_about_memory(error):
            raise CommandError("there is not enough memory to read this checkpoint") from error
        if not isinstance(error, OSError):
            raise
        raise CommandError(printable(f"{error.filename or folder}: {error.strerror}")) from error
    if arguments.quality:
        found["quality_of_translations"] = _quality(folder, arguments.quality, arguments.beam_size)
    write_output(json.dumps(found, ensure_ascii=False, indent=2) if arguments.json else "\n".join(_lines(found)))
    return 0


def _quality(folder: Path, text: Path, beam_size: int | None) -> dict[str, Any]:
    if not (folder / MANIFEST).is_file():
        raise CommandError("--quality takes a model bundle: export the checkpoint")
    with packages_load():
        from translane_export.quality_report import quality_report
    try:
        return quality_report(folder, text, beam_size)
    except TranslaneError as error:
        raise CommandError(printable(f"--quality: {error}")) from error


def _described(part: Any) -> Any:
    """A part of a manifest as JSON's values, without what is not set."""
    if isinstance(part, dict):
        return {name: _described(value) for name, value in part.items() if value is not None}
    return _described(msgspec.to_builtins(part)) if isinstance(part, msgspec.Struct) else part


def _bundle(folder: Path) -> dict[str, Any]:
    manifest = read_manifest(folder)
    provenance = manifest.provenance
    files = (folder / name for name in (*manifest.files, MANIFEST))
    described = _described(manifest)
    return {
        "format": f"model bundle, version {manifest.schema_version}, of {_graphs(manifest)} graphs",
        "name": manifest.name,
        "version": manifest.version,
        "languages": {"source": list(manifest.source_languages), "target": list(manifest.target_languages)},
        "architecture": described["architecture"],
        **_composition(manifest.provenance.model),
        "precision": manifest.precision,
        "weights": manifest.weight_storage,
        "limits": described["limits"],
        "tokenizer": described["tokenizer"],
        "decoding_defaults": described["decoding_defaults"],
        **{name: described[name] for name in ("shortlist", "alignment", "parity", "quality") if name in described},
        "license": manifest.license,
        "provenance": {name: getattr(provenance, name) for name in ("checkpoint", "attribution", "exporter")},
        "bytes_on_disk": sum(path.stat().st_size for path in files),
    }


def _graphs(manifest: Manifest) -> str:
    return "ONNX" if manifest.graphs.decoder.file.endswith(".onnx") else "TorchScript"


def _checkpoint(folder: Path) -> dict[str, Any]:
    with packages_load():
        from translane_export.sources.readers import find_reader

    reader = find_reader(folder)
    checkpoint = reader.read(folder)
    config = checkpoint.config
    weights = {tensor.data_ptr(): tensor for tensor in checkpoint.state_dict.values()}.values()  # tied ones once
    return {
        "format": reader.format,
        "name": checkpoint.name or folder.resolve().name,
        "languages": {"source": list(checkpoint.languages.source), "target": list(checkpoint.languages.target)},
        "architecture": {
            "family": reader.family,
            **{name: getattr(config, name) for name in ("encoder_layers", "decoder_layers", "d_model", "heads")},
            "head_size": config.head_dim,
            **{name: getattr(config, name) for name in ("ffn_size", "source_vocab_size", "target_vocab_size")},
            "parameters": sum(tensor.numel() for tensor in weights),
        },
        **_composition(config.to_dict()),
        "weights": ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in weights})),
        "limits": {"positions": config.max_positions},
        "tokenizer": _described(checkpoint.tokenizer.entry),
        "provenance": {name: value for name, value in checkpoint.metadata.items() if name != "settings"},
        "bytes_on_disk": sum(path.stat().st_size for path in _files(folder)),
    }


def _files(folder: Path) -> Iterator[Path]:
    for parent, _folders, names in os.walk(folder):
        yield from (path for name in names if (path := Path(parent, name)).is_file())


def _composition(model: Any) -> dict[str, Any]:
    """What layers and their attention are composed of; nothing where the bundle does not tell."""
    try:
        config = TransformerConfig.from_dict(model)
    except (TypeError, ValueError):
        return {}
    gated = "gated " if config.gated else ""
    biases = "" if config.biases else ", without biases"
    unit = "" if config.decoder_unit == "self-attention" else f", {config.decoder_unit} decoder"
    return {
        "layers": f"{config.norm}-norm, {config.norm_kind} norms, {gated}{config.activation}{biases}{unit}",
        "embeddings": f"{config.tie_embeddings} tying",
        "attention": list(_attention(config)),
    }


def _attention(config: TransformerConfig) -> Iterator[str]:
    yield f"{config.heads} heads of {config.head_dim}"
    if config.key_value_heads != config.heads:
        yield f"{config.key_value_heads} heads of keys and values (grouped queries)"
    if config.value_dim != config.head_dim:
        yield f"values of {config.value_dim}"
    yield "no positions" if config.positions == "none" else f"{config.positions} positions"
    if config.attention_normalizer != "softmax":
        yield config.attention_normalizer
    if config.relative_buckets:
        yield f"biases by distance, {config.relative_buckets} buckets up to {config.relative_max_distance}"
    if config.relative_window:
        shared = "shared" if config.relative_shared else "by head"
        yield f"vectors by distance up to {config.relative_window}, {shared}"
    if config.proximal_bias:
        yield "proximal bias"
    if config.block_length:
        yield f"block-local, {config.block_length} on either side"
    if config.window_size:
        exact = "exact " if config.exact_window else ""
        yield f"{exact}windows of {config.window_size}, {config.look_backward} back, {config.look_forward} ahead"
    if config.has_attention_biases != config.biases:
        yield "biases" if config.has_attention_biases else "no biases"
    if config.score_scale != config.head_dim**-0.5:
        yield f"scores times {config.score_scale:g}"


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    for name, value in found.items():
        if name == "quality_of_translations":
            with packages_load():
                from translane_export.quality_report import as_table
            yield from ("", *as_table(value))
            continue
        if name == "bytes_on_disk":
            name, value = "size on disk", f"{value / 1e6:,.1f} MB"
        yield f"{name.replace('_', ' '):18} {printable(_words(value), _LONGEST_VALUE)}"


def _words(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_words, value)) or "none"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "none"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
