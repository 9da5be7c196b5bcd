"""A model of a server: what callers are told of it, its state, and the version of it that is in use."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from translane.requests import ScoringRequest, TranslationRequest
from translane.results import Delta, ModelInfo, ModelState, Scores, Translations
from translane_server.core.errors import QueueFullError, StartupError, UnavailableError, shutting_down, starting
from translane_server.core.machine import int8_kernels, shared_memory
from translane_server.observation.logs import data
from translane_server.observation.metrics import REFUSED, RELOADED, ModelMetrics, Pids
from translane_server.text.glossaries import StoredGlossaries
from translane_server.translation.cache import TranslationCache
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import FREE, Ticket, Translator
from translane_server.workers.dispatcher import Dispatcher

if TYPE_CHECKING:
    from translane_server.models.loader import CheckedModel, ModelDescription, ModelLoader

# Time for the running requests of a version that is replaced or unloaded [seconds]. Then they are answered with
# UNAVAILABLE, so that a stream whose caller does not read keeps no version in memory for ever.
_RETIREMENT_TIME = 600.0
# How long a caller should wait before it tries again [seconds].
_RETRY_FULL = 1.0
# After a failure to load a model on demand, no request tries again for this time [seconds].
_RETRY_LOADING = 10.0
_COLLECTING_DELAY = 1.0  # from the end of a version until its memory is collected [seconds]

_log = logging.getLogger(__name__)


@dataclass(eq=False)
class LoadedModel:
    """One version of a model, whose dispatcher is started. `retire` or `stop` it at the end."""

    model: CheckedModel
    dispatcher: Dispatcher  # decodes with the model
    metrics: ModelMetrics
    pool: TokenizerPool
    pids: Pids = ()  # the processes of the replicas
    stored: Callable[[], StoredGlossaries] = StoredGlossaries
    cache: TranslationCache | None = None  # of this version's translations; None without one
    release: Callable[[], None] = lambda: None  # called when the files of the version are not needed any more

    def __post_init__(self) -> None:
        self.description = described = self.model.description
        self.translator = Translator(
            described.name,
            described.manifest,
            self.model.tokenizer,
            described.limits,
            self.dispatcher,
            self.pool,
            self.metrics,
            version=described.identity,
            stored=self.stored,
            cache=self.cache,
        )
        self.users = 0  # number of requests that use the model now
        self._unused = asyncio.Event()
        self._unused.set()
        self.last_used = time.monotonic()  # when the last request ended [seconds, monotonic]

    async def announce(self) -> None:
        """Report in the metrics and in the log that this version serves. The metrics have it at once."""
        dispatcher, described = self.dispatcher, self.description
        self.metrics.description = described.labels
        self.metrics.watch(dispatcher, self.pids)
        if cache := self.cache:
            store = cache.store
            self.metrics.watch_cache(lambda: len(store), lambda: store.bytes)
        memory = await asyncio.to_thread(shared_memory, [pid() for pid in self.pids])
        self.metrics.memory = memory
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
        self.users += 1
        self._unused.clear()
        return self

    def __exit__(self, *exception: object) -> None:
        self.last_used = time.monotonic()
        self.users -= 1
        if not self.users:
            self._unused.set()

    async def retire(self, patience: float = _RETIREMENT_TIME) -> None:
        """Wait until the running requests are answered, and stop. No new request may use the model any more.

        After `patience` seconds they are answered with UNAVAILABLE.
        """
        if cache := self.cache:
            cache.close()
        try:
            await asyncio.wait_for(self._unused.wait(), patience)
        except TimeoutError:
            facts = data(model=self.description.name, version=self.description.version)
            _log.warning("%d requests were not finished after %g seconds", self.users, patience, extra=facts)
        finally:
            await self.stop()

    async def stop(self) -> None:
        """End the replicas at once. Unfinished requests are answered with UNAVAILABLE."""
        await self.dispatcher.stop()
        self.release()


class ServedModel:
    """A model, its state, and the version that requests get.

    Changes wait for each other: at any time, at most one version is loading, and at most two are in memory. All calls
    come from one event loop.
    """

    def __init__(self, description: ModelDescription, loader: ModelLoader, metrics: ModelMetrics) -> None:
        self.name = description.name
        # the model as callers see it: of the version that was loaded last, or of the first one to be
        self.description = description
        self.changed: Callable[[], None] = lambda: None  # called when the state has changed
        # the version that new requests get; None if requests have to wait, or are refused
        self.ready: LoadedModel | None = None
        self._state = ModelState.LOADING
        self._loader = loader
        self._metrics = metrics
        self.metrics = (metrics,)  # where its requests are counted
        self._clock = time.monotonic
        self._turn = asyncio.Lock()
        self._retirement: asyncio.Task[None] | None = None  # of the version before
        self._waiting = 0  # requests that wait until the model is loaded
        self._demand: asyncio.Task[None] | None = None
        self._tries_again_at = -float("inf")
        self._stopped = False

    @property
    def state(self) -> ModelState:
        """What callers are told: FAILED while the model is loaded, and no replica of it stays alive."""
        is_failing = self._state is ModelState.READY and self.ready is not None and self.ready.dispatcher.is_failing
        return ModelState.FAILED if is_failing else self._state

    @property
    def can_translate(self) -> bool:
        """Whether a request gets a translation, at once or after the model is loaded."""
        if self.ready:
            return self.ready.dispatcher.is_available
        return self._state is ModelState.IDLE

    def info(self, stored: StoredGlossaries) -> ModelInfo:
        """Return what callers are told of the model. `stored` are the glossaries of the server."""
        return self.description.info(self.state, stored)

    # Changes of the operator

    async def load(self, *, only_if_idle: bool = False) -> None:
        """Load the model, unless it is loaded. Raises StartupError if no version can be loaded."""
        async with self._change():
            if only_if_idle and self._state is not ModelState.IDLE:
                return
            if self.ready is None or self.ready.dispatcher.is_failing:
                served = None if self._state is ModelState.LOADING else self.description
                new = await self._loader.load(before=served)
                assert new is not None, "there is no version to be the same"
                await self._take(new)

    async def reload(self, version: str | None = None) -> bool:
        """Replace the version that is loaded by the newest one; return whether it is another. No request is lost.

        A model that is not loaded stays so: its next load takes the newest version anyway. The requests of the version
        before may still run when this method returns. For `version` see `ModelLoader.load`.

        Raises:
            StartupError: the newest version cannot be loaded. The version that was loaded goes on.
        """
        async with self._change():
            old = self.ready
            if old is None:
                if version:
                    raise StartupError("the model is not loaded, and takes no other version; load it first")
                return False
            try:
                running = None if old.dispatcher.is_failing else old
                new = await self._loader.load(running, version, before=old.description)
            except StartupError as error:
                self._metrics.count_reload(REFUSED)
                _log.error(
                    "a new version is refused, and version %s goes on: %s",
                    old.description.identity,
                    error,
                    extra=data(model=self.name),
                )
                raise
            if new is None:
                return False
            self._metrics.count_reload(RELOADED)
            await self._take(new)
            return True

    async def unload(self) -> None:
        """Finish the running requests, and free the memory. New requests are refused until `load`."""
        async with self._change():
            await self._unload(ModelState.UNLOADED)

    async def unload_if_unused(self, seconds: float) -> None:
        """Free the memory if no request has used the model for `seconds`. The next request loads the model."""
        if not self._is_unused(seconds) or self._turn.locked():
            return
        async with self._change():
            if self._is_unused(seconds):
                _log.info("not used for %g seconds: unloading", seconds, extra=data(model=self.name))
                await self._unload(ModelState.IDLE)

    async def remove(self) -> None:
        """Finish the running requests, free the memory, and remove the series of the model from the metrics."""
        await self.unload()
        self._metrics.remove()

    async def stop(self) -> None:
        """End the model at once. Unfinished requests are answered with UNAVAILABLE."""
        self._stopped = True
        tasks = [task for task in (self._demand, self._retirement) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.ready:
            await self.ready.stop()

    # Requests

    async def check(self, request: TranslationRequest, ticket: Ticket = FREE) -> None:
        """See `Step`."""
        with self.ready or await self.wait_until_ready() as version:
            await version.translator.check(request, ticket)

    async def translate(self, request: TranslationRequest, ticket: Ticket = FREE) -> Translations:
        """See `Translates`. The request keeps its version of the model to its end."""
        started = time.perf_counter()
        with self.ready or await self.wait_until_ready() as version:
            return await version.translator.translate(request, ticket, started)

    async def stream(self, request: TranslationRequest, ticket: Ticket = FREE) -> AsyncGenerator[Delta]:
        """See `Translates`. The request keeps its version of the model to its end."""
        started = time.perf_counter()
        with self.ready or await self.wait_until_ready() as version:
            async with aclosing(version.translator.stream(request, ticket, started)) as deltas:
                async for delta in deltas:
                    yield delta

    async def score(self, request: ScoringRequest, ticket: Ticket = FREE) -> Scores:
        """See `Translator`. The request keeps its version of the model to its end."""
        started = time.perf_counter()
        with self.ready or await self.wait_until_ready() as version:
            return await version.translator.score(request, ticket, started)

    async def wait_until_ready(self) -> LoadedModel:
        """Return the version for a request, after the model is loaded if it was not in use for a time.

        Raises:
            UnavailableError: the model is loading for the first time, is unloaded, or cannot be loaded.
            QueueFullError: too many requests wait for the model.
        """
        limit = self.description.limits.max_queue_size
        if self._waiting >= limit:
            raise QueueFullError(
                f"{self._waiting} requests are waiting until {self.name} is loaded", retry_after=_RETRY_FULL
            )
        self._waiting += 1
        try:
            while self.ready is None:
                self._check_demand()
                if self._demand is None or self._demand.done():
                    self._demand = asyncio.create_task(self._load_for_requests())
                await asyncio.wait([self._demand])  # a caller who goes away does not stop the load
            return self.ready
        finally:
            self._waiting -= 1

    def _check_demand(self) -> None:
        """Refuse a request that may not load the model."""
        if self._stopped:
            raise shutting_down()
        if self._state is ModelState.LOADING:
            raise starting()
        if self._state is not ModelState.IDLE:
            raise UnavailableError(f"the model {self.name} is unloaded", retry_after=_RETRY_LOADING)
        if (wait := self._tries_again_at - self._clock()) > 0:
            raise UnavailableError(
                f"the model {self.name} cannot be loaded; the server's log has the details", retry_after=wait
            )

    async def _load_for_requests(self) -> None:
        try:
            # While this waits for other changes, an operator may unload the model.
            await self.load(only_if_idle=True)
        except Exception as error:  # noqa: BLE001 the requests that wait are answered in any case
            self._tries_again_at = self._clock() + _RETRY_LOADING
            bug = None if isinstance(error, StartupError) else error
            _log.error("it cannot be loaded: %s", error, extra=data(model=self.name), exc_info=bug)

    # Steps of the changes

    @asynccontextmanager
    async def _change(self) -> AsyncIterator[None]:
        """Wait for other changes, and for the end of the version before the one that is loaded."""
        async with self._turn:
            if self._retirement:
                await asyncio.wait([self._retirement])
            yield

    async def _take(self, new: LoadedModel) -> None:
        """Let all new requests use `new`, and end the version before when its requests are answered."""
        if self._stopped:
            await new.stop()
            raise StartupError("the server is shutting down")
        old, self.ready = self.ready, new
        self.description = new.description
        new.dispatcher.availability_changed = lambda: self.changed()
        self._state = ModelState.READY
        self.changed()
        if old:
            self._retirement = asyncio.create_task(self._retire(old))
        await new.announce()

    async def _unload(self, state: ModelState) -> None:
        old, self.ready = self.ready, None
        self._tries_again_at = -float("inf")
        self._metrics.unwatch()
        self._state = state
        self.changed()
        if old:
            self._retirement = asyncio.create_task(self._retire(old))
            await asyncio.wait([self._retirement])
            _log.info("unloaded", extra=data(model=self.name, version=old.description.version))

    async def _retire(self, old: LoadedModel) -> None:
        await old.retire()
        # Readers and their caches refer to each other, and hold the tokenizer. Soon nothing else refers to them.
        asyncio.get_running_loop().call_later(_COLLECTING_DELAY, gc.collect)

    def _is_unused(self, seconds: float) -> bool:
        model = self.ready
        return model is not None and not model.users and self._clock() - model.last_used >= seconds
