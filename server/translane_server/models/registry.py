"""The models of a server: they are loaded, reloaded, unloaded and removed, and requests get theirs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from translane.results import ModelInfo, ModelState
from translane_server.core.errors import ModelNotFoundError, StartupError, shutting_down, starting
from translane_server.models.choice import Choice, no_such_model
from translane_server.models.glossary_folder import GlossaryFolder
from translane_server.models.served_model import ServedModel
from translane_server.observation.logs import data
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.language_tags import is_auto
from translane_server.translation.limits import Named
from translane_server.translation.several_models import ByLanguage
from translane_server.translation.tokenizer_pool import TokenizerPool
from translane_server.translation.translator import Translates

# How often models are checked for disuse: so many times in the time after which they are unloaded.
_CHECKS = 10
_SHORTEST_CHECK = 0.05  # seconds

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@contextmanager
def naming(model: str, models: Collection[str]) -> Iterator[None]:
    """Let the message of a StartupError name its model, if there are several."""
    try:
        yield
    except StartupError as error:
        if len(models) == 1:
            raise
        raise type(error)(f"model {model}: {error}") from None


@dataclass(eq=False)
class Registry:
    """The models of a server. All calls come from one event loop."""

    # returns the folder of each model, by the models' names. It may block, and is called on a thread
    find: Callable[[], Mapping[str, Path]]
    # makes the model of a name and a folder, which is not loaded. It may block, and is called on a thread
    serve: Callable[[str, Path], ServedModel]
    pivots: bool = True  # whether two models may translate one after the other
    needs_all: bool = True  # whether all models have to translate before the server is ready
    most_texts: int = sys.maxsize  # maximum number of texts of a request
    idle_timeout: float = 0.0  # time without requests after which a model is unloaded [seconds]; 0 is never
    glossaries: GlossaryFolder = field(default_factory=GlossaryFolder)

    def __post_init__(self) -> None:
        self.models: dict[str, ServedModel] = {}
        self._leaving: set[ServedModel] = set()  # models that are removed when their requests end
        self.changed: Callable[[], None] = lambda: None  # called when the state of any model has changed
        self.pool = TokenizerPool()
        self.choice = Choice({})  # finds the model of a request. After each change of the models it is another one
        self._by_language = ByLanguage(
            lambda name, target: self.choice.source_languages(name, target),
            self.translator,
            self.pool,
            self.most_texts,
        )
        self._reload_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finding = asyncio.Lock()
        self._started = False
        self._closed = False

    @property
    def stored(self) -> StoredGlossaries:
        """The stored glossaries for new requests."""
        return self.glossaries.current

    @property
    def can_translate(self) -> bool:
        """Whether any model translates."""
        return any(model.can_translate for model in self.models.values())

    @property
    def is_ready(self) -> bool:
        """Whether the models translate that have to. A model that an operator has unloaded does not count."""
        states = [model.can_translate for model in self.models.values() if model.state is not ModelState.UNLOADED]
        return any(states) and (all(states) or not self.needs_all)

    @property
    def has_failed(self) -> bool:
        """Whether decoding has failed, and no model translates or will translate."""
        states = {model.state for model in self.models.values()}
        return ModelState.FAILED in states and states <= {ModelState.FAILED, ModelState.UNLOADED}

    def add(self, model: ServedModel) -> None:
        """Serve `model` under its name."""
        model.changed = self._model_changed
        self.models[model.name] = model
        self._model_changed()

    async def start(self) -> None:
        """Load all models, one after the other. Each one translates as soon as it is loaded.

        Raises StartupError, which names the model if there are several.
        """
        for model in list(self.models.values()):
            with naming(model.name, self.models):
                await model.load()
        self._started = True
        self._run(self._reload_on_request())
        self._run(self.glossaries.watch())
        if self.idle_timeout:
            self._run(self._unload_unused())

    def close(self) -> None:
        """Start no reload, and unload no model any more. Requests still get their models."""
        self._closed = True

    async def stop(self) -> None:
        """End all models at once. Unfinished requests are answered with UNAVAILABLE."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        self.pool.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(model.stop() for model in (*self.models.values(), *self._leaving)))

    # Requests

    def translator(self, request: Named) -> Translates:
        """Return a model, two models for a pair that no model has, or for the language `auto` what finds languages.

        The lengths of the names must be checked before; see `check_names`.

        Raises:
            ModelNotFoundError: no model has the name, and no one or two models have the language pair.
            InvalidRequestError: several models have the language pair.
        """
        choice, source, target = self.choice, request.source_language, request.target_language
        if source and is_auto(source):
            return self._by_language
        try:
            return choice.model(request.model, source, target)
        except ModelNotFoundError:
            pivot = None if request.model else choice.pivot(source, target)
            if pivot is None:
                raise
            return pivot

    def infos(self) -> list[ModelInfo]:
        """Return what callers are told of each model, in the order of their names."""
        return [model.info(self.stored) for _, model in sorted(self.models.items())]

    # Changes of the operator

    def request_reload(self) -> None:
        """Reload all models soon. A request during a reload makes one more."""
        self._reload_wanted.set()

    async def load(self, name: str) -> ServedModel:
        """Load the model `name`; a folder that is new in the folder of models is found.

        A change goes on to its end, even if the caller is cancelled.

        Raises:
            ModelNotFoundError: there is no such model.
            StartupError: the model cannot be loaded.
            UnavailableError: the server is starting or stopping.
        """
        return await self._finished(self._load(name))

    async def unload(self, name: str) -> ServedModel:
        """Finish the running requests of the model `name`, and free its memory. See `load`."""
        model = self._named(name)
        await self._finished(model.unload())
        return model

    async def reload(self, name: str, version: str = "") -> tuple[ServedModel, bool]:
        """Replace the model `name` by another version; return the model, and whether it has changed. See `load`.

        `version` names a folder; "" is what the settings say, which is the newest by default.
        """
        model = self._named(name)
        return model, await self._finished(model.reload(version))

    async def _load(self, name: str) -> ServedModel:
        if name not in self.models:
            async with self._finding:
                folder = (await asyncio.to_thread(self.find)).get(name)
                if folder and name not in self.models:
                    await self._add_loaded(name, folder)
        model = self._named(name)
        await model.load()
        return model

    def _named(self, name: str) -> ServedModel:
        if model := self.models.get(name):
            return model
        raise no_such_model(name, self.models, "name")

    async def _finished(self, change: Coroutine[Any, Any, _Result]) -> _Result:
        """Run `change` to its end."""
        if self._closed or not self._started:
            change.close()
            raise shutting_down() if self._closed else starting()
        task = self._run(change)
        await asyncio.wait([task])
        if task.cancelled():
            raise shutting_down()
        return task.result()

    # Work in the background

    def _run(self, work: Coroutine[Any, Any, _Result]) -> asyncio.Task[_Result]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen, because the caller may have gone

    async def _reload_on_request(self) -> None:
        while True:
            await self._reload_wanted.wait()
            self._reload_wanted.clear()
            if not self._closed:
                await self._reload_all()

    async def _reload_all(self) -> None:
        """Remove models that are gone, and add those that are new. Replace each of the others by its newest version."""
        changed, added, removed, before = 0, 0, 0, list(self.models.values())
        try:
            added, removed = await self._update_names()
        except StartupError as error:
            _log.error("models cannot be found: %s", error)
        except Exception:  # noqa: BLE001 a bug must not end reloading
            _log.exception("models cannot be found")
        for model in before:
            if self.models.get(model.name) is not model:
                continue
            try:
                changed += await model.reload()
            except StartupError:  # the model has told the log
                pass
            except Exception:  # noqa: BLE001 a bug must not end reloading
                _log.exception("reloading has failed", extra=data(model=model.name))
        _log.info("reloaded: %d changed, %d new, %d removed", changed, added, removed)

    async def _update_names(self) -> tuple[int, int]:
        """Load new models, and remove those whose folders are gone. Return how many there are of both.

        Raises StartupError if the models cannot be found.
        """
        async with self._finding:
            folders = await asyncio.to_thread(self.find)
            added = 0
            for name, folder in folders.items():
                if name not in self.models:
                    try:
                        await self._add_loaded(name, folder)
                    except StartupError as error:
                        _log.error("a new model is refused: %s", error, extra=data(model=name))
                    else:
                        added += 1
            gone = [name for name in self.models if name not in folders]
            for name in gone:
                model = self.models.pop(name)
                self._leaving.add(model)
                self._model_changed()
                await model.remove()
                self._leaving.discard(model)  # not if this is cancelled: `stop` ends it then
                _log.info("removed", extra=data(model=name))
        return added, len(gone)

    async def _add_loaded(self, name: str, folder: Path) -> None:
        """Load a new model, and serve it. Raises StartupError."""
        model = await asyncio.to_thread(self.serve, name, folder)
        try:
            await model.load()
        except BaseException:
            await model.remove()
            raise
        self.add(model)

    async def _unload_unused(self) -> None:
        while not self._closed:
            await asyncio.sleep(max(self.idle_timeout / _CHECKS, _SHORTEST_CHECK))
            for model in list(self.models.values()):
                try:
                    await model.unload_if_unused(self.idle_timeout)
                except Exception:  # noqa: BLE001 a bug must not end unloading
                    _log.exception("unloading has failed", extra=data(model=model.name))

    def _model_changed(self) -> None:
        self.choice = Choice(self.models, pivots=self.pivots)
        self.changed()
