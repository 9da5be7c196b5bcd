"""Which model a request gets, and what an operator's requests do."""

import asyncio
from pathlib import Path

import pytest

from fakes.models import Model, turns
from translane_server.core.errors import (
    BundleError,
    ModelNotFoundError,
    SettingsError,
    UnavailableError,
)
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
    registry = Registry(library.find, library.serve)
    for name in library.names:
        registry.add(library.serve(name, Path(name)))
    await registry.start()
    yield registry
    await registry.stop()


async def test_models_come_and_go_at_a_reload(registry, library, metrics):
    library.names = ["de-en", "de-fr"]
    removed = registry.models["zh-en"].ready
    await registry._reload_all()
    assert list(registry.models) == ["de-en", "de-fr"]
    assert removed.dispatcher.stopped
    assert registry.choice.model("", "de", "fr").name == "de-fr"
    with pytest.raises(ModelNotFoundError):
        registry.choice.model("", "zh", "en")
    samples = [sample for family in metrics.registry.collect() for sample in family.samples]
    assert {sample.labels["model"] for sample in samples if "model" in sample.labels} == {"de-en", "de-fr"}


async def test_a_new_model_that_is_bad_is_left_out(registry, library, caplog):
    library.names.append("de-fr")
    library.serve("de-fr", Path()).loader.newest = BundleError("it is broken")
    await registry._reload_all()
    assert list(registry.models) == ["zh-en", "de-en"]
    assert any(record.getMessage() == "a new model is refused: it is broken" for record in caplog.records)


async def test_nothing_is_removed_if_the_folders_cannot_be_found(registry, library, caplog):
    library.problem = SettingsError("the folder cannot be read")
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


async def test_a_request_during_a_reload_makes_one_more(registry, library, caplog):
    caplog.set_level("INFO", "translane_server.models.registry")
    model = library.models["zh-en"]
    model.loader.gate.clear()
    registry.request_reload()
    await turns()
    assert model.loader.loads == 2
    for _ in range(5):
        registry.request_reload()
    model.loader.gate.set()
    async with asyncio.timeout(5):
        while len(caplog.records) < 2:  # noqa: ASYNC110 the loop tells the log
            await asyncio.sleep(0.001)
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


async def test_a_model_that_cannot_be_loaded_at_the_start_is_named(library):
    library.serve("de-en", Path()).loader.newest = BundleError("it is broken")
    registry = Registry(library.find, library.serve)
    for name in library.names:
        registry.add(library.serve(name, Path()))
    with pytest.raises(BundleError, match=r"^model de-en: it is broken$"):
        await registry.start()
    await registry.stop()


@pytest.mark.parametrize("needs_all", [True, False])
async def test_the_server_is_ready_when_all_models_are_or_any(library, needs_all):
    registry = Registry(library.find, library.serve, needs_all=needs_all)
    for name in library.names:
        registry.add(library.serve(name, Path()))
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
