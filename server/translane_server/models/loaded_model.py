"""A model that is loaded: one version, with everything that requests for it need."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from translane_server.bundle.devices import Device
from translane_server.bundle.manifest import Manifest
from translane_server.core.errors import StartupError
from translane_server.models.memory import shared_memory
from translane_server.models.model_list import kernels_of
from translane_server.observation.logs import data
from translane_server.observation.model_metrics import ModelMetrics, Pids
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.cache import AnswerCache
from translane_server.translation.limits import RequestLimits
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import Translator
from translane_server.workers.dispatcher import Dispatcher

# Time for the running requests of a version that is replaced or unloaded [seconds]. Then they are answered with
# UNAVAILABLE, so that a stream whose caller does not read keeps no version in memory for ever.
_RETIREMENT_TIME = 600.0

_log = logging.getLogger(__name__)


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
        kernels = kernels_of(manifest, self.device)
        facts = data(
            model=self.name,
            version=manifest.version,
            precision=manifest.precision,
            memory_mb=round(memory / 1e6),
            **({"int8_kernels": kernels} if kernels else {}),
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
