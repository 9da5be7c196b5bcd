"""A trace is sent as it says: a paragraph whole to a server that cuts it, and its sentences to one that does not."""

import asyncio

import grpc

from benchmarks.measuring.replay import replay, serialized
from benchmarks.models.trace import TraceRequest
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

TRACE = [TraceRequest(0.0, ("一。", "二。"), "一。二。"), TraceRequest(0.02, ("三。",)), TraceRequest(0.04, ("四。",))]


def test_a_request_has_the_paragraph_or_its_sentences():
    whole, apart = (
        pb.TranslateRequest.FromString(serialized(TRACE[0], 4, paragraphs=whole)) for whole in (True, False)
    )
    assert list(whole.texts) == ["一。二。"]
    assert list(apart.texts) == ["一。", "二。"]
    assert (whole.options.beam_size, whole.options.early_stopping) == (4, True)
    fixed = pb.TranslateRequest.FromString(serialized(TraceRequest(0.0, ("a", "b"), max_length=9), 1, paragraphs=True))
    assert list(fixed.texts) == ["a", "b"]
    assert fixed.options.max_length == 9


class Refusing(translation_pb2_grpc.TranslationServiceServicer):
    """Answers all requests but those of one text."""

    def __init__(self) -> None:
        self.texts = list[str]()

    async def Translate(self, request, context):  # noqa: N802
        self.texts += request.texts
        if "三。" in request.texts:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many")
        return pb.TranslateResponse()


def test_requests_go_in_order_and_failures_are_counted():
    async def run():
        service, server = Refusing(), grpc.aio.server()
        translation_pb2_grpc.add_TranslationServiceServicer_to_server(service, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        requests = [serialized(request, 1, paragraphs=True) for request in TRACE]
        measured = await replay(f"127.0.0.1:{port}", TRACE, requests, 10.0)
        await server.stop(None)
        return service.texts, measured

    texts, measured = asyncio.run(run())
    assert sorted(texts) == sorted(["一。二。", "三。", "四。"])
    assert len(measured.latencies) == 2
    assert measured.errors == {"RESOURCE_EXHAUSTED": 1}
