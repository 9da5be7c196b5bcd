"""One version of a model: checked, loaded, in use, and retired."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from translane.options import Options
from translane.results import ModelInfo, ModelState
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device, choose_bundle
from translane_server.bundle.manifest import Manifest, SearchDefaults
from translane_server.core.cpus import int8_kernels
from translane_server.core.errors import BundleError, SettingsError, StartupError
from translane_server.core.terminal import listed, shown
from translane_server.engine.sequence import TargetVocabulary
from translane_server.models.folders import fingerprint, manifest_names, pinned, versions
from translane_server.models.remote_model import RemoteModel
from translane_server.observation.logs import data, logged_always
from translane_server.observation.metrics import ModelMetrics, Pids
from translane_server.settings.server_settings import ModelSettings
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer, load_tokenizer
from translane_server.translation.cache import AnswerCache
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.options import decoding_defaults
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import Translator
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.messages import ModelSetup
from translane_server.workers.placement import place_replicas
from translane_server.workers.processes import process_workers
from translane_server.workers.worker import Worker

# Default limit of source and target lengths [tokens]. A larger capacity of the rows costs memory, and space in the
# processor's caches, even if all sentences are short.
_DEFAULT_MAX_TOKENS = 256


def limits_of(settings: ModelSettings, manifest: Manifest) -> RequestLimits:
    """The limits of requests to a model, and its search defaults.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    return RequestLimits(
        settings.max_request_texts,
        settings.max_queue_size,
        token_limits(settings, manifest),
        settings.beam_limit,
        _search(settings, manifest),
    )


def token_limits(settings: ModelSettings, manifest: Manifest) -> TokenLimits:
    """The limits that both `settings` and the model allow.

    Raises:
        SettingsError: a setting exceeds the limit of the model.
    """
    source = _limit("--max-source-tokens", settings.max_source_tokens, manifest.limits.source_tokens)
    target = _limit("--max-target-tokens", settings.max_target_tokens, manifest.limits.target_tokens)
    default = min(manifest.decoding_defaults.max_length, target)
    return TokenLimits(source, target, default, min(_search(settings, manifest).min_length or 0, default))


def _search(settings: ModelSettings, manifest: Manifest) -> SearchDefaults:
    return manifest.decoding_defaults.search if settings.decoding_defaults else SearchDefaults()


def _limit(flag: str, asked: int | None, possible: int) -> int:
    if asked is None:
        return min(possible, _DEFAULT_MAX_TOKENS)
    if asked > possible:
        raise SettingsError(f"{flag} is {asked}, and the model takes {possible} at most")
    return asked


_SHOWN_DIGITS = 12  # of a digest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelDescription:
    """A model as callers see it: the version that is loaded, or the last one that was, or the first one to be.

    Attributes:
        name: the name under which the model is served.
        version: the name of the version's folder; of a model without versions, what the manifest says.
        digest: identifies the bundle: the first digits of the sha256 of its manifest, which has that of all its files.
    """

    name: str
    version: str
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
                name: value for name in Options.__slots__ if (value := getattr(defaults, name)) is not None
            },
            glossaries=tuple(stored.names(tuple(manifest.source_languages), tuple(manifest.target_languages))),
            state=state,
            max_beam_size=limits.max_beam_size,
            max_queue_size=limits.max_queue_size,
        )


class CheckedModel(NamedTuple):
    """A version whose files are checked. Nothing decodes with it yet."""

    description: ModelDescription
    bundle: Bundle
    tokenizer: Tokenizer
    fingerprint: str


def make_dispatcher(
    settings: ModelSettings, model: CheckedModel, metrics: ModelMetrics, cpus: int
) -> tuple[Dispatcher, Pids]:
    """Make the dispatcher of a model, and the replicas that decode with it. They are not started.

    Args:
        settings: the settings of the model.
        model: the version to decode with.
        metrics: takes the measurements of the replicas.
        cpus: number of CPUs of the model.

    Returns:
        The dispatcher, and the processes of its replicas.
    """
    described, manifest = model.description, model.bundle.manifest
    plan = place_replicas(
        manifest.architecture.parameters,
        described.device,
        cpus,
        rows_of=settings.rows_of,
        beam_limit=settings.beam_limit,
        rows=settings.max_batch_size,
        replicas=settings.replicas,
        threads=settings.threads,
    )
    alone = f", or {plan.lone_threads} while one works alone" if plan.lone_threads > plan.threads else ""
    _log.info(
        "replicas: %d, of %d threads each%s", len(plan.rows), plan.threads, alone, extra=data(model=described.name)
    )
    ids = manifest.special_ids
    vocabulary = TargetVocabulary(ids.decoder_start, ids.eos, model.tokenizer.target_surfaces)
    setup = ModelSetup(
        bundle=model.bundle,
        device=described.device,
        threads=plan.threads,
        source_capacity=described.limits.tokens.source,
        target_capacity=described.limits.tokens.target,
        encode_tokens=settings.encode_tokens,
        log_format=settings.log_format,
        log_level=settings.log_level,
        log_always=logged_always(),
    )
    workers = process_workers(plan, vocabulary, setup, patience=settings.replica_timeout)
    dispatcher = Dispatcher(
        workers,
        waiting_limit=settings.max_queue_size,
        lone_rows=plan.lone_rows,
        most_priority=settings.max_priority,
        observe=metrics.observe,
        count_loss=metrics.losses.inc,
        count_repeat=metrics.repeats.inc,
    )
    return dispatcher, [partial(_pid, worker) for worker in workers]


def _pid(worker: Worker) -> int:
    return worker.connection.pid


def answer_cache(
    settings: ModelSettings, metrics: ModelMetrics, stored: Callable[[], StoredGlossaries]
) -> AnswerCache | None:
    """Make the cache of a version's answers by the settings of its model; None without one."""
    if not settings.cache_bytes:
        return None
    return AnswerCache(
        settings.cache_bytes,
        shared=settings.cache_shared,
        stored=stored,
        count_texts=metrics.count_cached,
        count_evictions=metrics.cache_evictions.inc,
    )


_PROC = Path("/proc")


def shared_memory(pids: Iterable[int], proc: Path = _PROC) -> int:
    """Return the memory of processes and of their parents [bytes]. Memory that they share counts once.

    A replica may be forked from a process that has loaded the model; this process counts too, but not this program
    itself. The result is 0 on systems without /proc (https://docs.kernel.org/filesystems/proc.html).
    """
    running = {pid for pid in pids if pid > 0}
    running |= {_parent(proc / str(pid)) for pid in running}
    return sum(_proportional_set_size(proc / str(pid)) for pid in running - {0, 1, os.getpid()})


def _parent(process: Path) -> int:
    found = re.search(r"^PPid:\s*(\d+)", _read(process / "status"), re.MULTILINE)
    return int(found[1]) if found else 0


def _proportional_set_size(process: Path) -> int:
    """Memory of a process [bytes], with its share of each page that several processes have."""
    found = re.search(r"^Pss:\s*(\d+) kB", _read(process / "smaps_rollup"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:  # the process has ended
        return ""


# Time for the running requests of a version that is replaced or unloaded [seconds]. Then they are answered with
# UNAVAILABLE, so that a stream whose caller does not read keeps no version in memory for ever.
_RETIREMENT_TIME = 600.0


class LoadedModel:
    """One version of a model. `start` it before it is used, and `retire` or `stop` it at the end.

    Args:
        model: the version.
        dispatcher: decodes with the model; it is not started.
        metrics: the metrics of the model.
        pool: turns texts into tokens, and tokens into texts.
        pids: the processes of the replicas.
        stored: returns the glossaries of the server.
        answers: the cache of this version's answers; None without one.
        release: called when the files of the version are not needed any more.
        clock: monotonic clock [seconds].

    Attributes:
        description: the version as callers see it.
        fingerprint: identifies the version and its place; see `folders.fingerprint`.
        translator: translates with the version.
        last_used: when the last request ended [seconds of the clock].
    """

    def __init__(
        self,
        model: CheckedModel,
        dispatcher: Dispatcher,
        metrics: ModelMetrics,
        pool: TokenizerPool,
        *,
        pids: Pids = (),
        stored: Callable[[], StoredGlossaries] = StoredGlossaries,
        answers: AnswerCache | None = None,
        release: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.description = described = model.description
        self.fingerprint = model.fingerprint
        self.dispatcher = dispatcher
        self.translator = Translator(
            described.name,
            described.manifest,
            model.tokenizer,
            described.limits,
            dispatcher,
            pool,
            metrics,
            version=described.identity,
            stored=stored,
            cache=answers,
        )
        self._metrics = metrics
        self._pids = pids
        self._release = release
        self._clock = clock
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self.last_used = clock()

    @property
    def has_failed(self) -> bool:
        """Whether decoding has failed for good."""
        return self.dispatcher.failed.is_set()

    @property
    def is_available(self) -> bool:
        """Whether the model can decode now."""
        return self.dispatcher.is_available

    @property
    def users(self) -> int:
        """Number of requests that use the model now."""
        return self._users

    async def start(self) -> None:
        """Load the model in its replicas, and warm them up.

        Raises:
            StartupError: the dispatcher cannot start.
        """
        await self.dispatcher.start()
        if self.has_failed:
            await self.dispatcher.stop()
            raise StartupError("a replica was lost while another one started")
        self.last_used = self._clock()

    async def announce(self) -> None:
        """Report in the metrics and in the log that this version serves. The metrics have it at once."""
        dispatcher, described = self.dispatcher, self.description
        self._metrics.describe(described.labels)
        self._metrics.watch(
            dispatcher.rows,
            lambda: dispatcher.active_rows,
            lambda: dispatcher.waiting,
            dispatcher.waiting_limit,
            self._pids,
        )
        if cache := self.translator.cache:
            store = cache.store
            self._metrics.watch_cache(lambda: len(store), lambda: store.bytes)
        memory = await asyncio.to_thread(shared_memory, [pid() for pid in self._pids])
        self._metrics.set_memory(memory)
        computes_int8 = described.manifest.precision == "int8" and described.device == "cpu"
        facts = data(
            model=described.name,
            version=described.version,
            digest=described.digest,
            precision=described.manifest.precision,
            memory_mb=round(memory / 1e6),
            **({"int8_kernels": int8_kernels()} if computes_int8 else {}),
        )
        _log.info("serving on %s with %d rows", described.device, dispatcher.rows, extra=facts)

    def __enter__(self) -> LoadedModel:
        """Count a request that uses the model. `retire` waits for its end."""
        self._users += 1
        self._unused.clear()
        return self

    def __exit__(self, *exception: object) -> None:
        self.last_used = self._clock()
        self._users -= 1
        if not self._users:
            self._unused.set()

    async def retire(self, patience: float = _RETIREMENT_TIME) -> None:
        """Wait until the running requests are answered, and stop. No new request may use the model any more.

        Args:
            patience: time for the running requests [seconds]. Then they are answered with UNAVAILABLE.
        """
        if cache := self.translator.cache:
            cache.close()
        try:
            await asyncio.wait_for(self._unused.wait(), patience)
        except TimeoutError:
            facts = data(model=self.description.name, version=self.description.version)
            _log.warning("%d requests were not finished after %g seconds", self._users, patience, extra=facts)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the replicas at once. Unfinished requests are answered with UNAVAILABLE."""
        await self.dispatcher.stop()
        self._release()


class ModelLoader:
    """Loads the versions of one model.

    Args:
        name: the name under which the model is served.
        folder: the model's folder; see `folders`.
        settings: the settings of this model.
        metrics: the metrics of this model.
        cpus: returns the number of CPUs of this model.
        pool: turns texts into tokens, and tokens into texts.
        named_by_manifest: whether `name` is the name in the manifest. A version with another name is then refused.
        stored: returns the glossaries of the server.
        remote: brings new versions from a URL into the folder; None if other people bring them.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: ModelSettings,
        metrics: ModelMetrics,
        cpus: Callable[[], int],
        pool: TokenizerPool,
        *,
        named_by_manifest: bool = False,
        stored: Callable[[], StoredGlossaries] = StoredGlossaries,
        remote: RemoteModel | None = None,
    ) -> None:
        self._name = name
        self._stored = stored
        self._folder = folder
        self._settings = settings
        self._metrics = metrics
        self._cpus = cpus
        self._pool = pool
        self._named_by_manifest = named_by_manifest
        self._remote = remote
        self._wanted = settings.model_version  # the only version to load; "" for the highest that is good
        self._checked: CheckedModel | None = None  # the first version, until it is loaded

    def check(self) -> CheckedModel:
        """Check the files of the version that `load` will take, and return what it takes.

        Raises:
            StartupError: no version is valid; the message is about the highest one.
        """
        refused: list[StartupError] = []
        for version in self._candidates(self._wanted):
            try:
                self._checked = self._check(version)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                return self._checked
        raise refused[0]

    async def load(self, running: LoadedModel | None = None, version: str | None = None) -> LoadedModel | None:
        """Load the highest version that is valid and starts, or the version that is wanted.

        Args:
            running: the version that is loaded. Versions below it are not tried, unless one is wanted.
            version: the version that is wanted from now on; "" for that of the settings, which is the highest by
                default. None if what is wanted stays as it was.

        Returns:
            The started model; or None if `running` is what is wanted.

        Raises:
            StartupError: no version can be loaded, or none above the one that is loaded. The message is about the
                highest version. What is wanted stays as it was.
        """
        await self._refresh(keeps_running=running is not None)
        wanted = self._wanted if version is None else version or self._settings.model_version
        refused: list[StartupError] = []
        for candidate in await asyncio.to_thread(self._candidates, wanted):
            try:
                if running and await asyncio.to_thread(_fingerprint, candidate) == running.fingerprint:
                    break
                loaded = await self._load(candidate, running)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                self._wanted = wanted
                return loaded
        if refused:
            raise refused[0]
        self._wanted = wanted
        return None

    def _candidates(self, wanted: str) -> list[Path]:
        """Return the versions to try, the best first.

        Raises:
            BundleError: the wanted version is not there.
        """
        found = versions(self._folder)
        if not wanted:
            return found
        named = [version for version in found if version.name == wanted and version != self._folder]
        if not named:
            there = [version.name for version in found if version != self._folder]
            known = f"; there is {listed(there)}" if there else ", because the folder has no versions"
            raise BundleError(f"model {self._folder}: there is no version {shown(wanted)}{known}")
        return named

    async def _refresh(self, *, keeps_running: bool) -> None:
        """Bring the newest version of a URL into the folder.

        Raises:
            BundleError: that fails, and a version runs, or there is none to load.
        """
        if self._remote is None or self._checked is not None:
            return
        try:
            await asyncio.to_thread(self._remote.refresh, or_keep=not keeps_running)
        except asyncio.CancelledError:
            self._remote.close()  # the server stops, and the thread must not go on
            raise

    async def _load(self, version: Path, running: LoadedModel | None) -> LoadedModel:
        checked, self._checked = self._checked, None
        if checked is None or checked.fingerprint != await asyncio.to_thread(_fingerprint, version):
            checked = await asyncio.to_thread(self._check, version)
        if running:
            self._compare(running.description, checked.description)
        hold = await asyncio.to_thread(self._remote.hold, checked.bundle.folder) if self._remote else None
        release = hold.release if hold else lambda: None
        try:
            dispatcher, pids = make_dispatcher(self._settings, checked, self._metrics, self._cpus())
            loaded = LoadedModel(
                checked,
                dispatcher,
                self._metrics,
                self._pool,
                pids=pids,
                stored=self._stored,
                answers=answer_cache(self._settings, self._metrics, self._stored),
                release=release,
            )
            await loaded.start()
        except BaseException:
            release()
            raise
        return loaded

    def _compare(self, old: ModelDescription, new: ModelDescription) -> None:
        """Warn of a reload that may be a mistake, or refuse it.

        Raises:
            BundleError: the settings say that it is refused.
        """
        if not (reason := suspicion(old, new)):
            return
        if self._settings.strict_reload:
            raise BundleError(f"version {new.identity} {reason}, and --strict-reload is set")
        _log.warning("version %s %s", new.identity, reason, extra=data(model=self._name))

    def _check(self, version: Path) -> CheckedModel:
        try:
            return self._check_files(version)
        except BundleError:
            if self._remote is None or not self._remote.mend():
                raise
        return self._check_files(version)

    def _check_files(self, version: Path) -> CheckedModel:
        # The manifest may be replaced while the files are checked. Then the fingerprint is that of the older manifest,
        # and the next reload finds a difference.
        folder = pinned(version)
        found = fingerprint(folder)
        if self._remote:
            self._remote.hold(folder).release()
        bundle, device = choose_bundle(folder, self._settings.device)
        manifest = bundle.manifest
        with bundle.unchanged(manifest.tokenizer.files):
            tokenizer = load_tokenizer(bundle)
        if self._named_by_manifest and self._name not in manifest_names(folder):
            raise BundleError(f"model bundle {version}: its name is {manifest.name}, and {self._name} is served")
        label = manifest.version if version == self._folder else version.name
        limits = limits_of(self._settings, manifest)
        digest = bundle.digest[:_SHOWN_DIGITS]
        return CheckedModel(
            ModelDescription(self._name, label, digest, manifest, device, limits), bundle, tokenizer, found
        )

    def _tell(self, refused: list[StartupError]) -> None:
        for error in refused:
            _log.warning("a version is refused, and a lower one taken: %s", error, extra=data(model=self._name))


def suspicion(old: ModelDescription, new: ModelDescription) -> str:
    """Why a new version may be a mistake, for a sentence about it; "" if nothing says so.

    A version with a name that has changed its files is a mistake, or made without a new name; so is one that
    translates less than the one before.
    """
    found = []
    if old.manifest.name != new.manifest.name:
        found.append(f"is a bundle of {new.manifest.name}, and not of {old.manifest.name} as the one before")
    lost = {
        "from": [tag for tag in old.manifest.source_languages if tag not in new.manifest.source_languages],
        "to": [tag for tag in old.manifest.target_languages if tag not in new.manifest.target_languages],
    }
    found += [f"does not translate {way} {listed(tags)} any more" for way, tags in lost.items() if tags]
    if old.version == new.version and old.digest != new.digest:
        found.append(f"has other files than {old.identity}")
    return " and ".join(found)


def _fingerprint(version: Path) -> str:
    return fingerprint(pinned(version))
