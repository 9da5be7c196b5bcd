"""Loads the versions of a model: finds, checks, describes and starts them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from translane.options import Options
from translane.results import ModelInfo, ModelState
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device, choose_bundle
from translane_server.bundle.manifest import Manifest
from translane_server.core.errors import BundleError, StartupError
from translane_server.core.terminal import listed, shown
from translane_server.engine.sequence import TargetVocabulary
from translane_server.models.folders import fingerprint, has_manifest, manifest_names, pinned, versions
from translane_server.models.remote_model import RemoteModel
from translane_server.models.served_model import LoadedModel
from translane_server.observation.logs import data, logged_always
from translane_server.observation.metrics import ModelMetrics, Pids
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer, load_tokenizer
from translane_server.translation.cache import TranslationCache
from translane_server.translation.limits import RequestLimits, limits_of
from translane_server.translation.options import decoding_defaults
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.messages import ModelSetup
from translane_server.workers.placement import Placement, place_replicas
from translane_server.workers.processes import process_workers
from translane_server.workers.spares import SharedCpus, Spares

_SHOWN_DIGITS = 12  # of a digest
_PROCESS_BYTES = 60_000_000  # of a process, beside weights and rows; measured on the bundled model

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelDescription:
    """A model as callers see it: the version that is loaded, or the last one that was, or the first one to be."""

    name: str  # the name under which the model is served
    version: str  # the name of the version's folder; of a model without versions, what the manifest says
    # identifies the bundle: the first digits of the sha256 of its manifest, which has that of all its files
    digest: str
    manifest: Manifest
    device: Device
    limits: RequestLimits

    @property
    def identity(self) -> str:
        """The version and the digest, as responses have them."""
        return f"{self.version}@{self.digest}"

    @property
    def labels(self) -> dict[str, str]:
        """What the metrics say of the version."""
        precision, device = self.manifest.precision, self.device
        return {"version": self.version, "digest": self.digest, "precision": precision, "device": device}

    def info(self, state: ModelState, stored: StoredGlossaries) -> ModelInfo:
        """Return what callers are told of the model in this state. `stored` are the glossaries of the server."""
        manifest, limits = self.manifest, self.limits
        defaults = decoding_defaults(limits)
        return ModelInfo(
            name=self.name,
            version=self.version,
            digest=self.digest,
            source_languages=tuple(manifest.source_languages),
            target_languages=tuple(manifest.target_languages),
            precision=manifest.precision,
            device=self.device,
            license=manifest.license,
            parameters=manifest.architecture.parameters,
            max_source_tokens=limits.tokens.source,
            max_target_tokens=limits.tokens.target,
            default_max_length=limits.tokens.default_max_length,
            decoding_defaults={
                name: value for name in Options.__slots__ if (value := getattr(defaults, name)) not in (None, ())
            },
            glossaries=tuple(stored.names(tuple(manifest.source_languages), tuple(manifest.target_languages))),
            state=state,
            max_beam_size=limits.max_beam_size,
            max_queue_size=limits.max_queue_size,
        )


class CheckedModel(NamedTuple):
    """A version whose files are checked, and its `folders.fingerprint`."""

    description: ModelDescription
    bundle: Bundle
    tokenizer: Tokenizer
    fingerprint: str


@dataclass
class ModelLoader:
    """Loads the versions of one model."""

    name: str  # the name under which the model is served
    folder: Path  # see `folders`
    settings: ServerSettings
    metrics: ModelMetrics
    cpus: Callable[[], int]  # returns the number of CPUs of this model
    shared: SharedCpus  # the CPUs of all models
    pool: TokenizerPool
    # whether `name` is the name in the manifest. A version with another name is then refused
    named_by_manifest: bool = False
    stored: Callable[[], StoredGlossaries] = StoredGlossaries
    remote: RemoteModel | None = None  # brings new versions from a URL into the folder; None if other people bring them

    def __post_init__(self) -> None:
        self._wanted = self.settings.model_version  # the only version to load; "" for the highest that is good
        self._first: CheckedModel | None = None  # the version that `check` has found, until it is loaded

    def check(self) -> CheckedModel:
        """Check the files of the version that `load` will take, and return what it takes.

        Raises:
            StartupError: no version is valid; the message is about the highest one.
        """
        refused: list[StartupError] = []
        for version in self._candidates(self._wanted):
            try:
                self._first = self._check(version)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                return self._first
        raise refused[0]

    async def load(
        self, running: LoadedModel | None = None, version: str | None = None, before: ModelDescription | None = None
    ) -> LoadedModel | None:
        """Load the highest version that is valid and starts, or the version that is wanted; None if it is `running`.

        Versions below the running one are not tried, unless one is wanted: `version` from now on, or "" for that of the
        settings, which is the highest by default, or None for what was wanted before. A version that may be a mistake
        after the one `before`, which was served last, is logged or refused.

        Raises:
            StartupError: no version can be loaded, or none above the one that is loaded. The message is about the
                highest version. What is wanted stays as it was.
        """
        await self._refresh(keeps_running=running is not None)
        if running:  # no lower version takes the place of one that merely cannot be read
            await asyncio.to_thread(has_manifest, running.model.bundle.folder)
        wanted = self._wanted if version is None else version or self.settings.model_version
        loaded, refused = None, list[StartupError]()
        for version_folder in await asyncio.to_thread(self._candidates, wanted):
            try:
                checked = await asyncio.to_thread(self._unless_it_runs, version_folder, running)
                if before and checked:
                    self._compare(before, checked.description)
                loaded = await self._started(checked) if checked else None
                break
            except StartupError as error:
                refused.append(error)
        if loaded:
            self._tell(refused)
        elif refused:
            raise refused[0]
        self._wanted = wanted
        return loaded

    def _candidates(self, wanted: str) -> list[Path]:
        """Return the versions to try, the best first. Raises BundleError if the wanted one is not there."""
        found = versions(self.folder)
        if not wanted:
            return found
        there = [version.name for version in found if version != self.folder]
        if wanted not in there:
            known = f"; there is {listed(there)}" if there else ", because the folder has no versions"
            raise BundleError(f"model bundle {self.folder}: there is no version {shown(wanted)}{known}")
        return [version for version in found if version.name == wanted]

    def _unless_it_runs(self, version: Path, running: LoadedModel | None) -> CheckedModel | None:
        """Check a version, unless it is the one that runs. What `check` has found is not checked again."""
        first, self._first = self._first, None
        known = running.model if running else first
        if known and known.fingerprint == fingerprint(pinned(version)):
            return None if running else first
        return self._check(version)

    async def _refresh(self, *, keeps_running: bool) -> None:
        """Bring the newest version of a URL into the folder.

        Raises BundleError if that fails, and a version runs or there is none to load.
        """
        if self.remote is None or self._first is not None:
            return
        try:
            await asyncio.to_thread(self.remote.refresh, or_keep=not keeps_running)
        except asyncio.CancelledError:
            self.remote.close()  # the server stops, and the thread must not go on
            raise

    async def _started(self, checked: CheckedModel) -> LoadedModel:
        hold = await asyncio.to_thread(self.remote.hold, checked.bundle.folder) if self.remote else None
        release = hold.release if hold else lambda: None
        try:
            dispatcher, pids = make_dispatcher(self.settings, checked, self.metrics, self.cpus(), self.shared)
            cache = translation_cache(self.settings, self.metrics, self.stored)
            await dispatcher.start()
        except BaseException:
            release()
            raise
        return LoadedModel(checked, dispatcher, self.metrics, self.pool, pids, self.stored, cache, release)

    def _compare(self, old: ModelDescription, new: ModelDescription) -> None:
        """Warn of a reload that may be a mistake, or refuse it.

        A version with a name that has changed its files is a mistake, or made without a new name; so is one that
        translates less than the one before. Raises BundleError if the settings refuse it.
        """
        found = []
        if old.manifest.name != new.manifest.name:
            found.append(f"is a bundle of {new.manifest.name}, and not of {old.manifest.name} as the one before")
        for way, side in (("from", "source_languages"), ("to", "target_languages")):
            if lost := [tag for tag in getattr(old.manifest, side) if tag not in getattr(new.manifest, side)]:
                found.append(f"does not translate {way} {listed(lost)} any more")
        if old.version == new.version and old.digest != new.digest:
            found.append(f"has other files than {old.identity}")
        reason = " and ".join(found)
        if reason and self.settings.strict_reload:
            raise BundleError(f"version {new.identity} {reason}, and --strict-reload is set")
        if reason:
            _log.warning("version %s %s", new.identity, reason, extra=data(model=self.name))

    def _check(self, version: Path) -> CheckedModel:
        try:
            return self._check_files(version)
        except BundleError:
            if self.remote and self.remote.mend():
                return self._check_files(version)
            raise

    def _check_files(self, version: Path) -> CheckedModel:
        # The manifest may be replaced while the files are checked. Then the fingerprint is that of the older manifest,
        # and the next reload finds a difference.
        folder = pinned(version)
        found = fingerprint(folder)
        if self.remote:
            self.remote.hold(folder).release()
        bundle, device = choose_bundle(folder, self.settings.device)
        manifest = bundle.manifest
        with bundle.unchanged(manifest.tokenizer.files):
            tokenizer = load_tokenizer(bundle)
        if self.named_by_manifest and self.name not in manifest_names(folder):
            raise BundleError(f"model bundle {version}: its name is {manifest.name}, and {self.name} is served")
        label = manifest.version if version == self.folder else version.name
        limits = limits_of(self.settings, manifest)
        digest = bundle.digest[:_SHOWN_DIGITS]
        return CheckedModel(
            ModelDescription(self.name, label, digest, manifest, device, limits), bundle, tokenizer, found
        )

    def _tell(self, refused: list[StartupError]) -> None:
        for error in refused:
            _log.warning("a version is refused, and a lower one taken: %s", error, extra=data(model=self.name))


def placement_of(settings: ServerSettings, model: ModelDescription, cpus: int, all_cpus: int) -> Placement:
    """The replicas of a model that has so many CPUs for itself, of all CPUs that models lend to each other."""
    return place_replicas(
        model.manifest.architecture.parameters,
        model.device,
        cpus,
        all_cpus,
        rows_of=settings.rows_of,
        beam_limit=settings.beam_limit,
        rows=settings.max_batch_size,
        replicas=settings.replicas,
        threads=settings.threads,
    )


def estimated_memory(model: ModelDescription, plan: Placement) -> int:
    """The memory of the replicas of a model on a CPU, roughly [bytes]: weights, rows, and what each process takes."""
    architecture, tokens = model.manifest.architecture, model.limits.tokens
    weights = sum(entry.size for entry in model.manifest.files.values())
    # In float32: keys and values, of self-attention and cross-attention, and the queries that alignments take. Cells of
    # a recurrent unit are next to nothing.
    of_token = 2 * 4 * architecture.decoder_layers * architecture.key_value_heads * architecture.head_size
    query = 4 * architecture.heads * architecture.head_size
    all_rows = plan.rows + plan.spare_rows
    kept = tokens.source + (0 if architecture.cell_size else tokens.target)
    rows = sum(all_rows) * (kept * of_token + tokens.target * query)
    replicas = len(all_rows)
    if plan.threads > 1 or replicas == 1:
        return replicas * (weights + _PROCESS_BYTES) + rows
    return weights + (1 + replicas) * _PROCESS_BYTES + rows  # they fork from a process that has loaded the weights


def make_dispatcher(
    settings: ServerSettings, model: CheckedModel, metrics: ModelMetrics, cpus: int, shared: SharedCpus
) -> tuple[Dispatcher, Pids]:
    """Make the dispatcher of a version, with replicas on so many CPUs, and return it and their processes.

    They are not started.
    """
    described, manifest = model.description, model.bundle.manifest
    plan = placement_of(settings, described, cpus, shared.count if shared.may_be_lent else 0)
    alone = f", or {plan.lone_threads} while one works alone" if plan.lone_threads > plan.threads else ""
    more = f", and {len(plan.spare_rows)} more while CPUs are idle" if plan.spare_rows else ""
    told = "replicas: %d, of %d threads each%s%s"
    _log.info(told, len(plan.rows), plan.threads, alone, more, extra=data(model=described.name))
    ids = manifest.special_ids
    vocabulary = TargetVocabulary(ids.decoder_start, ids.eos, model.tokenizer.target_surfaces)
    setup = ModelSetup(
        name=described.name,
        bundle=model.bundle,
        device=described.device,
        threads=plan.threads,
        source_capacity=described.limits.tokens.source,
        target_capacity=described.limits.tokens.target,
        log_format=settings.log_format,
        log_level=settings.log_level,
        log_always=logged_always(),
    )
    workers = process_workers(
        plan, vocabulary, setup, patience=settings.replica_timeout, count_loss=metrics.replica_losses.inc
    )
    residents = len(plan.rows)
    dispatcher = Dispatcher(
        workers[:residents],
        spares=Spares(workers[residents:], shared),
        waiting_limit=settings.max_queue_size,
        lone_rows=plan.lone_rows,
        most_priority=settings.max_priority,
        observe=metrics.observe,
        count_repeat=metrics.sentences_repeated.inc,
    )
    return dispatcher, [partial(lambda worker: worker.connection.pid, worker) for worker in workers]


def translation_cache(
    settings: ServerSettings, metrics: ModelMetrics, stored: Callable[[], StoredGlossaries]
) -> TranslationCache | None:
    """Make the cache of a version's translations by the settings of its model; None without one."""
    if not settings.cache_bytes:
        return None
    return TranslationCache(
        settings.cache_bytes,
        shared=settings.cache_shared,
        stored=stored,
        count_texts=metrics.count_cached,
        count_evictions=metrics.cache_evictions.inc,
    )
