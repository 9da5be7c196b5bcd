"""What the proxy does around Serve's own handlers: deadlines, lost engines, statuses without details."""

import asyncio
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from helpers.reliability.failures import parsed
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.ray_serve import proxy
from translane_server.ray_serve.calls import ATTEMPTS, REMAINING, Answer
from translane_server.ray_serve.proxy import answering, streaming

LOST = grpc.StatusCode.INTERNAL
NO_ROOM = "Request dropped due to backpressure (num_queued_requests=9, max_queued_requests=9)."


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(proxy, "_PAUSE", 0.0)


class Context:
    """gRPC's own context, whose code is a number."""

    def __init__(self, remaining=None, metadata=()):
        self.remaining = remaining
        self.metadata = metadata
        self.status = 0
        self.text = ""
        self.trailers: tuple[Any, ...] = ()

    def invocation_metadata(self):
        return self.metadata

    def time_remaining(self):
        return self.remaining

    def code(self):
        return self.status

    def set_code(self, code):
        self.status = code.value[0]

    def details(self):
        return self.text

    def set_details(self, details):
        self.text = details

    def trailing_metadata(self):
        return self.trailers

    def set_trailing_metadata(self, trailers):
        self.trailers = tuple(trailers)

    @property
    def failure(self):
        code = next(code for code in grpc.StatusCode if code.value[0] == self.status)
        return parsed(code, dict(self.trailers).get("grpc-status-details-bin", b""), self.text)


class Serve:
    """Serve's handlers: each attempt has one of `results`, a message, a list of them, or a status."""

    text = "a trace"

    def __init__(self, *results):
        self.results = list(results)
        self.seen = []

    async def unary(self, request, context):
        self.seen.append((request, context.invocation_metadata()))
        return self._told(self.results.pop(0), context)

    async def stream(self, request, context):
        self.seen.append((request, context.invocation_metadata()))
        result = self.results.pop(0)
        for each in result if isinstance(result, list) else [result]:
            message = self._told(each, context)
            if isinstance(each, bytes | Answer):
                yield message

    @staticmethod
    def _told(result, context):
        if isinstance(result, Answer):  # of an engine, whose context Serve copies
            result.put_on(context)
        elif isinstance(result, grpc.StatusCode):  # of Serve itself
            context.set_code(result)
            context.set_details(Serve.text)
        return result if isinstance(result, bytes) else b""


async def told(serve, context):
    return [message async for message in streaming(serve.stream)(b"request", context)]


async def test_an_answer_passes():
    serve, context = Serve(b"answer"), Context()
    assert await answering(serve.unary)(b"request", context) == b"answer"
    assert serve.seen == [(b"request", ())]
    assert context.status == 0
    assert await told(Serve([b"a", b"b"]), Context()) == [b"a", b"b"]


async def test_the_deadline_goes_on_and_a_caller_does_not_set_it():
    serve = Serve(b"answer", [b"answer"])
    context = Context(1.5, (("x", "y"), (REMAINING, "1000")))
    await answering(serve.unary)(b"request", context)
    await told(serve, context)
    assert [metadata for _, metadata in serve.seen] == [(("x", "y"), (REMAINING, "1.500000"))] * 2
    serve = Serve(b"answer")
    await answering(serve.unary)(b"request", Context(None, ((REMAINING, "1000"),)))
    assert serve.seen == [(b"request", ())]


@pytest.mark.parametrize("lost", range(1, ATTEMPTS))
async def test_a_call_whose_engine_has_ended_is_sent_to_another(lost):
    context = Context()
    assert await answering(Serve(*[LOST] * lost, b"answer").unary)(b"request", context) == b"answer"
    assert (context.status, context.text, context.trailers) == (0, "", ())
    context = Context()
    assert await told(Serve(*[LOST] * lost, [b"a", b"b"]), context) == [b"a", b"b"]
    assert context.status == 0


async def test_a_call_that_ends_every_engine_is_unavailable():
    for context, answered in ((Context(), answering(Serve(*[LOST] * ATTEMPTS).unary)), (Context(), None)):
        if answered:
            await answered(b"request", context)
        else:
            assert await told(Serve(*[LOST] * ATTEMPTS), context) == []
        assert context.failure.code is grpc.StatusCode.UNAVAILABLE
        assert context.failure.is_refusal
        assert "trace" not in context.failure.message


async def test_a_stream_that_has_begun_is_not_repeated():
    serve, context = Serve([b"a", LOST], [b"a", b"b"]), Context()
    assert await told(serve, context) == [b"a"]
    assert context.failure.is_refusal
    assert len(serve.results) == 1


async def test_an_error_of_the_engine_is_not_repeated_and_keeps_its_details():
    wrong = Answer.failed(InvalidRequestError(FieldViolation("texts", "are missing")))
    for answer in (wrong, Answer.bug()):
        context = Context()
        await answering(Serve(answer, b"answer").unary)(b"request", context)
        assert (context.failure.code, context.text) == (answer.code, answer.details)
        context = Context()
        assert await told(Serve([b"a", answer], [b"b"]), context) == [b"a"]  # the message of the status is left out
        assert context.trailers == answer.trailers


@pytest.mark.parametrize(
    ("of_serve", "text", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, NO_ROOM, "QUEUE_FULL"),
        (grpc.StatusCode.UNAVAILABLE, "a trace", "UNAVAILABLE"),
    ],
)
async def test_refusals_of_serve_say_when_to_come_back(monkeypatch, of_serve, text, reason):
    monkeypatch.setattr(Serve, "text", text)
    context = Context()
    context.trailers = (("request_id", "1"),)
    await answering(Serve(of_serve).unary)(b"request", context)
    assert (context.failure.code, context.failure.reason) == (of_serve, reason)
    assert context.failure.is_refusal
    assert context.trailers[0] == ("request_id", "1")


async def test_only_serve_says_that_the_queue_is_full():
    context = Context()
    await answering(Serve(grpc.StatusCode.RESOURCE_EXHAUSTED).unary)(b"request", context)
    assert (context.failure.code, context.text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "a trace")
    assert context.trailers == ()


def test_serve_says_that_it_has_no_room():
    pytest.importorskip("ray.serve", reason="Ray is not installed")
    from ray.serve.exceptions import BackPressureError

    assert BackPressureError(9, 9).message == NO_ROOM


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_the_end_of_a_call_is_left_as_it_is(code):
    context = Context()
    await answering(Serve(code, b"answer").unary)(b"request", context)
    assert (context.failure.code, context.trailers) == (code, ())


async def test_a_caller_who_goes_closes_serves_generator():
    closed = asyncio.Event()

    async def serve(request, context):
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.set()

    answers = streaming(serve)(b"request", Context())
    assert await anext(answers) == b"a"
    await answers.aclose()
    assert closed.is_set()


def test_an_unknown_version_of_serve_gets_the_generated_service(caplog):
    class Server:
        methods: Sequence[str] = ()

        def add_generic_rpc_handlers(self, handlers):
            pass

        def add_registered_method_handlers(self, service, handlers):
            self.methods = sorted(handlers)

    server = Server()
    proxy.add_translation_service(object_with_methods(), server)
    assert server.methods == ["ListModels", "Score", "Translate", "TranslateStream"]
    assert "not known" in caplog.text


def object_with_methods():
    return type("Servicer", (), dict.fromkeys(("Translate", "TranslateStream", "Score", "ListModels")))()


def test_the_installed_serve_is_known():
    pytest.importorskip("ray.serve", reason="Ray is not installed")
    from ray.serve._private.grpc_util import gRPCGenericServer

    made = []

    def factory(service_method, streaming_type):
        async def handler(request, context):
            raise AssertionError

        made.append((service_method, streaming_type.value))
        return handler

    async def registered():
        server = gRPCGenericServer(factory)
        proxy.add_translation_service(object_with_methods(), server)
        return server.generic_rpc_handlers

    ((handlers,),) = asyncio.run(registered())
    start = "/translane.v1.TranslationService/"
    assert dict(made) == {
        f"{start}Translate": "unary_unary",
        f"{start}TranslateStream": "unary_stream",
        f"{start}Score": "unary_unary",
        f"{start}ListModels": "unary_unary",
    }
    assert handlers.service_name() == "translane.v1.TranslationService"
