"""The metrics of all front ends are those of one server."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from translane_server.front_ends import metrics
from translane_server.front_ends.metrics import FrontEndCollector, ParentMetrics, merged
from translane_server.observation.metrics import Metrics


def families(**values):
    """What a front end collects: a counter of calls, and a gauge for each model."""
    registry = CollectorRegistry()
    calls = Counter("calls_total", "Calls.", registry=registry)
    calls.inc(values.pop("calls"))
    gauge = Gauge("rows", "Rows.", ("model",), registry=registry)
    for model, rows in values.items():
        gauge.labels(model).set(rows)
    return list(registry.collect())


def collector(parent=None, ask=None, loop=None):
    return FrontEndCollector(parent or ParentMetrics(), ask, loop)


def series(found):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in found
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_families_are_merged_by_name_and_samples_by_front_end():
    found = merged({1: families(calls=5, b=2), 0: families(calls=3, a=1)})
    assert [family.name for family in found] == ["calls", "rows"]
    assert series(found) == {
        ("calls_total", ("front_end", "0")): 3,
        ("calls_total", ("front_end", "1")): 5,
        ("rows", ("front_end", "0"), ("model", "a")): 1,
        ("rows", ("front_end", "1"), ("model", "b")): 2,
    }


def test_a_scrape_has_each_family_once_and_the_parents_own():
    parent = ParentMetrics()
    parent.running.set(2)
    parent.of_calls.started.labels("unary", "grpc.health.v1.Health", "Check").inc()
    ends = [Metrics(), Metrics()]
    for front_end in ends:
        front_end.started.labels("unary", "grpc.health.v1.Health", "Check").inc(10)
    found = collector(parent).joined({number: list(each.registry.collect()) for number, each in enumerate(ends)})
    assert len({family.name for family in found}) == len(found)
    values = series(found)
    labels = (("grpc_method", "Check"), ("grpc_service", "grpc.health.v1.Health"), ("grpc_type", "unary"))
    assert values["grpc_server_started_total", *labels] == 1
    assert values["grpc_server_started_total", ("front_end", "1"), *labels] == 10
    assert values["translane_front_ends",] == 2
    assert ("translane_open_calls",) not in values
    assert ("translane_open_calls", ("front_end", "0")) in values
    assert ("process_open_fds",) in values


@pytest.fixture
def loop():
    """An event loop on another thread, as the parent's is for the metrics port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_a_scrape_asks_on_the_event_loop(loop):
    async def ask():
        assert asyncio.get_running_loop() is loop
        return {0: families(calls=3), 1: families(calls=4)}

    asking = collector(ask=ask, loop=loop)
    text = generate_latest(asking.registry).decode()
    (calls,) = [family for family in text_string_to_metric_families(text) if family.name == "calls"]
    assert sum(sample.value for sample in calls.samples) == 7


def test_an_event_loop_that_hangs_costs_the_front_ends_alone(loop, monkeypatch):
    monkeypatch.setattr(metrics, "_LOOP_PATIENCE", 0.01)

    async def ask():
        await asyncio.sleep(60)

    found = series(collector(ask=ask, loop=loop).collect())
    assert ("translane_front_ends",) in found
    assert not [name for name in found if ("front_end", "0") in name]


def test_a_scrape_may_ask_for_some_metrics_by_name(loop):
    async def ask():
        return {0: list(Metrics().registry.collect())}

    asking = collector(ask=ask, loop=loop)
    text = generate_latest(asking.registry.restricted_registry(["translane_open_calls"])).decode()
    assert [line for line in text.splitlines() if not line.startswith("#")] == [
        'translane_open_calls{front_end="0"} 0.0'
    ]
