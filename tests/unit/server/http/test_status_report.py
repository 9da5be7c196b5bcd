"""`/status.json`: what ListModels lists, with the figures of the metrics."""

from google.protobuf import json_format

from translane.v1 import translation_pb2 as pb
from translane_server.http.port import status_report
from translane_server.observation.load import ModelLoad, ServerLoad
from translane_server.text.language_id import can_identify

LISTED = pb.ListModelsResponse(
    models=[
        pb.Model(name="a", version="3", source_languages=["zh"], state=pb.MODEL_STATE_READY, parameters=7),
        pb.Model(name="new", state=pb.MODEL_STATE_LOADING),
    ],
    server_version="1.2.3",
)
LOAD = ServerLoad(
    open_calls=2,
    open_calls_limit=9,
    refused=4,
    models={
        "a": ModelLoad(
            rows_busy=1,
            rows_limit=8,
            sentences_waiting=5,
            sentences_waiting_limit=64,
            memory_bytes=1024,
            requests=10,
            request_seconds=0.5,
            sentences=11,
            source_tokens=20,
            generated_tokens=30,
        ),
        "gone": ModelLoad(0, 0, 0, 0, 0, 1, 1.0, 1, 1, 1),
    },
)


def test_a_report_has_the_models_and_their_load():
    content = status_report(LISTED, LOAD, 12.3456)
    first, second = content["models"]
    assert first.pop("load") == {
        "rowsBusy": 1,
        "rowsLimit": 8,
        "sentencesWaiting": 5,
        "sentencesWaitingLimit": 64,
        "memoryBytes": 1024,
        "requests": 10,
        "requestSeconds": 0.5,
        "sentences": 11,
        "sourceTokens": 20,
        "generatedTokens": 30,
    }
    assert set(second.pop("load").values()) == {0}
    assert content.pop("identifiesLanguages") == can_identify()
    figures = {name: content.pop(name) for name in ("uptimeSeconds", "openCalls", "openCallsLimit", "refused")}
    assert figures == {"uptimeSeconds": 12.346, "openCalls": 2, "openCallsLimit": 9, "refused": 4}
    assert json_format.ParseDict(content, pb.ListModelsResponse()) == LISTED


def test_a_server_without_models_has_an_empty_list():
    assert status_report(pb.ListModelsResponse(), ServerLoad(0, 1, 0, {}), 0.0)["models"] == []
