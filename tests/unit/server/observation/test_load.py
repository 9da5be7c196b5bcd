"""The load of a server, read from its metrics."""

from fakes.models import FakeDecoder
from translane_server.engine.sequence import StepStats
from translane_server.observation.load import ModelLoad, ServerLoad
from translane_server.observation.metrics import Metrics


def test_a_server_without_models():
    assert ServerLoad.of(Metrics()) == ServerLoad(open_calls=0, open_calls_limit=0, refused=0, models={})


def test_the_load_is_that_of_the_metrics():
    metrics = Metrics()
    metrics.watch_calls(lambda: 3, lambda: 100, 7)
    metrics.rejected.labels("QUEUE_FULL").inc(2)
    metrics.rejected.labels("INVALID_FIELD").inc()
    first, second = metrics.of_model("a"), metrics.of_model("b")
    first.watch(FakeDecoder(rows=8, active_rows=5, waiting=4, waiting_limit=64), [])
    first.memory = 2**20
    for seconds, code in ((0.25, "OK"), (0.5, "OK"), (9.0, "INTERNAL")):
        first.answered(code, "grpc", seconds)
    first.generated_tokens.inc(12)
    first.observe(StepStats([(0.1, 9)], [0.1, 0.2, 0.3], steps=[], moves=[], first_token_times=[]))
    second.count_reload("reloaded")
    load = ServerLoad.of(metrics)
    assert (load.open_calls, load.open_calls_limit, load.refused) == (3, 7, 3)
    assert load.models == {
        "a": ModelLoad(
            rows_busy=5,
            rows_limit=8,
            sentences_waiting=4,
            sentences_waiting_limit=64,
            memory_bytes=2**20,
            requests=2,
            request_seconds=0.75,
            sentences=3,
            source_tokens=9,
            generated_tokens=12,
        ),
        "b": ModelLoad(0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0),
    }
    first.unwatch()
    assert ServerLoad.of(metrics).models["a"].rows_limit == 0
    second.remove()
    assert ServerLoad.of(metrics).models.keys() == {"a"}
