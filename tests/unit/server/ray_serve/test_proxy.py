"""What the proxy does around Serve's own handlers: deadlines, lost engines, statuses without details."""

import asyncio
from collections.abc import Sequence

import grpc
import pytest

pytest.importorskip("ray.serve", reason="Ray is not installed")

from ray.serve._private.grpc_util import gRPCGenericServer
from ray.serve.grpc_util import RayServegRPCContext

from fakes.grpc_context import GrpcContext
from translane_server.api.status import internal, status_of
from translane_server.core.errors import FieldViolation, InvalidRequestError
from translane_server.ray_serve import proxy
from translane_server.ray_serve.calls import REMAINING, Answer
from translane_server.ray_serve.proxy import ATTEMPTS, add_translation_service

SERVICE = "translane.v1.TranslationService"
LOST = grpc.StatusCode.INTERNAL
METHODS = pytest.mark.parametrize("method", ["Translate", "TranslateStream"])


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(proxy, "_PAUSE", 0.0)


class Serve(gRPCGenericServer):  # type: ignore[misc]  # Ray has no types
    """Serve's gRPC server. Each attempt has one of `results`: a message, a list of them, or a status."""

    def __init__(self, *results):
        super().__init__(self._handler)
        self.results = list(results)
        self.seen = []

    def _handler(self, service_method, streaming_type):
        async def stream(request, context):
            self.seen.append((request, tuple(context.invocation_metadata())))
            copied = RayServegRPCContext(context)  # an engine has a copy
            copied.set_trailing_metadata([("request_id", "1")])
            result = self.results.pop(0)
            for each in result if isinstance(result, list) else [result]:
                if isinstance(each, grpc.StatusCode):  # of Serve itself
                    context.set_code(each)
                    context.set_details("a trace")
                    return
                if isinstance(each, Answer):
                    each.told(copied)
                copied._set_on_grpc_context(context)
                yield b"" if isinstance(each, Answer) else each
            if not context.code():
                context.set_code(grpc.StatusCode.OK)

        async def unary(request, context):
            return next(iter([each async for each in stream(request, context)]), b"")

        return unary if streaming_type == "unary_unary" else stream


async def called(serve, context, method="TranslateStream"):
    """What the caller of a method gets."""
    add_translation_service(object_with_methods(), serve)
    ((handlers,),) = serve.generic_rpc_handlers
    details = type("Details", (), {"method": f"/{SERVICE}/{method}"})
    handler = handlers.service(details)
    return [message async for message in handler.unary_stream(b"request", context)]


def object_with_methods():
    return type(
        "Servicer", (), dict.fromkeys(("Translate", "TranslateStream", "TranslateDocument", "Score", "ListModels"))
    )()


@METHODS
@pytest.mark.parametrize("result", [b"answer", Answer(status=internal()), grpc.StatusCode.CANCELLED])
async def test_every_answer_has_the_callers_name_of_the_request(method, result):
    context = GrpcContext(("x-request-id", "mine"))
    await called(Serve(result), context, method)
    assert ("x-request-id", "mine") in context.trailers


@METHODS
async def test_the_deadline_goes_on_and_a_caller_does_not_set_it(method):
    serve = Serve(b"answer")
    await called(serve, GrpcContext(("x", "y"), (REMAINING, "1000"), remaining=1.5), method)
    assert serve.seen == [(b"request", (("x", "y"), (REMAINING, "1.500000")))]
    serve = Serve(b"answer")
    await called(serve, GrpcContext((REMAINING, "1000")), method)
    assert serve.seen == [(b"request", ())]


@METHODS
@pytest.mark.parametrize("lost", range(1, ATTEMPTS))
async def test_a_call_whose_engine_has_ended_is_sent_to_another(method, lost):
    context = GrpcContext()
    assert await called(Serve(*[LOST] * lost, b"answer"), context, method) == [b"answer"]
    assert (context.status, context.text, context.trailers) == (0, "", (("request_id", "1"),))


@METHODS
async def test_a_call_that_ends_every_engine_is_unavailable(method):
    context = GrpcContext()
    assert await called(Serve(*[LOST] * ATTEMPTS), context, method) == []
    assert context.failure.code is grpc.StatusCode.UNAVAILABLE
    assert context.failure.is_refusal
    assert "trace" not in context.failure.message


async def test_a_stream_that_has_begun_is_not_repeated():
    serve, context = Serve([b"a", LOST], [b"a", b"b"]), GrpcContext()
    assert await called(serve, context) == [b"a"]
    assert context.failure.is_refusal
    assert len(serve.results) == 1


@pytest.mark.parametrize("status", [status_of(InvalidRequestError(FieldViolation("texts", "are missing"))), internal()])
async def test_an_error_of_the_engine_is_not_repeated_and_keeps_its_details(status):
    for method, result, messages in (
        ("Translate", Answer(status=status), []),
        ("TranslateStream", [b"a", Answer(status=status)], [b"a"]),  # the message of the status is left out
    ):
        context = GrpcContext()
        assert await called(Serve(result, b"answer"), context, method) == messages
        assert (context.status, context.text) == (status.code, status.message)
        assert dict(context.trailers)["grpc-status-details-bin"] == status.SerializeToString()


@pytest.mark.parametrize(
    ("of_serve", "reason"),
    [(grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL"), (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")],
)
async def test_refusals_of_serve_say_when_to_come_back(of_serve, reason):
    context = GrpcContext()
    await called(Serve(of_serve), context)
    assert (context.failure.code, context.failure.reason) == (of_serve, reason)
    assert context.failure.is_refusal


@pytest.mark.parametrize("code", [grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED])
async def test_the_end_of_a_call_is_left_as_it_is(code):
    context = GrpcContext()
    await called(Serve(code, b"answer"), context)
    assert (context.failure.code, context.text, context.trailers) == (code, "a trace", ())


async def test_a_caller_who_goes_closes_serves_generator():
    closed = asyncio.Event()

    async def serve(request, context):
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.set()

    answers = proxy.repeating(serve)(b"request", GrpcContext())
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
    add_translation_service(object_with_methods(), server)
    assert server.methods == ["ListModels", "Score", "Translate", "TranslateDocument", "TranslateStream"]
    assert "not known" in caplog.text
