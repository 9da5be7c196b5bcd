"""`/status.json`: what ListModels lists, with the figures of the metrics."""

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import code_pb2

from translane.v1 import translation_pb2 as pb
from translane_server.http.status_report import StatusReport, report
from translane_server.observation.load import ModelLoad, ServerLoad

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


class OneAnswer:
    """Implements what the report needs of `Forwarder`."""

    def __init__(self, error=None):
        self.error = error
        self.asked = []

    async def unary(self, path, message, metadata, seconds):
        self.asked.append((path, message, metadata))
        assert seconds > 0
        if self.error:
            raise self.error
        return LISTED.SerializeToString()


def test_a_report_has_the_models_and_their_load():
    content = report(LISTED, LOAD, 12.3456)
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
    figures = {name: content.pop(name) for name in ("uptimeSeconds", "openCalls", "openCallsLimit", "refused")}
    assert figures == {"uptimeSeconds": 12.346, "openCalls": 2, "openCallsLimit": 9, "refused": 4}
    assert json_format.ParseDict(content, pb.ListModelsResponse()) == LISTED


def test_a_server_without_models_has_an_empty_list():
    assert report(pb.ListModelsResponse(), ServerLoad(0, 1, 0, {}), 0.0)["models"] == []


async def test_the_caller_asks():
    forwarder, times = OneAnswer(), iter([100.0, 160.0])
    status = StatusReport(forwarder, lambda: LOAD, lambda: next(times))  # type: ignore[arg-type]
    page = await status.page([("authorization", "Bearer x")])
    assert (page.status, page.content_type) == (200, "application/json")
    assert b'"uptimeSeconds": 60.0' in page.body
    ((path, message, metadata),) = forwarder.asked
    assert path == "/translane.v1.TranslationService/ListModels"
    assert pb.ListModelsRequest.FromString(message) == pb.ListModelsRequest()
    assert metadata == [("authorization", "Bearer x")]


@pytest.mark.parametrize(
    ("code", "status", "name"),
    [("UNAUTHENTICATED", 401, b"unauthenticated"), ("RESOURCE_EXHAUSTED", 429, b"resource_exhausted")],
)
async def test_a_refusal_is_that_of_list_models(code, status, name):
    error = grpc.aio.AioRpcError(getattr(grpc.StatusCode, code), grpc.aio.Metadata(), grpc.aio.Metadata(), "no", "no")
    page = await StatusReport(OneAnswer(error), lambda: LOAD).page([])  # type: ignore[arg-type]
    assert page.status == status
    assert name in page.body
    assert b"models" not in page.body
    assert ("www-authenticate" in page.headers) == (code == code_pb2.Code.Name(code_pb2.UNAUTHENTICATED))
