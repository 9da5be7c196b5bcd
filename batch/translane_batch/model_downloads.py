"""Models at URLs: this machine downloads one before any worker starts, and all workers translate with that version."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from translane_batch.server_settings import server_settings
from translane_batch.settings import BatchSettings
from translane_server.models.remote_model import remote_models
from translane_server.settings.model_sources import ModelPlace


def with_model_here(settings: BatchSettings, log: Callable[[str], None]) -> tuple[BatchSettings, Path]:
    """Have the model in a folder of this machine: its own folder, or that of the cache.

    Args:
        settings: of a run without servers.
        log: takes lines for people.

    Returns:
        The settings for the workers, and the folder of the model. A URL of the settings has a digest. So a worker of
        this machine finds the model in the cache, and a worker of another machine downloads the same version.

    Raises:
        SettingsError: the settings contradict each other.
        BundleError: the model cannot be downloaded, and no version of it is in the cache.
    """
    place = settings.place
    if isinstance(place, ModelPlace):
        return settings, place.folder
    log(f"the model is at {place.url}")
    with closing(remote_models(server_settings(settings))[place]) as model:
        digest = model.refresh(or_keep=True)
        folder = model.folder.resolve()
    if place.url.digest:
        return settings, folder
    log(f"the model is @sha256:{digest}")
    return settings.model_copy(update={"model": f"{settings.model}@sha256:{digest}"}), folder
