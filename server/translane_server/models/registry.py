"""Names of models, and the models that are loaded: finds the one or the two that a request needs."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Container, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from translane.results import ModelInfo, ModelState
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import ModelNotFoundError, StartupError, shutting_down, starting
from translane_server.core.terminal import shown
from translane_server.models.choice import (
    has_pair,
    listed,
    names,
    no_model_for,
    no_model_to,
    no_such_model,
    several_models,
    sources_of,
    targets_of,
    with_pair,
)
from translane_server.models.glossary_folder import GlossaryFolder
from translane_server.models.served_model import ServedModel
from translane_server.observation.logs import data
from translane_server.text.glossaries import StoredGlossaries
from translane_server.text.language_tags import UNDETERMINED, is_auto, language_of
from translane_server.translation.limits import Named
from translane_server.translation.routing import ByLanguage, ThroughPivot
from translane_server.translation.tokenizer_pool import TokenizerPool

# Most models have English on one side, and more text to learn from.
_PREFERRED = "en"


def find_pivot(models: Iterable[ServedModel], source: str, target: str) -> ThroughPivot | None:
    """Return the models that translate `source` to `target` through a third language; None if there are none.

    English is taken first, then the other languages in the order of the models. Where several models translate a step,
    the first one is taken. Models of undetermined languages translate no step, because nobody knows what they read.

    Args:
        models: the models of a server, in order.
        source: tag of a request.
        target: tag of a request.
    """
    known = list(models)
    seconds = _with_target(known, target)
    if not seconds or not source or language_of(source) == language_of(target):
        return None
    firsts = [model for model in known if names(_languages(model).source, source)]
    steps = [(first, language) for first in firsts for language in targets_of(_languages(first), source)]
    steps.sort(key=lambda step: language_of(step[1]) != _PREFERRED)
    for first, language in steps:
        if second := _reader(seconds, first, language, target):
            return ThroughPivot(first, second, language)
    return None


def sources_through(models: Iterable[ServedModel], target: str, direct: Container[str]) -> list[str]:
    """Return the languages from which `find_pivot` finds a way to `target`, by the tags of their models.

    Args:
        models: the models of a server, in order.
        target: tag of a request.
        direct: languages that need no way. Models of these alone are left out, because the search takes long.
    """
    known = list(models)
    seconds = _with_target(known, target)
    found: dict[str, None] = {}
    for first in known:
        if not seconds or all(tag in direct for tag in _languages(first).source):
            continue
        for language in _languages(first).target:
            if _reader(seconds, first, language, target):
                found |= dict.fromkeys(sources_of(_languages(first), language))
    of_target = language_of(target)
    return [tag for tag in found if tag not in direct and tag != UNDETERMINED and language_of(tag) != of_target]


def _with_target(models: Sequence[ServedModel], target: str) -> list[ServedModel]:
    return [model for model in models if names(_languages(model).target, target)]


def _reader(seconds: Sequence[ServedModel], first: ServedModel, language: str, target: str) -> ServedModel | None:
    """Return the first of `seconds` that translates `language`, which the model `first` writes, to `target`."""
    for second in seconds:
        languages = _languages(second)
        reads = second is not first and language != UNDETERMINED and names(languages.source, language)
        if reads and has_pair(languages, language, target):
            return second
    return None


def _languages(model: ServedModel) -> Languages:
    return model.description.manifest.languages


_REMEMBERED_PAIRS = 1024
# How often models are checked for disuse: so many times in the time after which they are unloaded.
_CHECKS = 10
_SHORTEST_CHECK = 0.05  # seconds

_log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


class Registry:
    """The models of a server. All calls come from one event loop.

    Args:
        find: returns the folder of each model, by the models' names. It may block, and is called on a thread.
        serve: makes the model of a name and a folder, which is not loaded. It may block, and is called on a thread.
        pivots: whether two models may translate one after the other.
        most_texts: maximum number of texts of a request.
        needs_all: whether all models have to translate before the server is ready.
        idle_timeout: time without requests after which a model is unloaded [seconds]; 0 is never.
        glossaries: the stored glossaries; by default none.

    Attributes:
        changed: called when the state of any model has changed.
        pool: turns texts into tokens, and tokens into texts, for all models.
    """

    def __init__(
        self,
        find: Callable[[], Mapping[str, Path]],
        serve: Callable[[str, Path], ServedModel],
        *,
        pivots: bool = True,
        needs_all: bool = True,
        most_texts: int = sys.maxsize,
        idle_timeout: float = 0.0,
        glossaries: GlossaryFolder | None = None,
    ) -> None:
        self.changed: Callable[[], None] = lambda: None
        self.pool = TokenizerPool()
        self._by_language = ByLanguage(self.source_languages, self._route, self.pool, most_texts)
        self._find = find
        self._serve = serve
        self._pivots = pivots
        self._needs_all = needs_all
        self._idle_timeout = idle_timeout
        self._glossaries = glossaries or GlossaryFolder()
        self._models: dict[str, ServedModel] = {}
        self._only: ServedModel | None = None  # the model, if there is exactly one
        self._by_languages = lru_cache(_REMEMBERED_PAIRS)(self._with_pair)
        self._pivot_of = lru_cache(_REMEMBERED_PAIRS)(self._find_pivot)
        self._sources_of = lru_cache(_REMEMBERED_PAIRS)(self._find_sources)
        self._reload_wanted = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._finding = asyncio.Lock()
        self._started = False
        self._closed = False

    @property
    def models(self) -> Mapping[str, ServedModel]:
        """The models by name."""
        return self._models

    @property
    def stored(self) -> StoredGlossaries:
        """The stored glossaries for new requests."""
        return self._glossaries.current

    @property
    def can_translate(self) -> bool:
        """Whether any model translates."""
        return any(model.can_translate for model in self._models.values())

    @property
    def is_ready(self) -> bool:
        """Whether the models translate that have to. A model that an operator has unloaded does not count."""
        states = [model.can_translate for model in self._models.values() if model.state is not ModelState.UNLOADED]
        return any(states) and (all(states) or not self._needs_all)

    @property
    def has_failed(self) -> bool:
        """Whether decoding has failed, and no model translates or will translate."""
        states = {model.state for model in self._models.values()}
        return ModelState.FAILED in states and states <= {ModelState.FAILED, ModelState.UNLOADED}

    def add(self, model: ServedModel) -> None:
        """Serve `model` under its name."""
        model.changed = self._model_changed
        self._models[model.name] = model
        self._model_changed()

    async def start(self) -> None:
        """Load all models, one after the other. Each one translates as soon as it is loaded.

        Raises:
            StartupError: a model cannot be loaded. If there are several models, the message names the model.
        """
        for model in list(self._models.values()):
            try:
                await model.load()
            except StartupError as error:
                if self._only:
                    raise
                raise type(error)(f"model {model.name}: {error}") from None
        self._started = True
        self._run(self._reload_on_request())
        self._run(self._glossaries.watch())
        if self._idle_timeout:
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
        await asyncio.gather(*(model.stop() for model in self._models.values()))

    # Requests

    def choose(self, name: str, source_language: str, target_language: str) -> ServedModel:
        """Return the model of a request: by name; without a name, the only model that has the language pair.

        The names are remembered, so their lengths must be checked before; see `check_names`.

        Args:
            name: the name of a model, or "".
            source_language: tag of a request; "" stands for a model's only source language.
            target_language: tag of a request; "" stands for a model's only target language.

        Raises:
            ModelNotFoundError: no model has the name, or the language pair.
            InvalidRequestError: several models have the language pair.
        """
        if name:
            if model := self._models.get(name):
                return model
            raise no_such_model(name, self._models)
        if self._only:  # it says itself what is wrong with the languages
            return self._only
        found = self._by_languages(source_language, target_language)
        if len(found) == 1:
            return found[0]
        if found:
            raise several_models(model.name for model in found)
        raise no_model_for(source_language, target_language, self._models)

    def translator(self, request: Named) -> ServedModel | ThroughPivot | ByLanguage:
        """Return what translates a request: a model, two models for a pair that no model has, or what finds languages.

        The lengths of the names must be checked before, as for `choose`.

        Raises:
            ModelNotFoundError: no model has the name, and no one or two models have the language pair.
            InvalidRequestError: several models have the language pair.
        """
        if is_auto(request.source_language):
            return self._by_language
        return self._route(request.model, request.source_language, request.target_language)

    def _route(self, name: str, source_language: str, target_language: str) -> ServedModel | ThroughPivot:
        try:
            return self.choose(name, source_language, target_language)
        except ModelNotFoundError:
            pivot = None if name else self.pivot(source_language, target_language)
            if pivot is None:
                raise
            return pivot

    def pivot(self, source_language: str, target_language: str) -> ThroughPivot | None:
        """Return two models for a language pair that no model has; None if there are none, or none are wanted.

        The lengths of the tags must be checked before, as for `choose`.
        """
        return self._pivot_of(source_language, target_language)

    def source_languages(self, name: str, target_language: str) -> Sequence[str]:
        """Return the languages that can be translated to `target_language`, for a request whose source is ``auto``.

        Args:
            name: the name of a model, or "" for all models, and for two models one after the other.
            target_language: tag of a request; "" stands for a model's only target language.

        Raises:
            ModelNotFoundError: no model has the name, or the target language.
        """
        if name or self._only:
            languages = self.choose(name, "", "").description.manifest.languages
            # Where no language fits, the model says what is wrong with the target language.
            return sources_of(languages, target_language) or languages.source
        if found := self._sources_of(target_language):
            return found
        raise no_model_to(target_language, self._models)

    def infos(self) -> list[ModelInfo]:
        """Return what callers are told of each model, in the order of their names."""
        return [model.info(self.stored) for _, model in sorted(self._models.items())]

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

        Args:
            name: the name of a model.
            version: the name of the version's folder; "" for what the settings say, which is the newest by default.
        """
        model = self._named(name)
        return model, await self._finished(model.reload(version))

    async def _load(self, name: str) -> ServedModel:
        if name not in self._models:
            async with self._finding:
                folder = (await asyncio.to_thread(self._find)).get(name)
                if folder and name not in self._models:
                    await self._add_loaded(name, folder)
        model = self._named(name)
        await model.load()
        return model

    def _named(self, name: str) -> ServedModel:
        if model := self._models.get(name):
            return model
        raise ModelNotFoundError(f"name: there is no model {shown(name)}; this server has {listed(self._models)}")

    async def _finished(self, change: Coroutine[Any, Any, _Result]) -> _Result:
        """Run `change` to its end."""
        if self._closed:
            change.close()
            raise shutting_down()
        if not self._started:
            change.close()
            raise starting()
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
        """Replace each model by its newest version, one after the other. Add models that are new; remove others."""
        changed = 0
        for model in list(self._models.values()):
            try:
                changed += await model.reload()
            except StartupError:  # the model has told the log
                pass
            except Exception:  # noqa: BLE001 a bug must not end reloading
                _log.exception("reloading has failed", extra=data(model=model.name))
        try:
            added, removed = await self._update_names()
        except StartupError as error:
            added, removed = 0, 0
            _log.error("models cannot be found: %s", error)
        _log.info("reloaded: %d changed, %d new, %d removed", changed, added, removed)

    async def _update_names(self) -> tuple[int, int]:
        """Load new models, and remove those whose folders are gone. Return how many there are of both.

        Raises:
            StartupError: the models cannot be found.
        """
        async with self._finding:
            folders = await asyncio.to_thread(self._find)
            added = 0
            for name, folder in folders.items():
                if name not in self._models:
                    try:
                        await self._add_loaded(name, folder)
                    except StartupError as error:
                        _log.error("a new model is refused: %s", error, extra=data(model=name))
                    else:
                        added += 1
            gone = [name for name in self._models if name not in folders]
            for name in gone:
                model = self._models.pop(name)
                self._model_changed()
                await model.remove()
                _log.info("removed", extra=data(model=name))
        return added, len(gone)

    async def _add_loaded(self, name: str, folder: Path) -> None:
        """Load a new model, and serve it.

        Raises:
            StartupError: the model cannot be loaded.
        """
        model = await asyncio.to_thread(self._serve, name, folder)
        try:
            await model.load()
        except BaseException:
            await model.remove()
            raise
        self.add(model)

    async def _unload_unused(self) -> None:
        while not self._closed:
            await asyncio.sleep(max(self._idle_timeout / _CHECKS, _SHORTEST_CHECK))
            for model in list(self._models.values()):
                await model.unload_if_unused(self._idle_timeout)

    def _model_changed(self) -> None:
        self._only = next(iter(self._models.values())) if len(self._models) == 1 else None
        for remembered in (self._by_languages, self._pivot_of, self._sources_of):
            remembered.cache_clear()
        self.changed()

    def _with_pair(self, source_language: str, target_language: str) -> tuple[ServedModel, ...]:
        """Return the models that have a pair. Models that name its languages go before models of any language."""
        languages = {name: model.description.manifest.languages for name, model in self._models.items()}
        return tuple(self._models[name] for name in with_pair(languages, source_language, target_language))

    def _find_pivot(self, source_language: str, target_language: str) -> ThroughPivot | None:
        return find_pivot(self._models.values(), source_language, target_language) if self._pivots else None

    def _find_sources(self, target_language: str) -> tuple[str, ...]:
        models = self._models.values()
        direct = [tag for each in models for tag in sources_of(each.description.manifest.languages, target_language)]
        found = {tag: None for tag in direct if tag != UNDETERMINED}  # in order, each tag once
        if self._pivots:
            found |= dict.fromkeys(sources_through(models, target_language, found))
        return tuple(found) or tuple(direct[:1])
