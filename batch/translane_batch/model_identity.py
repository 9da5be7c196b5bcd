"""Which model translates: what identifies it between two starts of a run, and its languages."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from translane.results import ModelInfo
from translane_batch.settings import BatchSettings
from translane_server.bundle.bundle import MANIFEST, read_manifest
from translane_server.bundle.devices import PRECISIONS
from translane_server.models.folders import versions


@dataclass(frozen=True)
class Languages:
    """The languages of a run: BCP-47 tags, or "" where a tag is not known."""

    source: str
    target: str


def identity_of_folder(folder: Path) -> str:
    """Return a digest of the model in a folder. Its manifest has the digests of all other files.

    Raises:
        BundleError: there is no model.
    """
    version = versions(folder)[0]
    bundles = [version / precision for precision in PRECISIONS if (version / precision).is_dir()]
    if not bundles or (version / MANIFEST).exists():
        bundles = [version]
    digest = hashlib.sha256()
    for bundle in bundles:
        digest.update(read_manifest(bundle).model_dump_json().encode())
    return digest.hexdigest()


def identity_of_servers(settings: BatchSettings, models: Sequence[ModelInfo]) -> str:
    """Return names and versions of the models that servers may translate with."""
    models = [model for model in models if settings.model in ("", model.name)]
    return ", ".join(sorted(f"{model.name} {model.version} {model.precision}" for model in models))


def languages_of(settings: BatchSettings, models: Sequence[ModelInfo]) -> Languages:
    """Return the languages of the settings, or those of the models if they have only one pair."""
    if settings.server and settings.model:
        models = [model for model in models if model.name == settings.model]
    source = settings.source_language or _only([tag for model in models for tag in model.source_languages])
    target = settings.target_language or _only([tag for model in models for tag in model.target_languages])
    return Languages("" if source == "auto" else source, target)


def _only(tags: Sequence[str]) -> str:
    different = set(tags)
    return different.pop() if len(different) == 1 else ""
