"""Which model a request gets, what an operator's requests do, and how the version changes that requests get."""

import asyncio
import gc
import weakref
from pathlib import Path
from unittest.mock import Mock

import pytest

from fakes.models import Model, turns
from helpers.http_calls import until
from translane.results import ModelState
from translane_server.core.errors import BundleError, QueueFullError, SettingsError, UnavailableError
from translane_server.models import served_model
from translane_server.models.registry import Registry

LANGUAGES = {"zh-en": ("zh", "en"), "de-en": ("de", "en"), "de-fr": ("de", "fr")}


class Library:
    """Folders of models; a test adds and removes names."""

    def __init__(self, metrics, names):
        self.models = {}
        self.names = list(names)
        self.problem = None
        self.metrics = metrics

    def find(self):
        if self.problem:
            raise self.problem
        return {name: Path(name) for name in self.names}

    def registry(self, **settings):
        """A registry of the models, which are not loaded."""
        registry = Registry(self.find, self.serve, **settings)
        for name in self.names:
            registry.add(self.serve(name, Path()))
        return registry

    def serve(self, name, _folder):
        if name not in self.models:
            source, target = LANGUAGES[name]
            self.models[name] = Model(self.metrics, name, source_languages=[source], target_languages=[target])
        return self.models[name]


@pytest.fixture
def library(metrics):
    return Library(metrics, ["zh-en", "de-en"])


@pytest.fixture
async def registry(library):
    registry = library.registry()
    await registry.start()
    yield registry
    await registry.stop()


async def test_a_new_model_that_is_bad_is_left_out(registry, library, caplog):
    library.names.append("de-fr")
    library.serve("de-fr", Path()).loader.newest = BundleError("it is broken")
    await registry._reload_all()
    assert list(registry.models) == ["zh-en", "de-en"]
    assert any(record.getMessage() == "a new model is refused: it is broken" for record in caplog.records)


async def test_a_model_that_is_gone_is_removed_and_not_reloaded(registry, library, caplog):
    library.names.remove("de-en")
    library.models["de-en"].loader.newest = BundleError("there is no such folder")
    await registry._reload_all()
    assert list(registry.models) == ["zh-en"]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_stopping_ends_a_model_that_is_being_removed(registry, library):
    version = library.models["de-en"].ready
    with version:
        library.names.remove("de-en")
        registry.request_reload()
        await until(lambda: len(registry.models) == 1)
        await registry.stop()
        assert version.dispatcher.stopped


@pytest.mark.parametrize("problem", [SettingsError("the folder cannot be read"), RuntimeError("a bug")])
async def test_nothing_is_removed_if_the_folders_cannot_be_found(registry, library, caplog, problem):
    library.problem = problem
    await registry._reload_all()
    assert len(registry.models) == 2
    assert any("models cannot be found" in record.getMessage() for record in caplog.records)


async def test_a_bug_in_one_reload_is_not_the_end_of_reloading(registry, library, caplog):
    library.models["zh-en"].loader.newest = RuntimeError("a bug")
    library.models["de-en"].loader.newest = "2"
    await registry._reload_all()
    assert library.models["de-en"].ready.description.version == "2"
    library.models["zh-en"].loader.newest = "3"
    await registry._reload_all()
    assert library.models["zh-en"].ready.description.version == "3"
    assert any("reloading has failed" in record.getMessage() for record in caplog.records)


async def test_a_bug_in_one_model_does_not_keep_the_others_in_memory(library, monkeypatch):
    registry = library.registry(idle_timeout=0.01)
    monkeypatch.setattr(registry.models["zh-en"], "unload_if_unused", Mock(side_effect=RuntimeError("a bug")))
    await registry.start()
    await until(lambda: registry.models["de-en"].state is ModelState.IDLE)
    await registry.stop()


async def test_a_request_during_a_reload_makes_one_more(registry, library, caplog):
    caplog.set_level("INFO", "translane_server.models.registry")
    model = library.models["zh-en"]
    model.loader.gate.clear()
    registry.request_reload()
    await until(lambda: model.loader.loads == 2)  # the folders are looked at on a thread
    for _ in range(5):
        registry.request_reload()
    model.loader.gate.set()
    await until(lambda: len(caplog.records) == 2)
    await turns()
    assert [record.getMessage() for record in caplog.records] == ["reloaded: 0 changed, 0 new, 0 removed"] * 2
    assert model.loader.loads == 3


async def test_a_change_goes_on_if_its_caller_goes_away(registry, library):
    model = library.models["zh-en"]
    model.loader.newest = "2"
    model.loader.gate.clear()
    caller = asyncio.create_task(registry.reload("zh-en"))
    await turns()
    caller.cancel()
    await turns()
    model.loader.gate.set()
    await turns()
    assert model.ready.description.version == "2"


async def test_no_change_before_the_start_and_after_closing(library, registry):
    starting = Registry(library.find, library.serve)
    starting.add(Model(library.metrics, "other"))
    with pytest.raises(UnavailableError, match="starting"):
        await starting.load("other")
    registry.close()
    with pytest.raises(UnavailableError, match="shutting down"):
        await registry.unload("zh-en")


@pytest.mark.parametrize("needs_all", [True, False])
async def test_the_server_is_ready_when_all_models_are_or_any(library, needs_all):
    registry = library.registry(needs_all=needs_all)
    library.models["de-en"].loader.gate.clear()
    starting = asyncio.create_task(registry.start())
    await turns()
    ready = [registry.is_ready]
    library.models["de-en"].loader.gate.set()
    await starting
    ready.append(registry.is_ready)
    for name in ("zh-en", "de-en"):  # the operator wants only the other one, and then none
        await registry.unload(name)
        ready.append(registry.is_ready)
    assert ready == [not needs_all, True, True, False]
    await registry.stop()


async def test_the_server_fails_with_its_last_model(registry, library):
    library.models["zh-en"].ready.dispatcher.fail()
    assert registry.can_translate
    assert not registry.has_failed
    await registry.unload("de-en")
    assert not registry.can_translate
    assert registry.has_failed


async def test_changes_wait_for_each_other_and_for_the_version_before(model):
    await model.load()
    first = model.ready
    with first:
        model.loader.newest = "2"
        await model.reload()
        model.loader.newest = "3"
        waiting = asyncio.create_task(model.reload())
        await turns()
        assert model.loader.loads == 2, "two versions are in memory"
    assert await waiting
    assert model.ready.description.version == "3"


async def test_a_model_in_use_is_not_unloaded(model):
    await model.load()
    await model.unload_if_unused(3600)
    with model.ready:
        await model.unload_if_unused(0)
    assert model.state == ModelState.READY
    await model.unload_if_unused(0)
    assert model.state == ModelState.IDLE
    assert model.can_translate
    assert model.ready is None


async def test_requests_wait_while_one_load_runs(model):
    await model.load()
    await model.unload_if_unused(0)
    model.loader.gate.clear()
    waiting = [asyncio.create_task(model.wait_until_ready()) for _ in range(3)]
    await turns()
    with pytest.raises(QueueFullError, match="3 requests are waiting until m is loaded"):
        await model.wait_until_ready()
    waiting[0].cancel()
    await turns()
    model.loader.gate.set()
    assert [await each for each in waiting[1:]] == [model.ready] * 2
    assert waiting[0].cancelled()
    assert model.loader.loads == 2


@pytest.mark.parametrize("change", ["unload", "remove"])
async def test_a_request_does_not_load_what_is_being_unloaded(model, change):
    await model.load()
    await model.unload_if_unused(0)
    async with model._turn:
        changing = asyncio.create_task(getattr(model, change)())
        await turns()
        asking = asyncio.create_task(model.refuses())
        await turns()
    await changing
    assert await asking == "the model m is unloaded"
    assert model.loader.loads == 1


@pytest.mark.parametrize("error", [BundleError("gone"), RuntimeError("a bug")])
async def test_a_load_that_fails_is_not_tried_by_every_request(model, caplog, error):
    now = 100.0
    model._clock = lambda: now
    await model.load()
    await model.unload()
    await model.load()
    model.ready.last_used = 0.0
    await model.unload_if_unused(10)
    model.loader.newest = error
    before = model.loader.loads
    for _ in range(3):
        for told in await asyncio.gather(*[model.refuses() for _ in range(3)]):
            assert "cannot be loaded; the server's log has the details" in told
    assert model.loader.loads == before + 1
    assert sum("it cannot be loaded" in record.getMessage() for record in caplog.records) == 1
    now += served_model._RETRY_LOADING
    model.loader.newest = "2"
    assert (await model.wait_until_ready()).description.version == "2"


async def test_a_failed_model_is_loaded_again(model):
    changes = []
    model.changed = lambda: changes.append(model.state)
    await model.load()
    failed = model.ready
    failed.dispatcher.fail()
    assert not model.can_translate
    failed.dispatcher.recover()
    assert model.can_translate
    failed.dispatcher.fail()
    assert changes == [ModelState.READY, ModelState.FAILED, ModelState.READY, ModelState.FAILED]
    assert await model.reload(), "the same version, loaded anew"
    await turns()
    assert failed.dispatcher.stopped
    assert model.can_translate


async def test_a_request_that_does_not_end_keeps_no_version_for_ever(model, caplog):
    await model.load()
    old = model.ready
    with old:
        await old.retire(patience=0.01)
        assert old.dispatcher.stopped
    assert any("1 requests were not finished" in record.getMessage() for record in caplog.records)


async def test_the_memory_of_a_version_that_has_ended_is_collected(model, monkeypatch):
    monkeypatch.setattr(served_model, "_COLLECTING_DELAY", 0.01)
    await model.load()
    model.ready.itself = model.ready  # as readers and their caches refer to each other
    old = weakref.ref(model.ready)
    gc.disable()
    try:
        await model.unload()
        await asyncio.sleep(0.1)
        assert old() is None
    finally:
        gc.enable()


async def test_stopping_ends_waiting_requests_and_running_changes(model):
    await model.load()
    old = model.ready
    await model.unload_if_unused(0)
    model.loader.gate.clear()
    waiting = asyncio.create_task(model.refuses())
    await turns()
    await model.stop()
    assert await waiting == "the server is shutting down"
    assert old.dispatcher.stopped
