"""The model of a run without servers: where it is and which one it is. It needs the extra `server`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
from pydantic import ValidationError

from translane_batch.settings import OF_THIS_MACHINE, BatchSettings
from translane_server.bundle.bundle import MANIFEST, read_manifest
from translane_server.bundle.devices import PRECISIONS
from translane_server.core.errors import SettingsError
from translane_server.models.checkpoints import with_bundles
from translane_server.models.folders import versions
from translane_server.models.remote_model import remote_models
from translane_server.settings.loader import first_problem
from translane_server.settings.model_sources import ModelPlace
from translane_server.settings.server_settings import ServerSettings

_MAX_QUEUE_SIZE = 1 << 20  # the requests at once bound the sentences already


def with_model_here(settings: BatchSettings, log: Callable[[str], None]) -> tuple[BatchSettings, Path]:
    """Have the model in a folder of this machine: its own folder, or that of the cache.

    Returns:
        The settings for the workers, and the folder of the model. A name has become a folder or a URL, and a URL has a
        digest. So a worker of this machine finds the model in the cache, and a worker of another machine downloads the
        same version.
    """
    found = with_bundles(server_settings(settings)).model
    assert found, "the run has a model of its own"
    (place,) = found
    if place != settings.place:
        settings = settings.model_copy(update={"model": str(place)})
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


def identity_of_folder(folder: Path) -> str:
    """Return a digest of the model in a folder. Its manifest has the digests of all other files."""
    version = versions(folder)[0]
    bundles = [version / precision for precision in PRECISIONS if (version / precision).is_dir()]
    if not bundles or (version / MANIFEST).exists():
        bundles = [version]
    digest = hashlib.sha256()
    for bundle in bundles:
        digest.update(msgspec.json.encode(read_manifest(bundle)))
    return digest.hexdigest()


def server_settings(settings: BatchSettings) -> ServerSettings:
    """Return the settings of the models of this process."""
    try:
        return ServerSettings(
            model=(settings.place,),
            **{name: getattr(settings, name) for name in OF_THIS_MACHINE},
            max_queue_size=_MAX_QUEUE_SIZE,
            log_level="warning",
        )
    except ValidationError as error:
        raise SettingsError(first_problem(error)) from None
