"""What a scrape shows."""

import os
from urllib.request import urlopen

import pytest
from prometheus_client import generate_latest

from translane_server.measurements import Measurements
from translane_server.metrics import REJECTIONS, Metrics, MetricsServer


@pytest.fixture
def metrics():
    metrics = Metrics()
    metrics.describe_model(name="m", version="1", precision="fp32", device="cpu")
    return metrics


def test_what_replicas_measure(metrics):
    metrics.observe(Measurements([(0.004, 9)], [0.2], [(0.0012, 3), (0.0012, 1)], [(0.0004, 5)], [0.01]))
    metrics.generated_tokens.inc(3)
    metrics.watch_rows(8, lambda: 3, lambda: 5)
    text = generate_latest(metrics.registry).decode()
    for line in (
        "translane_source_tokens_total 9.0",
        "translane_row_steps_total 4.0",
        "translane_generated_tokens_total 3.0",
        "translane_rows_moved_total 5.0",
        'translane_row_move_duration_seconds_bucket{le="0.0005"} 1.0',
        "translane_encode_duration_seconds_count 1.0",
        'translane_decode_step_duration_seconds_bucket{le="0.002"} 2.0',
        'translane_step_rows_bucket{le="1.0"} 1.0',
        'translane_step_rows_bucket{le="4.0"} 2.0',
        "translane_queue_duration_seconds_count 1.0",
        "translane_time_to_first_token_seconds_sum 0.01",
        'translane_rows{state="active"} 3.0',
        'translane_rows{state="free"} 5.0',
        "translane_sentences_waiting 5.0",
        'translane_model_info{device="cpu",name="m",precision="fp32",version="1"} 1.0',
    ):
        assert line in text.splitlines()


def test_what_replicas_take(metrics):
    """Of one that runs, and one that is not there yet."""
    metrics.watch_replicas([os.getpid, lambda: -1])
    samples = {
        (sample.name, sample.labels["replica"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("translane_replica_")
    }
    assert {replica for _, replica in samples} == {"0"}
    assert 0 < samples["translane_replica_cpu_seconds_total", "0"] <= sum(os.times()[:2]) + 1
    assert 1e6 < samples["translane_replica_resident_memory_bytes", "0"] < 1e11


def test_reasons_are_there_before_anything_is_rejected(metrics):
    text = generate_latest(metrics.registry).decode()
    for reason in REJECTIONS:
        assert f'translane_rejected_total{{reason="{reason}"}} 0.0' in text


def test_request_buckets_fit_translation(metrics):
    (family,) = metrics.requests.collect()
    bounds = [float(sample.labels["le"]) for sample in family.samples if sample.name.endswith("_bucket")]
    assert bounds[0] == 0.005
    assert bounds[-2:] == [10.0, float("inf")]


def test_servers_have_registries_of_their_own(metrics):
    other = Metrics()
    other.observe(Measurements([], [], [(0.1, 1)], [], []))
    assert "translane_row_steps_total 0.0" in generate_latest(metrics.registry).decode()


def test_the_port(metrics):
    server = MetricsServer(metrics, "127.0.0.1", 0)
    try:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics") as response:
            text = response.read().decode()
        for name in ("process_cpu_seconds_total", "python_info", "python_gc_objects_collected_total"):
            assert f"{name}" in text
        with pytest.raises(OSError, match="in use"):
            MetricsServer(metrics, "127.0.0.1", server.port)
    finally:
        server.stop()
    with pytest.raises(OSError, match="refused"):
        urlopen(f"http://127.0.0.1:{server.port}/metrics")
