"""Fills a bundle's manifest from the checkpoint and the settings."""

from __future__ import annotations

from importlib.metadata import version

import msgspec
import torch

from translane_export.core.checkpoint import Checkpoint
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.core.tokenizer_files import special_ids
from translane_export.graphs.numerics import Numerics
from translane_export.graphs.signatures import architecture
from translane_export.model import Transformer, TransformerConfig
from translane_server.bundle.bundle import problem_of
from translane_server.bundle.manifest import (
    Alignment,
    DecodingDefaults,
    FileEntry,
    Graphs,
    Manifest,
    ModelLimits,
    Provenance,
    SearchDefaults,
)
from translane_server.bundle.shortlist import SHORTLIST_FILE
from translane_server.core.terminal import printable
from translane_server.text.stand_ins import STAND_INS


def build_manifest(
    settings: ExportSettings,
    checkpoint: Checkpoint,
    model: Transformer,
    *,
    family: str,
    numerics: Numerics,
    graphs: Graphs,
    alignment: Alignment | None,
    files: dict[str, FileEntry],
) -> Manifest:
    """Return the manifest, still without a parity report.

    Raises:
        ExportError: a setting asks for more than the model can take, or something does not fit in a manifest.
    """
    config, training = checkpoint.config, checkpoint.metadata
    limits = choose_limits(settings, config)
    try:
        manifest = Manifest(
            name=_name(settings, checkpoint),
            version=settings.model_version,
            source_languages=checkpoint.languages.source,
            target_languages=checkpoint.languages.target,
            language_templates=checkpoint.languages.templates,
            architecture=architecture(config, family, sum(parameter.numel() for parameter in model.parameters())),
            precision=numerics.precision,
            weight_storage=numerics.storage,
            special_ids=special_ids(config),
            limits=limits,
            decoding_defaults=_decoding_defaults(settings, limits),
            tokenizer=checkpoint.tokenizer.entry,
            graphs=graphs,
            alignment=alignment,
            stand_ins=tuple(checkpoint.tokenizer.load(config, checkpoint.languages).stand_ins(STAND_INS).values()),
            shortlist=SHORTLIST_FILE if graphs.shortlist else None,
            license=printable(settings.license or str(training.get("data_licence") or "unspecified")),
            provenance=Provenance(
                checkpoint=checkpoint.name or settings.checkpoint.resolve().name,
                attribution=settings.attribution,
                training=training,
                model=config.to_dict(),
                exporter={"translane": version("translane"), "torch": str(torch.__version__)},
            ),
            parity=None,
            files=files,
        )
        return msgspec.convert(msgspec.to_builtins(manifest), Manifest)
    except (ValueError, TypeError, OverflowError) as error:
        raise ExportError(f"the bundle's manifest would be wrong: {error}") from None
    except msgspec.ValidationError as error:
        raise ExportError(f"the bundle's manifest would be wrong: {problem_of(error)}") from None


def _decoding_defaults(settings: ExportSettings, limits: ModelLimits) -> DecodingDefaults:
    search = settings.decoding_defaults or SearchDefaults()
    return DecodingDefaults(
        max_length=min(settings.default_max_length, limits.target_tokens),
        length_factor=settings.default_length_factor,
        **search.given,
    )


def choose_limits(settings: ExportSettings, config: TransformerConfig) -> ModelLimits:
    """Return the most tokens a sentence may have: as many as the model has positions, or fewer if they are set."""
    most = config.max_positions
    return ModelLimits(
        source_tokens=_limit("--max-source-tokens", settings.max_source_tokens, most),
        target_tokens=_limit("--max-target-tokens", settings.max_target_tokens, most),
    )


def _name(settings: ExportSettings, checkpoint: Checkpoint) -> str:
    languages = checkpoint.languages
    return settings.name or "-".join(
        tags[0] if len(tags) == 1 else "mul" for tags in (languages.source, languages.target)
    )


def _limit(flag: str, asked: int | None, possible: int) -> int:
    if asked is not None and asked > possible:
        raise ExportError(f"{flag} is {asked}, and the model has {possible} positions")
    return asked or possible
