"""How the version changes that requests of a model get."""

import asyncio
import gc
import weakref

import pytest

from fakes.models import request_to, turns
from translane.results import ModelState
from translane_server.core.errors import BundleError, QueueFullError
from translane_server.models import served_model


async def test_before_the_first_load_requests_are_refused(model):
    assert model.state == ModelState.LOADING
    assert not model.can_translate
    assert await model.refuses() == "the server is starting"
    await model.load()
    assert model.can_translate
    assert await model.wait_until_ready() is model.ready
    await model.load()
    assert model.loader.loads == 1


async def test_changes_wait_for_each_other_and_for_the_version_before(model):
    await model.load()
    first = model.ready
    with request_to(first):
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
    with request_to(model.ready):
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
    with request_to(old):
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
