"""Checkpoint to bundle: read, capture, store, verify, describe. The folder appears when all of it is right."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import msgspec
from msgspec.structs import replace

from translane.progress import Progress
from translane_export.checks.alignment_layer import choose_alignment
from translane_export.checks.recording import Decode
from translane_export.checks.running import Log, decode_sources, float32_twin, try_out
from translane_export.checks.verify import compare, passes, verification_sources
from translane_export.combinations import check_checkpoint, check_settings, complete, own_shortlist
from translane_export.core.checkpoint import Checkpoint, sample_sources
from translane_export.core.errors import ExportError
from translane_export.core.file_readers import read_text
from translane_export.core.languages import choose_languages
from translane_export.core.output_folder import check_replaceable, staged
from translane_export.core.settings import PRECISIONS, ExportSettings, Format
from translane_export.core.torch_model import build_model, release_memory
from translane_export.graphs.numerics import Numerics, as_stored, check_range, verified_as
from translane_export.graphs.writer import write_graphs
from translane_export.int8.stage import make_int8, quantize_bundle
from translane_export.manifest import build_manifest, choose_limits
from translane_export.model import Transformer
from translane_export.model_card import model_card
from translane_export.pruning.pruning import plan_pruning, summary
from translane_export.quality_calibration import calibrate, read_quality_data
from translane_export.shortlists import read_vmap
from translane_export.sources.readers import Reader, find_reader
from translane_export.train.data import SentencePair, read_pairs
from translane_server.bundle.bundle import MANIFEST, Bundle, file_entry, load_bundle
from translane_server.bundle.manifest import Alignment, Graphs, Manifest, Parity, Precision
from translane_server.bundle.shortlist import SHORTLIST_FILE, Shortlist, write_shortlist
from translane_server.core.errors import StartupError
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.languages import LanguagePair, LanguagePairs

TORCHSCRIPT_MANIFEST = "torchscript.json"

_MODEL_CARD = "README.md"
_SHORTEST = 96  # tokens of a random sentence to calibrate with, unless the model takes no more
_MANIFESTS: dict[Format, str] = {"onnx": MANIFEST, "torchscript": TORCHSCRIPT_MANIFEST}


def export_precisions(settings: ExportSettings, log: Log = lambda _line: None) -> tuple[Manifest, ...]:
    """Export a checkpoint in each precision of `settings`; return the manifests of the bundles that are now there.

    One precision makes a bundle. Of several, each makes a bundle in a folder of its name, inside the output folder,
    which appears once all of them are complete.

    Raises:
        ExportError: see `export_checkpoint`; whatever was at the output before is untouched.
    """
    if len(settings.precisions) == 1:
        return (export_checkpoint(settings, log),)
    if settings.test and "int8" not in settings.precisions:
        raise ExportError("--test is for precision int8, whose translations it scores")
    check_output(settings)
    with staged(settings.output) as folder:
        exports = [_one(settings, precision, folder / precision) for precision in settings.precisions]
        for export in exports:  # before the first takes minutes
            check_settings(export)
        if settings.test:
            read_pairs(settings.test, "--test")
        made: dict[str, Bundle] = {}
        for export in sorted(exports, key=lambda each: each.precision == "int8"):  # which is made of fp32
            log(f"precision {export.precision}")
            made[export.precision] = Bundle(export.output, export_checkpoint(export, log, tuple(made.values())))
    return tuple(made[export.precision].manifest for export in exports)


def _one(settings: ExportSettings, precision: Precision, output: Path) -> ExportSettings:
    """The settings of one of several exports; a set to score translations with is for int8 alone."""
    test = settings.test if precision == "int8" else None
    changes = {"precision": precision, "output": output, "force": False, "test": test}
    return settings.model_copy(update=changes)


def export_checkpoint(
    settings: ExportSettings,
    log: Log = lambda _line: None,
    made: Sequence[Bundle] = (),
    *,
    reader: Reader | None = None,
) -> Manifest:
    """Export a checkpoint as `settings` say, in one precision; return the manifest of the bundle that is now there.

    It takes over what bundles in other precisions (`made`, by the same settings) have found or verified. `reader` is
    by default that of the checkpoint's format. The checkpoint is read a second time for the verification, so that
    PyTorch's weights and ONNX Runtime's are not in memory together.

    Raises:
        ExportError: the checkpoint, a setting or the output folder is wrong, or the export fails its verification;
            whatever was at the output before is untouched.
    """
    check_output(settings)
    log(f"reading {settings.checkpoint}")
    reader = reader or find_reader(settings.checkpoint)
    checkpoint = reader.read(settings.checkpoint)
    chosen = "decoding_defaults" in settings.model_fields_set
    settings = complete(settings, checkpoint)
    _log_search(settings, () if chosen else checkpoint.left_out_search, log)
    pruning = plan_pruning(settings, checkpoint)
    whole, checkpoint = checkpoint, pruning.apply(checkpoint)
    if pruning.vocabulary:
        log(summary(whole, checkpoint))
    del whole
    checkpoint = _with_languages(checkpoint, settings)
    numerics = check_settings(settings)
    check_checkpoint(settings, checkpoint)
    choose_limits(settings, checkpoint.config)  # refuses what cannot be before anything takes long
    card = _read_model_card(settings)
    test = read_pairs(settings.test, "--test") if settings.test else ()
    quality_data = read_quality_data(settings.quality_data) if settings.quality_data else ()
    shortlist = _read_shortlist(settings, checkpoint, log)
    samples = sample_sources(checkpoint, settings.samples)
    model = build_model(checkpoint)
    check_range(model, numerics, checkpoint.origins)
    checkpoint = dataclasses.replace(checkpoint, state_dict={})  # it is the model's now
    # as little as possible is held twice: a large model takes most of the memory
    reference = as_stored(model, numerics)
    del model
    alignment = made[0].manifest.alignment if made else _choose_alignment(settings, reference, samples, log)
    verified = next((each for each in made if settings.precision == "int8" and each.manifest.precision == "fp32"), None)
    with staged(settings.output) as folder:
        if verified:
            graphs = _copy_graphs(verified, folder)
        else:
            graphs = write_graphs(
                settings.format, reference, numerics, alignment, folder, log, shortlist=shortlist is not None
            )
        checkpoint.tokenizer.write(folder)
        if shortlist:
            write_shortlist(shortlist, folder / SHORTLIST_FILE)
        manifest = build_manifest(
            settings,
            checkpoint,
            reference,
            family=reader.family,
            numerics=numerics,
            graphs=graphs,
            alignment=alignment,
            files={path.name: file_entry(path) for path in sorted(folder.iterdir())},
        )
        bundle, config = Bundle(folder, manifest), reference.config
        _languages(bundle)  # refuses a tokenizer that cannot be read; the large ones take no memory meanwhile
        estimation = checkpoint.quality_estimation
        if verified:
            parity = verified.manifest.parity
        else:
            runs_as = verified_as(numerics)
            del reference
            release_memory()
            with nullcontext(bundle) if runs_as == numerics else float32_twin(bundle) as runnable:
                decodes = decode_sources(settings, runnable, samples, config, log)
                if quality_data and settings.precision != "int8":
                    estimation = calibrate(runnable, _languages(bundle), quality_data, settings.computing_threads, log)
            release_memory()
            reference = as_stored(build_model(pruning.apply(reader.read(settings.checkpoint))), numerics)
            release_memory()
            parity = _compare(decodes, reference, runs_as, manifest.alignment, log)
        manifest = replace(manifest, parity=parity)
        if settings.precision == "int8":
            bundle = Bundle(folder, manifest)
            if checkpoint.ranges:
                log("quantizing as before")
                quantized = quantize_bundle(bundle, checkpoint.ranges, reference.config)
                try_out(settings, quantized)
                manifest = replace(quantized.manifest, quality=checkpoint.quality)
            else:
                manifest = _quantize(settings, bundle, reference, _languages(bundle), samples, test, log)
            if quality_data:
                bundle = Bundle(folder, manifest)
                estimation = calibrate(bundle, _languages(bundle), quality_data, settings.computing_threads, log)
        manifest = replace(manifest, quality_estimation=estimation)
        (folder / _MODEL_CARD).write_text(card or model_card(manifest), encoding="utf-8")
        files = {**manifest.files, _MODEL_CARD: file_entry(folder / _MODEL_CARD)}
        manifest = replace(manifest, files=dict(sorted(files.items())))
        _write_manifest(settings.format, manifest, folder)
    return manifest


def _copy_graphs(bundle: Bundle, folder: Path) -> Graphs:
    """Copy the graphs of a bundle and their weights; return what they are."""
    for name in bundle.manifest.files:
        if name.endswith((".onnx", ".bin")):
            shutil.copyfile(bundle.path(name), folder / name)
    return bundle.manifest.graphs


def check_output(settings: ExportSettings) -> None:
    """Refuse an output folder that is in the way, or that cannot be written; see `check_replaceable`."""
    check_replaceable(settings.output, force=settings.force, markers=tuple(_MANIFESTS.values()), parts=PRECISIONS)


def _read_model_card(settings: ExportSettings) -> str:
    """The model card that is given; empty where there is none."""
    try:
        return read_text(settings.model_card) if settings.model_card else ""
    except ExportError as error:
        raise ExportError(f"model card {error}") from None


def _with_languages(checkpoint: Checkpoint, settings: ExportSettings) -> Checkpoint:
    languages = choose_languages(
        checkpoint.languages,
        source=settings.source_language,
        target=settings.target_language,
        source_prefix=settings.source_prefix,
        checkpoint=settings.checkpoint,
    )
    return dataclasses.replace(checkpoint, languages=languages)


def _read_shortlist(settings: ExportSettings, checkpoint: Checkpoint, log: Log) -> Shortlist | None:
    if settings.shortlist is None:
        return own_shortlist(settings, checkpoint)
    config = checkpoint.config
    tokenizer = checkpoint.tokenizer.load(config, checkpoint.languages)
    pieces = (
        tokenizer.source_pieces(range(config.source_vocab_size)),
        tokenizer.target_pieces(range(config.target_vocab_size)),
    )
    source, target = ({piece: id_ for id_, piece in reversed(list(enumerate(each)))} for each in pieces)
    found = read_vmap(settings.shortlist, source, target, config.source_vocab_size)
    log(f"shortlist: {len(found.shortlist.keys):,} n-grams, {len(found.shortlist.always):,} pieces always")
    if found.left_out:
        log(f"shortlist: {found.left_out:,} rules have pieces that the model does not know")
    return found.shortlist


def _log_search(settings: ExportSettings, left_out: Sequence[str], log: Log) -> None:
    if settings.decoding_defaults and str(settings.decoding_defaults) != "none":
        log(f"requests that set nothing are searched with {settings.decoding_defaults}")
    if left_out:
        log(f"left out of the checkpoint's search, which the server's has not: {', '.join(left_out)}")


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


def _languages(bundle: Bundle) -> LanguagePair:
    """The first pair of languages of a bundle, which samples and parallel text are in."""
    try:
        return LanguagePairs(bundle.manifest.languages, load_tokenizer(bundle)).default()
    except StartupError as error:
        raise ExportError(f"the exported model does not load: {error}") from error


def _compare(
    decodes: list[Decode], reference: Transformer, numerics: Numerics, alignment: Alignment | None, log: Log
) -> Parity:
    progress = Progress("sentences compared", total=len(decodes), stream=sys.stderr, say=log)
    parity = compare(decodes, reference, numerics, alignment, progress.add)
    progress.close()
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
    languages: LanguagePair,
    samples: list[list[int]],
    test: tuple[SentencePair, ...],
    log: Log,
) -> Manifest:
    manifest = bundle.manifest
    if test and len(manifest.source_languages) * len(manifest.target_languages) > 1:
        raise ExportError("--test is for models of one pair of languages: it does not say which of several it is in")
    longest = min(_SHORTEST, manifest.limits.source_tokens)
    # random ids tell little of what sentences do to a model, and more than nothing
    samples = (
        samples
        or [ids for ids in languages.encode([pair.source for pair in test]) if ids]
        or verification_sources([], reference.config, longest)
    )
    try:
        return make_int8(
            bundle,
            reference,
            languages,
            samples,
            test,
            most_lost=settings.max_bleu_loss,
            threads=settings.computing_threads,
            log=log,
        )
    except StartupError as error:
        raise ExportError(f"the exported model does not run: {error}") from error


def _write_manifest(form: Format, manifest: Manifest, folder: Path) -> None:
    """Write the manifest as the last file, and read everything back as the server will."""
    content = msgspec.to_builtins(manifest)
    if form == "torchscript":
        content = {"format": "translane-torchscript", **content}
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    (folder / _MANIFESTS[form]).write_text(text, encoding="utf-8")
    if form == "onnx":
        try:
            load_bundle(folder)
        except StartupError as error:
            raise ExportError(f"the written bundle does not load: {error}") from error
