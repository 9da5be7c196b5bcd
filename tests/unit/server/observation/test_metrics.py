"""What a scrape shows."""

import os
import random

import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest

from fakes.models import FakeDecoder
from translane_server.engine.sequence import StepStats
from translane_server.observation.metrics import REJECTIONS, RELOADED, Metrics


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def model(metrics):
    model = metrics.of_model("m")
    model.description = {"version": "1", "precision": "fp32", "device": "cpu"}
    return model


def watch(model, pids=()):
    model.watch(FakeDecoder(rows=8, active_rows=3, waiting=5, waiting_limit=64), pids)
    model.memory = 1000


def lines(metrics):
    return generate_latest(metrics.registry).decode().splitlines()


def test_what_replicas_measure(metrics, model):
    model.observe(StepStats([(0.004, 9)], [0.2], [(0.0012, 3), (0.0012, 1)], [(0.0004, 5)], [0.01]))
    model.generated_tokens.inc(3)
    watch(model)
    model.count_reload(RELOADED)
    found = lines(metrics)
    for line in (
        'translane_source_tokens_total{model="m"} 9.0',
        'translane_row_steps_total{model="m"} 4.0',
        'translane_generated_tokens_total{model="m"} 3.0',
        'translane_rows_moved_total{model="m"} 5.0',
        'translane_row_move_duration_seconds_bucket{le="0.0005",model="m"} 1.0',
        'translane_encode_duration_seconds_count{model="m"} 1.0',
        'translane_decode_step_duration_seconds_bucket{le="0.002",model="m"} 2.0',
        'translane_step_rows_bucket{le="1.0",model="m"} 1.0',
        'translane_step_rows_bucket{le="4.0",model="m"} 2.0',
        'translane_queue_duration_seconds_count{model="m"} 1.0',
        'translane_time_to_first_token_seconds_sum{model="m"} 0.01',
        'translane_rows{model="m",state="active"} 3.0',
        'translane_rows{model="m",state="free"} 5.0',
        'translane_rows_limit{model="m"} 8.0',
        'translane_sentences_waiting{model="m"} 5.0',
        'translane_sentences_waiting_limit{model="m"} 64.0',
        'translane_model_loaded{model="m"} 1.0',
        'translane_model_memory_bytes{model="m"} 1000.0',
        'translane_model_reloads_total{model="m",outcome="reloaded"} 1.0',
        'translane_model_reloads_total{model="m",outcome="refused"} 0.0',
        'translane_model_info{device="cpu",model="m",precision="fp32",version="1"} 1.0',
    ):
        assert line in found


def test_a_model_that_is_not_loaded_has_no_rows(metrics, model):
    watch(model, [os.getpid])
    model.unwatch()
    found = lines(metrics)
    assert 'translane_model_loaded{model="m"} 0.0' in found
    assert not [
        line
        for line in found
        if line.startswith(("translane_rows", "translane_sentences_waiting"))
        and 'model="m"' in line
        and "moved" not in line
    ]
    assert not [line for line in found if line.startswith("translane_replica_cpu_seconds_total{")]
    watch(model)
    assert 'translane_rows{model="m",state="free"} 5.0' in lines(metrics)


def test_a_removed_model_leaves_nothing(metrics, model):
    other = metrics.of_model("n")
    for each in (model, other):
        watch(each, [os.getpid])
    model.remove()
    model.remove()
    found = lines(metrics)
    assert not [line for line in found if 'model="m"' in line]
    assert 'translane_rows{model="n",state="free"} 5.0' in found


def test_what_replicas_take(metrics, model):
    """Of one that runs, and one that is not there yet."""
    watch(model, [os.getpid, lambda: -1])
    samples = {
        (sample.name, sample.labels["model"], sample.labels["replica"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if "replica" in sample.labels
    }
    assert {key[1:] for key in samples} == {("m", "0")}
    assert 0 < samples["translane_replica_cpu_seconds_total", "m", "0"] <= sum(os.times()[:2]) + 1
    assert 1e6 < samples["translane_replica_resident_memory_bytes", "m", "0"] < 1e11


def test_reasons_are_there_before_anything_is_rejected(metrics):
    text = generate_latest(metrics.registry).decode()
    for reason in REJECTIONS:
        assert f'translane_rejected_total{{reason="{reason}"}} 0.0' in text


def test_no_series_tells_when_another_one_began(metrics, model):
    watch(model)
    metrics.of_method("unary", "service", "method").started += 1
    assert not [line for line in lines(metrics) if "_created" in line]


def test_buckets_are_those_of_prometheus(metrics, model):
    bounds = (
        *(0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075),
        *(0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0),
    )
    registry = CollectorRegistry()
    name, meaning = "translane_queue_duration_seconds", "From a sentence's acceptance to entering the running batch."
    theirs = Histogram(name, meaning, ("model",), buckets=bounds, registry=registry).labels("m")
    chance = random.Random(1)
    for value in (*bounds, 0.0, 11.0, *(chance.lognormvariate(-3, 2) for _ in range(500))):
        model.queue_duration_seconds.observe([value])
        theirs.observe(value)
    ours = [line for line in lines(metrics) if name in line]
    assert ours == generate_latest(registry).decode().splitlines()
    assert model.queue_duration_seconds.count == len(bounds) + 502


def test_a_scrape_may_name_what_it_wants(metrics, model):
    watch(model)
    found = generate_latest(metrics.registry.restricted_registry(["translane_rows_limit", "grpc_server_started_total"]))
    assert b'translane_rows_limit{model="m"} 8.0' in found
    assert b"translane_source_tokens" not in found
