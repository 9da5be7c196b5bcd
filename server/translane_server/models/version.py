"""One version of a model: checked, loaded, in use, and retired."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from translane.options import Options
from translane.results import ModelInfo, ModelState
from translane_server.bundle.bundle import Bundle
from translane_server.bundle.devices import Device
from translane_server.bundle.manifest import Manifest
from translane_server.core.cpus import int8_kernels
from translane_server.observation.logs import data
from translane_server.observation.metrics import ModelMetrics, Pids
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.tokenizer import Tokenizer
from translane_server.translation.cache import TranslationCache
from translane_server.translation.limits import RequestLimits
from translane_server.translation.options import decoding_defaults
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import Translator
from translane_server.workers.dispatcher import Dispatcher

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


_PROC = Path("/proc")


def shared_memory(pids: Iterable[int], proc: Path = _PROC) -> int:
    """Return the memory of processes and of their parents [bytes]. Memory that they share counts once.

    A replica may be forked from a process that has loaded the model; this process counts too, but not this program
    itself. The result is 0 on systems without /proc (https://docs.kernel.org/filesystems/proc.html).
    """
    running = {pid for pid in pids if pid > 0}
    running |= {_number(proc / str(pid) / "status", "PPid") for pid in running}
    # Pss, the proportional set size, has a share of each page that several processes have.
    return sum(1024 * _number(proc / str(pid) / "smaps_rollup", "Pss") for pid in running - {0, 1, os.getpid()})


def _number(path: Path, name: str) -> int:
    try:
        found = re.search(rf"^{name}:\s*(\d+)", path.read_text(encoding="ascii", errors="replace"), re.MULTILINE)
    except OSError:  # the process has ended
        return 0
    return int(found[1]) if found else 0


# Time for the running requests of a version that is replaced or unloaded [seconds]. Then they are answered with
# UNAVAILABLE, so that a stream whose caller does not read keeps no version in memory for ever.
_RETIREMENT_TIME = 600.0


@dataclass(eq=False)
class LoadedModel:
    """One version of a model. `start` it before it is used, and `retire` or `stop` it at the end.

    Attributes:
        dispatcher: decodes with the model; it is not started.
        pids: the processes of the replicas.
        cache: of this version's translations; None without one.
        release: called when the files of the version are not needed any more.
        users: number of requests that use the model now.
        last_used: when the last request ended [seconds, monotonic].
    """

    model: CheckedModel
    dispatcher: Dispatcher
    metrics: ModelMetrics
    pool: TokenizerPool
    pids: Pids = ()
    stored: Callable[[], StoredGlossaries] = StoredGlossaries
    cache: TranslationCache | None = None
    release: Callable[[], None] = lambda: None

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
        self.users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self.last_used = time.monotonic()

    async def start(self) -> None:
        """Load the model in its replicas, and warm them up. Raises StartupError."""
        await self.dispatcher.start()
        self.last_used = time.monotonic()

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
