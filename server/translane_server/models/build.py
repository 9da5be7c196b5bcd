"""Makes the models of a server by its settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from translane_server.core.errors import SettingsError
from translane_server.core.machine import available_cpus, available_memory
from translane_server.core.terminal import listed
from translane_server.models.checkpoints import with_bundles
from translane_server.models.folders import find_models, named
from translane_server.models.glossary_folder import GlossaryFolder
from translane_server.models.loader import ModelDescription, ModelLoader, estimated_memory, placement_of
from translane_server.models.registry import Registry, naming
from translane_server.models.remote_model import RemoteModel, remote_models
from translane_server.models.served_model import ServedModel
from translane_server.observation.metrics import Metrics
from translane_server.settings.model_sources import ModelPlace, RemotePlace
from translane_server.settings.server_settings import ServerSettings
from translane_server.workers.placement import Placement, divide_cpus
from translane_server.workers.spares import SharedCpus

_log = logging.getLogger(__name__)


def build_registry(settings: ServerSettings, metrics: Metrics, cpus: int | None = None) -> Registry:
    """Find all models and glossaries, and check their files: no model is loaded yet.

    Checkpoints are exported before, and models at URLs downloaded.

    All models together have so many `cpus`; by default those that this process may use.

    Raises:
        StartupError: a model or a glossary is wrong. If there are several models, the message names the model.
    """
    settings = with_bundles(settings)
    glossaries = GlossaryFolder(settings.glossaries)
    glossaries.load()
    remote = remote_models(settings)
    places = [_local(place, remote) for place in settings.model or ()]
    # From now on the names of these folders are fixed, whatever their manifests say later.
    fixed = named(places)
    folders = find_models(fixed, settings.models)
    for name in settings.model_settings:
        if name not in folders:
            raise SettingsError(f"model_settings.{name}: there is no such model; there is {listed(folders)}")
    by_manifest = {now.name for place, now in zip(places, fixed, strict=True) if not place.name}
    of_folders = {model.folder: model for model in remote.values()}
    shared = SharedCpus(cpus or available_cpus())

    def serve(name: str, folder: Path) -> ServedModel:
        """Check the files in `folder`, and make a model that is not loaded. Raises StartupError."""
        try:
            of_model = settings.of_model(name)
        except ValueError as error:
            raise SettingsError(str(error)) from None
        measured = metrics.of_model(name)
        loader = ModelLoader(
            name,
            folder,
            of_model,
            measured,
            cpus=lambda: divide_cpus({*registry.models, name}, shared.count)[name],
            shared=shared,
            pool=registry.pool,
            named_by_manifest=name in by_manifest,
            stored=lambda: registry.stored,
            remote=of_folders.get(folder),
        )
        try:
            described = loader.check().description
        except BaseException:
            measured.remove()
            raise
        measured.description = described.labels
        return ServedModel(described, loader, measured)

    registry = Registry(
        lambda: find_models(fixed, settings.models),
        serve,
        pivots=settings.pivot,
        needs_all=settings.ready == "all",
        most_texts=settings.max_request_texts,
        idle_timeout=settings.idle_timeout,
        glossaries=glossaries,
    )
    for name, folder in folders.items():
        with naming(name, folders):
            registry.add(serve(name, folder))
    if len(folders) > 1:
        parts = divide_cpus(folders, shared.count)
        _log.info("CPUs of each model: %s", ", ".join(f"{name} {part}" for name, part in parts.items()))
        plans = _placements(settings, registry, shared.count)
        if sum(estimated_memory(*plan) for plan in plans.values()) > available_memory():
            shared.may_be_lent = False
            _log.info("the memory is not enough for more replicas of a model while others are idle")
    return registry


def shortages(settings: ServerSettings, models: Registry) -> list[str]:
    """Return a sentence about each resource of which the models ask for more than there is."""
    whole = available_cpus()
    plans = _placements(settings, models, whole, lent=False)
    found = [
        f"model {name}: its replicas have {threads} threads, and there are {whole} CPUs"
        for name, (_, plan) in plans.items()
        if (threads := plan.threads * len(plan.rows)) > whole
    ]
    memory = sum(estimated_memory(*plan) for plan in plans.values())
    if memory > (limit := available_memory()):
        found.append(
            f"the models take some {memory / 1e6:,.0f} MB, and {limit / 1e6:,.0f} MB are allowed; fewer --replicas, a"
            " smaller --max-batch-size or fewer models take less"
        )
    return found


def _placements(
    settings: ServerSettings, models: Registry, cpus: int, *, lent: bool = True
) -> dict[str, tuple[ModelDescription, Placement]]:
    """The models on a CPU, by name, and their replicas: with the spare ones if CPUs of idle models are lent."""
    parts = divide_cpus(models.models, cpus)
    return {
        name: (described, placement_of(settings.of_model(name), described, parts[name], cpus if lent else 0))
        for name, model in models.models.items()
        if (described := model.description).device == "cpu"
    }


@asynccontextmanager
async def loaded_models(
    settings: ServerSettings, metrics: Metrics | None = None, cpus: int | None = None
) -> AsyncIterator[Registry]:
    """Load all models, and end them with the block. A program so translates without a server.

    Of the settings, addresses, keys and limits of calls count for nothing. For `cpus` see `build_registry`.

    Raises:
        StartupError: a model or a glossary is wrong, or cannot be loaded.
    """
    # On a thread, because files are read and checked, and the program goes on meanwhile.
    registry = await asyncio.to_thread(build_registry, settings, metrics or Metrics(), cpus)
    try:
        await registry.start()
        yield registry
    finally:
        await registry.stop()


def _local(place: ModelPlace | RemotePlace, remote: Mapping[RemotePlace, RemoteModel]) -> ModelPlace:
    """Return the place of a model in a folder, after the model is fetched from its URL. Raises BundleError."""
    if isinstance(place, ModelPlace):
        return place
    model = remote[place]
    digest = model.refresh(or_keep=True)
    if not place.url.digest:
        _log.warning(
            "model bundle %s: it has no digest, so whoever writes there decides what is served; now it is @sha256:%s",
            place.url,
            digest,
        )
    return ModelPlace(model.folder, place.name)
