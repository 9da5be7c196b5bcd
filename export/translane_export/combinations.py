"""Which settings go together, and which a checkpoint sets that was a bundle."""

from __future__ import annotations

from msgspec.structs import replace

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.graphs.numerics import Numerics, choose_numerics
from translane_server.bundle.manifest import Precision
from translane_server.bundle.shortlist import Shortlist

_ONNX_ONLY: tuple[Precision, ...] = ("int8", "bf16")


def check_settings(settings: ExportSettings) -> Numerics:
    """Return the numerics of settings with one precision, and refuse what cannot be together."""
    (precision,) = settings.precisions
    numerics = choose_numerics(precision, settings.weight_storage)
    if settings.format == "torchscript" and settings.weight_storage:
        raise ExportError("TorchScript files store weights as they compute; leave --weight-storage out")
    if settings.format == "torchscript" and settings.precision in _ONNX_ONLY:
        raise ExportError(f"TorchScript files are fp32 or fp16; {settings.precision} is a precision of ONNX bundles")
    if settings.test and settings.precision != "int8":
        raise ExportError("--test is for precision int8, whose translations it scores")
    if settings.quality_data and settings.format == "torchscript":
        raise ExportError("--quality-data is for the server, which reads no TorchScript files; leave it out")
    if settings.shortlist and (settings.format == "torchscript" or precision not in ("fp32", "int8")):
        form = "TorchScript files" if settings.format == "torchscript" else f"{precision} bundles"
        raise ExportError(f"--shortlist is for fp32 and int8 bundles, and {form} have none; leave it out")
    return numerics


def check_checkpoint(settings: ExportSettings, checkpoint: Checkpoint) -> None:
    """Refuse settings that a checkpoint cannot meet."""
    if settings.test and checkpoint.ranges:
        raise ExportError(
            f"--test compares int8 with what it is made of, and {settings.checkpoint} is int8 already, which stays as"
            " it is; leave it out"
        )
    search = settings.decoding_defaults
    if search and search.use_shortlist and not settings.shortlist and not own_shortlist(settings, checkpoint):
        raise ExportError("--decoding-defaults use_shortlist needs a --shortlist")
    languages = checkpoint.languages
    if settings.quality_data and len(languages.source) * len(languages.target) > 1:
        raise ExportError(
            "--quality-data is for models of one pair of languages: it does not say which of several it is in"
        )
    if settings.precision == "bf16" and checkpoint.config.norm_kind == "batch":
        raise ExportError(
            "ONNX Runtime has no batch norm in bfloat16 on CUDA, and bf16 bundles are for CUDA; export with"
            " --precision fp16"
        )


def own_shortlist(settings: ExportSettings, checkpoint: Checkpoint) -> Shortlist | None:
    """The checkpoint's shortlist, unless another one is given or these bundles have none."""
    fits = settings.format == "onnx" and settings.precision in ("fp32", "int8") and not settings.vocabulary_from
    return checkpoint.shortlist if fits and settings.shortlist is None else None


def complete(settings: ExportSettings, checkpoint: Checkpoint) -> ExportSettings:
    """Take what is not set from a checkpoint."""
    defaults = {name: value for name, value in checkpoint.settings.items() if name not in settings.model_fields_set}
    if defaults.get("precision") in _ONNX_ONLY and (settings.format == "torchscript" or settings.weight_storage):
        defaults["precision"] = "fp32"  # the bundle's own has neither
    if "precision" in settings.model_fields_set or settings.format == "torchscript":
        defaults.pop("weight_storage", None)  # what the bundle stores suits the bundle's own precision and format
    if settings.samples or settings.format == "torchscript":
        defaults.pop("alignment_layer", None)  # chosen by the samples, and TorchScript files have none
    completed = settings.model_copy(update=defaults)
    search = completed.decoding_defaults
    has_shortlist = completed.shortlist or own_shortlist(completed, checkpoint)
    if search and "decoding_defaults" not in settings.model_fields_set and not has_shortlist:
        search = replace(search, use_shortlist=None)  # the bundle's own default needs a shortlist
        completed = completed.model_copy(update={"decoding_defaults": search})
    return completed
