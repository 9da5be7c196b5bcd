"""Checkpoint to bundle: read, capture, store, verify, describe. The folder appears when all of it is right."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from translane_export import torchscript
from translane_export.alignment import choose_alignment
from translane_export.checkpoint import Checkpoint
from translane_export.errors import ExportError
from translane_export.graph_writer import write_graphs
from translane_export.int8 import Int8Stage, quantize_bundle, read_test_set
from translane_export.languages import choose_languages
from translane_export.manifest import build_manifest, choose_limits
from translane_export.memory import release_memory
from translane_export.model import Transformer, TransformerConfig
from translane_export.model_card import model_card
from translane_export.output_folder import check_replaceable, staged
from translane_export.precision import Numerics, check_range, choose_numerics
from translane_export.recording import ADMITTED_TOGETHER, ROWS, Decode, StepBackend, record_decodes
from translane_export.samples import sample_sources
from translane_export.settings import ExportSettings, Format
from translane_export.sources import find_reader
from translane_export.torch_model import as_stored, build_model
from translane_export.train.data import SentencePair
from translane_export.verify import LONGEST, compare, passes, verification_sources
from translane_server.bundle import (
    MANIFEST,
    Alignment,
    Bundle,
    Manifest,
    Parity,
    file_entry,
    load_bundle,
)
from translane_server.errors import StartupError
from translane_server.language_pairs import LanguagePairs
from translane_server.ort import OrtBackend
from translane_server.sessions import Sessions
from translane_server.tokenizer import load_tokenizer

TORCHSCRIPT_MANIFEST = "torchscript.json"

_MODEL_CARD = "README.md"
_MANIFESTS: dict[Format, str] = {"onnx": MANIFEST, "torchscript": TORCHSCRIPT_MANIFEST}

_MOST_LOGITS = 1 << 23  # of a sentence that is verified (32 MB), unless it is no longer than this:
_SHORTEST = 96
_MOST_SAMPLES = 128  # verified with: their logits wait in a file until PyTorch's are there

Log = Callable[[str], None]


def export_checkpoint(settings: ExportSettings, log: Log = lambda _line: None) -> Manifest:
    """Export a checkpoint as `settings` say; return the manifest of the bundle that is now there.

    Raises:
        ExportError: the checkpoint, a setting or the output folder is wrong, or the export fails its verification;
            whatever was at the output before is untouched.
    """
    _check_output(settings)
    log(f"reading {settings.checkpoint}")
    reader = find_reader(settings.checkpoint)
    return write_bundle(lambda: reader.read(settings.checkpoint), settings, family=reader.family, log=log)


def write_bundle(
    read: Callable[[], Checkpoint], settings: ExportSettings, *, family: str, log: Log = lambda _line: None
) -> Manifest:
    """Export what `read` gives, of what the manifest is to call `family`. See `export_checkpoint`.

    It is read a second time to verify with, so that PyTorch's weights are not in memory while ONNX Runtime's are.
    """
    _check_output(settings)
    checkpoint = read()
    settings = _complete(settings, checkpoint)
    checkpoint = _with_languages(checkpoint, settings)
    numerics = choose_numerics(settings.precision, settings.weight_storage)
    _check_combination(settings, checkpoint)
    choose_limits(settings, checkpoint.config)  # refuses what cannot be before anything takes long
    _check_model_card(settings)
    test = read_test_set(settings.test) if settings.test else ()
    samples = sample_sources(checkpoint, settings.samples)
    model = build_model(checkpoint)
    check_range(model, numerics, checkpoint.origins)
    checkpoint = dataclasses.replace(checkpoint, state_dict={})  # it is the model's now
    # as little as possible is held twice: a large model takes most of the memory
    reference = as_stored(model, numerics)
    del model
    alignment = _choose_alignment(settings, reference, samples, log)
    with staged(settings.output) as folder:
        graphs = write_graphs(settings.format, reference, numerics, alignment, folder, log)
        checkpoint.tokenizer.write(folder)
        manifest = build_manifest(
            settings,
            checkpoint,
            reference,
            family=family,
            numerics=numerics,
            graphs=graphs,
            alignment=alignment,
            files={path.name: file_entry(path) for path in sorted(folder.iterdir())},
        )
        bundle, config = Bundle(folder, manifest), reference.config
        del reference
        release_memory()
        decodes = _decode(settings, bundle, samples, config, log)
        release_memory()
        reference = as_stored(build_model(read()), numerics)
        release_memory()
        parity = _compare(decodes, reference, numerics, manifest.alignment, log)
        manifest = manifest.model_copy(update={"parity": parity})
        if settings.precision == "int8":
            bundle = Bundle(folder, manifest)
            if checkpoint.ranges:
                log("quantizing as before")
                quantized = quantize_bundle(bundle, checkpoint.ranges, reference.config)
                _try_out(settings, quantized)
                manifest = quantized.manifest.model_copy(update={"quality": checkpoint.quality})
            else:
                manifest = _quantize(settings, bundle, reference, samples, test, log)
        _write_model_card(settings, manifest, folder)
        files = {**manifest.files, _MODEL_CARD: file_entry(folder / _MODEL_CARD)}
        manifest = manifest.model_copy(update={"files": dict(sorted(files.items()))})
        _write_manifest(settings.format, manifest, folder)
    return manifest


def _check_output(settings: ExportSettings) -> None:
    check_replaceable(settings.output, force=settings.force, markers=tuple(_MANIFESTS.values()))


def _check_model_card(settings: ExportSettings) -> None:
    if settings.model_card is None:
        return
    try:
        with settings.model_card.open("rb"):
            pass
    except OSError as error:
        raise ExportError(f"model card {settings.model_card}: it cannot be read: {error.strerror}") from None


def _check_combination(settings: ExportSettings, checkpoint: Checkpoint) -> None:
    if settings.format == "torchscript" and settings.weight_storage:
        raise ExportError("TorchScript files store weights as they compute; leave --weight-storage out")
    if settings.format == "torchscript" and settings.precision == "int8":
        raise ExportError("TorchScript files are fp32 or fp16; int8 is a precision of ONNX bundles")
    if settings.test and settings.precision != "int8":
        raise ExportError("--test is for precision int8, whose translations it scores")
    if settings.test and checkpoint.ranges:
        raise ExportError(
            f"--test compares int8 with what it is made of, and {settings.checkpoint} is int8 already, which stays as"
            " it is; leave it out"
        )


def _complete(settings: ExportSettings, checkpoint: Checkpoint) -> ExportSettings:
    """Take what is not set from a checkpoint that has been exported before."""
    defaults = {name: value for name, value in checkpoint.settings.items() if name not in settings.model_fields_set}
    if defaults.get("precision") == "int8" and (settings.format == "torchscript" or settings.weight_storage):
        defaults["precision"] = "fp32"  # int8 has neither
    if "precision" in settings.model_fields_set or settings.format == "torchscript":
        defaults.pop("weight_storage", None)  # what the bundle stores suits the bundle's own precision and format
    return settings.model_copy(update=defaults)


def _with_languages(checkpoint: Checkpoint, settings: ExportSettings) -> Checkpoint:
    languages = choose_languages(
        checkpoint.languages,
        source=settings.source_language,
        target=settings.target_language,
        source_prefix=settings.source_prefix,
        checkpoint=settings.checkpoint,
    )
    return dataclasses.replace(checkpoint, languages=languages)


def _choose_alignment(
    settings: ExportSettings, reference: Transformer, samples: list[list[int]], log: Log
) -> Alignment | None:
    if settings.format == "torchscript":
        if settings.alignment_layer is not None:
            raise ExportError("TorchScript files give no attention weights; leave --alignment-layer out")
        return None
    alignment = choose_alignment(reference, samples, settings.alignment_layer)
    log(f"aligning by decoder layer {alignment.layer}")
    return alignment


def _decode(
    settings: ExportSettings, bundle: Bundle, samples: list[list[int]], config: TransformerConfig, log: Log
) -> list[Decode]:
    """Decode the sources to verify with; what runs the graphs is gone from memory afterwards."""
    limits = bundle.manifest.limits
    longest = min(LONGEST, max(_SHORTEST, _MOST_LOGITS // config.target_vocab_size))
    source_capacity, target_capacity = min(limits.source_tokens, longest), min(limits.target_tokens, longest)
    sources = verification_sources(samples[:_MOST_SAMPLES], config, source_capacity)
    try:
        load_tokenizer(bundle)
        backend = _open_backend(settings, bundle, config, source_capacity, target_capacity)
    except StartupError as error:
        raise ExportError(f"the exported model does not load: {error}") from error
    log(f"verifying with {len(sources)} sentences")
    return record_decodes(
        backend,
        config,
        sources,
        attention=bundle.manifest.alignment is not None,
        folder=bundle.folder,
        progress=_every_tenth(log, "decoded"),
    )


def _open_backend(
    settings: ExportSettings, bundle: Bundle, config: TransformerConfig, source_capacity: int, target_capacity: int
) -> StepBackend:
    capacities: dict[str, Any] = {
        "rows": ROWS,
        "source_capacity": source_capacity,
        "target_capacity": target_capacity,
    }
    if settings.format == "torchscript":
        return torchscript.TorchScriptBackend(bundle.folder, config, **capacities)
    encode_tokens = ADMITTED_TOGETHER * source_capacity
    return OrtBackend(Sessions(bundle, threads=settings.computing_threads), encode_tokens=encode_tokens, **capacities)


def _compare(
    decodes: list[Decode], reference: Transformer, numerics: Numerics, alignment: Alignment | None, log: Log
) -> Parity:
    parity = compare(decodes, reference, numerics, alignment, _every_tenth(log, "compared"))
    if not passes(parity):
        raise ExportError(
            f"the exported model differs from PyTorch's: logits by up to {parity.max_logit_difference:.2g}"
            f" (tolerance {parity.tolerance:g}), {parity.token_mismatches} of {parity.tokens} tokens"
            + (
                ""
                if parity.max_attention_difference is None
                else f", attention weights by up to {parity.max_attention_difference:.2g}"
                f" (tolerance {parity.attention_tolerance:g})"
            )
        )
    return parity


def _quantize(
    settings: ExportSettings,
    bundle: Bundle,
    reference: Transformer,
    samples: list[list[int]],
    test: tuple[SentencePair, ...],
    log: Log,
) -> Manifest:
    manifest = bundle.manifest
    if test and len(manifest.source_languages) * len(manifest.target_languages) > 1:
        raise ExportError("--test is for models of one pair of languages: it does not say which of several it is in")
    languages = LanguagePairs(manifest.languages, load_tokenizer(bundle)).default()
    longest = min(_SHORTEST, manifest.limits.source_tokens)
    # random ids tell little of what sentences do to a model, and more than nothing
    samples = (
        samples
        or [ids for ids in languages.tokenizer.encode([pair.source for pair in test]) if ids]
        or verification_sources([], reference.config, longest)
    )
    try:
        return Int8Stage(languages, samples, test, settings.max_bleu_loss, settings.computing_threads, log).run(
            bundle, reference
        )
    except StartupError as error:
        raise ExportError(f"the exported model does not run: {error}") from error


def _try_out(settings: ExportSettings, bundle: Bundle) -> None:
    """Run the graphs once, of a bundle whose translations nothing else asks for."""
    limits = bundle.manifest.limits
    try:
        backend = OrtBackend(
            Sessions(bundle, threads=settings.computing_threads),
            rows=2,
            source_capacity=min(limits.source_tokens, LONGEST),
            target_capacity=min(limits.target_tokens, LONGEST),
        )
        backend.warm_up()
        backend.close()
    except StartupError as error:
        raise ExportError(f"the exported model does not run: {error}") from error


def _every_tenth(log: Log, what: str) -> Callable[[int, int], None]:
    def report(done: int, total: int) -> None:
        if done * 10 // total > (done - 1) * 10 // total:
            log(f"{what} {done}/{total} sentences")

    return report


def _write_model_card(settings: ExportSettings, manifest: Manifest, folder: Path) -> None:
    target = folder / _MODEL_CARD
    if settings.model_card is None:
        target.write_text(model_card(manifest), encoding="utf-8")
        return
    try:
        shutil.copyfile(settings.model_card, target)
    except OSError as error:
        raise ExportError(f"model card {settings.model_card}: it cannot be read: {error.strerror}") from None


def _write_manifest(form: Format, manifest: Manifest, folder: Path) -> None:
    """Write the manifest as the last file, and read everything back as the server will."""
    content = manifest.model_dump(mode="json")
    if form == "torchscript":
        content = {"format": "translane-torchscript", **content}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (folder / _MANIFESTS[form]).write_text(text, encoding="utf-8")
    if form == "onnx":
        try:
            load_bundle(folder)
        except StartupError as error:
            raise ExportError(f"the written bundle does not load: {error}") from error
