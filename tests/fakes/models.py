"""Models whose versions load when a test lets them."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from fakes.serving import FakeModel, checked_model, make_manifest, make_settings
from translane_server.core.errors import UnavailableError
from translane_server.models.loader import CheckedModel, ModelDescription, ModelLoader
from translane_server.models.served_model import LoadedModel, ServedModel
from translane_server.observation.metrics import Metrics, ModelMetrics
from translane_server.translation.limits import RequestLimits, limits_of
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.workers.dispatcher import Dispatcher


@dataclass
class FakeDecoder:
    """What metrics read of a dispatcher."""

    rows: int = 0
    active_rows: int = 0
    waiting: int = 0
    waiting_limit: int = 0
    is_available: bool = True


class FakeDispatcher(FakeDecoder):
    """Decodes nothing; says whether it was stopped."""

    stopped = is_failing = False
    availability_changed: Callable[[], None]

    def fail(self) -> None:
        self.is_available, self.is_failing = False, True
        self.availability_changed()

    def recover(self) -> None:
        self.is_available, self.is_failing = True, False
        self.availability_changed()

    async def stop(self) -> None:
        self.stopped = True


class FakeLoader(ModelLoader):
    """Loads `newest`, a version or an error, after `gate` is open."""

    def __init__(
        self, name: str, newest: str | Exception, limits: RequestLimits, metrics: ModelMetrics, languages: Any
    ) -> None:
        self.name = name
        self.newest = newest
        self.loads = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._limits = limits
        self._metrics = metrics
        self._languages = languages

    def checked(self, version: str) -> CheckedModel:
        return checked_model(FakeModel(make_manifest(name=self.name, version=version, **self._languages)), self._limits)

    async def load(
        self, running: LoadedModel | None = None, version: str | None = None, before: ModelDescription | None = None
    ) -> LoadedModel | None:
        self.loads += 1
        newest = self.newest
        await self.gate.wait()
        if isinstance(newest, Exception):
            raise newest
        if running and newest == running.model.fingerprint:
            return None
        return LoadedModel(self.checked(newest), cast("Dispatcher", FakeDispatcher()), self._metrics, TokenizerPool())


class Model(ServedModel):
    """A served model with its fake loader."""

    def __init__(self, metrics: Metrics, name: str = "m", newest: str = "1", **languages: Any) -> None:
        limits = limits_of(make_settings(max_request_texts=2, max_queue_size=3).of_model(name), make_manifest())
        of_model = metrics.of_model(name)
        self.loader = FakeLoader(name, newest, limits, of_model, languages)
        super().__init__(self.loader.checked("0").description, self.loader, of_model)

    async def refuses(self) -> str:
        """The message with which a request is refused."""
        with pytest.raises(UnavailableError) as caught:
            await self.wait_until_ready()
        return str(caught.value)


def never(name: str, _folder: Path) -> ServedModel:
    """No model is found in a folder: `serve` of a `Registry` whose models a test adds."""
    raise AssertionError(name)


def models_of(metrics: Metrics, *pairs: str, kind: type[Model] = Model) -> list[Any]:
    """A model for each of `pairs`, such as de.fr--en: its source and its target languages."""
    found = []
    for pair in pairs:
        source, target = (side.split(".") for side in pair.split("--"))
        found.append(kind(metrics, pair, source_languages=source, target_languages=target))
    return found


async def turns(count: int = 20) -> None:
    """Let all tasks go on until they wait for something else."""
    for _ in range(count):
        await asyncio.sleep(0)
