"""One version of a model: checked, loaded, in use, and retired."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device, choose_bundle
from translane_server.bundle.manifest import Manifest, SearchDefaults
from translane_server.core.cpus import int8_kernels
from translane_server.core.errors import BundleError, SettingsError, StartupError
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


_log = logging.getLogger(__name__)


class CheckedModel(NamedTuple):
    """A version whose files are checked. Nothing decodes with it yet."""

    bundle: Bundle
    device: Device
    tokenizer: Tokenizer
    limits: RequestLimits
    fingerprint: str


def make_dispatcher(
    name: str, settings: ModelSettings, model: CheckedModel, metrics: ModelMetrics, cpus: int
) -> tuple[Dispatcher, Pids]:
    """Make the dispatcher of a model, and the replicas that decode with it. They are not started.

    Args:
        name: the model's name.
        settings: the settings of the model.
        model: the version to decode with.
        metrics: takes the measurements of the replicas.
        cpus: number of CPUs of the model.

    Returns:
        The dispatcher, and the processes of its replicas.
    """
    manifest = model.bundle.manifest
    plan = place_replicas(
        manifest.architecture.parameters,
        model.device,
        cpus,
        rows_of=settings.rows_of,
        beam_limit=settings.beam_limit,
        rows=settings.max_batch_size,
        replicas=settings.replicas,
        threads=settings.threads,
    )
    alone = f", or {plan.lone_threads} while one works alone" if plan.lone_threads > plan.threads else ""
    _log.info("replicas: %d, of %d threads each%s", len(plan.rows), plan.threads, alone, extra=data(model=name))
    ids = manifest.special_ids
    vocabulary = TargetVocabulary(ids.decoder_start, ids.eos, model.tokenizer.target_surfaces)
    setup = ModelSetup(
        bundle=model.bundle,
        device=model.device,
        threads=plan.threads,
        source_capacity=model.limits.tokens.source,
        target_capacity=model.limits.tokens.target,
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
        name: the name under which the model is served.
        manifest: the manifest of the version.
        tokenizer: the model's tokenizer.
        device: the device that runs the model.
        limits: the limits of requests to the model.
        dispatcher: decodes with the model; it is not started.
        metrics: the metrics of the model.
        pool: turns texts into tokens, and tokens into texts.
        fingerprint: identifies the version; see `folders.fingerprint`.
        pids: the processes of the replicas.
        stored: returns the glossaries of the server.
        answers: the cache of this version's answers; None without one.
        release: called when the files of the version are not needed any more.
        clock: monotonic clock [seconds].

    Attributes:
        translator: translates with the version.
        last_used: when the last request ended [seconds of the clock].
    """

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        tokenizer: Tokenizer,
        device: Device,
        limits: RequestLimits,
        dispatcher: Dispatcher,
        metrics: ModelMetrics,
        pool: TokenizerPool,
        *,
        fingerprint: str = "",
        pids: Pids = (),
        stored: Callable[[], StoredGlossaries] = StoredGlossaries,
        answers: AnswerCache | None = None,
        release: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.manifest = manifest
        self.device = device
        self.limits = limits
        self.dispatcher = dispatcher
        self.metrics = metrics
        self.fingerprint = fingerprint
        self.translator = Translator(
            name, manifest, tokenizer, limits, dispatcher, pool, metrics, stored=stored, cache=answers
        )
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
        dispatcher, manifest = self.dispatcher, self.manifest
        self.metrics.describe(version=manifest.version, precision=manifest.precision, device=self.device)
        self.metrics.watch(
            dispatcher.rows,
            lambda: dispatcher.active_rows,
            lambda: dispatcher.waiting,
            dispatcher.waiting_limit,
            self._pids,
        )
        if cache := self.translator.cache:
            store = cache.store
            self.metrics.watch_cache(lambda: len(store), lambda: store.bytes)
        memory = await asyncio.to_thread(shared_memory, [pid() for pid in self._pids])
        self.metrics.set_memory(memory)
        computes_int8 = manifest.precision == "int8" and self.device == "cpu"
        facts = data(
            model=self.name,
            version=manifest.version,
            precision=manifest.precision,
            memory_mb=round(memory / 1e6),
            **({"int8_kernels": int8_kernels()} if computes_int8 else {}),
        )
        _log.info("serving on %s with %d rows", self.device, dispatcher.rows, extra=facts)

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
            _log.warning("%d requests were not finished after %g seconds", self._users, patience, extra=self._facts())
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the replicas at once. Unfinished requests are answered with UNAVAILABLE."""
        await self.dispatcher.stop()
        self._release()

    def _facts(self) -> dict[str, object]:
        return dict(data(model=self.name, version=self.manifest.version))


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
        self._checked: CheckedModel | None = None  # the first version, until it is loaded

    def check(self) -> CheckedModel:
        """Check the files of the highest version, or of the next one if it is bad. The next `load` takes that version.

        Raises:
            StartupError: no version is valid; the message is about the highest one.
        """
        refused: list[StartupError] = []
        for version in versions(self._folder):
            try:
                self._checked = self._check(version)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                return self._checked
        raise refused[0]

    async def load(self, running: str = "") -> LoadedModel | None:
        """Load the highest version that is valid and starts.

        Args:
            running: fingerprint of the version that is loaded. Versions below it are not tried.

        Returns:
            The started model; or None if the highest version is the one that is loaded.

        Raises:
            StartupError: no version can be loaded, or none above the one that is loaded. The message is about the
                highest version.
        """
        await self._refresh(keeps_running=bool(running))
        refused: list[StartupError] = []
        for version in await asyncio.to_thread(versions, self._folder):
            try:
                if running and await asyncio.to_thread(_fingerprint, version) == running:
                    break
                loaded = await self._load(version)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                return loaded
        if refused:
            raise refused[0]
        return None

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

    async def _load(self, version: Path) -> LoadedModel:
        checked, self._checked = self._checked, None
        if checked is None or checked.fingerprint != await asyncio.to_thread(_fingerprint, version):
            checked = await asyncio.to_thread(self._check, version)
        hold = await asyncio.to_thread(self._remote.hold, checked.bundle.folder) if self._remote else None
        release = hold.release if hold else lambda: None
        try:
            return await self._start(checked, release)
        except BaseException:
            release()
            raise

    async def _start(self, checked: CheckedModel, release: Callable[[], None]) -> LoadedModel:
        dispatcher, pids = make_dispatcher(self._name, self._settings, checked, self._metrics, self._cpus())
        loaded = LoadedModel(
            self._name,
            checked.bundle.manifest,
            checked.tokenizer,
            checked.device,
            checked.limits,
            dispatcher,
            self._metrics,
            self._pool,
            fingerprint=checked.fingerprint,
            pids=pids,
            stored=self._stored,
            answers=answer_cache(self._settings, self._metrics, self._stored),
            release=release,
        )
        await loaded.start()
        return loaded

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
        return CheckedModel(bundle, device, tokenizer, limits_of(self._settings, manifest), found)

    def _tell(self, refused: list[StartupError]) -> None:
        for error in refused:
            _log.warning("a version is refused, and a lower one taken: %s", error, extra=data(model=self._name))


def _fingerprint(version: Path) -> str:
    return fingerprint(pinned(version))
