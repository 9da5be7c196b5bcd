"""`/status.json`: what ListModels lists, with the figures of the metrics."""

from google.protobuf import json_format

from fakes.models import FakeDecoder
from translane.v1 import translation_pb2 as pb
from translane_server.engine.sequence import StepStats
from translane_server.http.port import status_report
from translane_server.observation.metrics import Metrics
from translane_server.text.language_id import can_identify

LISTED = pb.ListModelsResponse(
    models=[
        pb.Model(name="a", version="3", source_languages=["zh"], state=pb.MODEL_STATE_READY, parameters=7),
        pb.Model(name="new", state=pb.MODEL_STATE_LOADING),
    ],
    server_version="1.2.3",
)


def test_a_report_has_the_models_and_their_load():
    metrics = Metrics()
    metrics.watch_calls(lambda: 3, lambda: 100, 7)
    metrics.rejected.labels("QUEUE_FULL").inc(2)
    metrics.rejected.labels("INVALID_FIELD").inc()
    model = metrics.of_model("a")
    metrics.of_model("gone")
    model.watch(FakeDecoder(rows=8, active_rows=5, waiting=4, waiting_limit=64), [])
    model.memory = 2**20
    for seconds, code in ((0.25, "OK"), (0.5, "OK"), (9.0, "INTERNAL")):
        model.answered(code, "grpc", seconds)
    model.generated_tokens.inc(12)
    model.observe(StepStats([(0.1, 9)], [0.1, 0.2, 0.3], steps=[], moves=[], first_token_times=[]))
    content = status_report(LISTED, metrics, 12.3456)
    first, second = content["models"]
    assert first.pop("load") == {
        "rowsBusy": 5,
        "rowsLimit": 8,
        "sentencesWaiting": 4,
        "sentencesWaitingLimit": 64,
        "memoryBytes": 2**20,
        "requests": 2,
        "requestSeconds": 0.75,
        "sentences": 3,
        "sourceTokens": 9,
        "generatedTokens": 12,
    }
    assert set(second.pop("load").values()) == {0}
    assert content.pop("identifiesLanguages") == can_identify()
    figures = {name: content.pop(name) for name in ("uptimeSeconds", "openCalls", "openCallsLimit", "refused")}
    assert figures == {"uptimeSeconds": 12.346, "openCalls": 3, "openCallsLimit": 7, "refused": 3}
    assert json_format.ParseDict(content, pb.ListModelsResponse()) == LISTED
    model.unwatch()
    assert status_report(LISTED, metrics, 13.0)["models"][0]["load"]["rowsLimit"] == 0


def test_a_server_without_models_has_an_empty_list():
    assert status_report(pb.ListModelsResponse(), Metrics(), 0.0)["models"] == []
