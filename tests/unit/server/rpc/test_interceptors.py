"""The interceptor around handlers, called as gRPC calls it; what callers see of it is in integration/server."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from translane_server import errors
from translane_server.metrics import Metrics
from translane_server.rpc import interceptors
from translane_server.rpc.interceptors import CallInterceptor, note

PATH = "/a.Service/Method"
LABELS = {"grpc_type": "unary", "grpc_service": "a.Service", "grpc_method": "Method"}


class Context:
    """What the interceptor needs of a ServicerContext."""

    def __init__(self, remaining=None):
        self.remaining = remaining
        self.status: grpc.StatusCode | None = None

    def code(self):
        return self.status

    def peer(self):
        return "a peer"

    def time_remaining(self):
        return self.remaining

    async def abort(self, code, details, trailing_metadata):
        self.status = code
        raise grpc.aio.AbortError


def call_of(path) -> Any:
    """What the interceptor needs of a HandlerCallDetails."""
    return SimpleNamespace(method=path)


class Ticks:
    """A clock that goes on by a second at each look."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1
        return self.now


class Server:
    """Handlers by path behind an interceptor."""

    def __init__(self, **behaviors):
        self.metrics = Metrics()
        self.asked = []
        self._interceptor = CallInterceptor(self.metrics, Ticks())
        self._handlers = {
            f"/a.Service/{name}": grpc.unary_unary_rpc_method_handler(behavior, parse, bytes)
            for name, behavior in behaviors.items()
        }

    async def find(self, path=PATH):
        return await self._interceptor.intercept_service(self._lookup, call_of(path))

    async def call(self, message=b"hello", context=None, path=PATH):
        handler = await self.find(path)
        return await handler.unary_unary(handler.request_deserializer(message), context or Context())

    async def failure(self, error, context=None, **call):
        with pytest.raises(error):
            await self.call(context=context, **call)

    def handled(self, code, **labels):
        return self.value("grpc_server_handled_total", **LABELS, grpc_code=code, **labels)

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)

    async def _lookup(self, details):
        self.asked.append(details.method)
        return self._handlers.get(details.method)


def parse(message):
    if message == b"?":
        raise DecodeError
    return message.decode()


async def echo(request, _context):
    return request


def raising(error):
    async def method(_request, _context):
        raise error

    return method


async def test_a_call_is_counted_and_timed():
    server = Server(Method=echo)
    assert await server.call() == "hello"
    assert await server.call() == "hello"
    assert server.value("grpc_server_started_total", **LABELS) == 2
    assert server.handled("OK") == 2
    assert server.value("grpc_server_handling_seconds_sum", **LABELS) == 2.0


async def test_a_code_that_was_never_answered_has_no_metric():
    server = Server(Method=echo)
    await server.call()
    assert server.handled("INTERNAL") is None


async def test_the_handler_of_a_method_is_made_once():
    server = Server(Method=echo, Other=echo)
    assert await server.find() is await server.find()
    assert await server.find("/a.Service/Other") is not await server.find()
    assert server.asked == [PATH, "/a.Service/Other"]


async def test_nothing_is_kept_of_unknown_methods():
    server = Server(Method=echo)
    for number in range(100):
        assert await server.find(f"/a.Service/{number}") is None
    assert await server.find("/a.Service/1") is None
    assert len(server.asked) == 101
    assert not server._interceptor._handlers
    unknown = {"grpc_type": "unary", "grpc_service": "unknown", "grpc_method": "unknown"}
    assert server.value("grpc_server_handled_total", **unknown, grpc_code="UNIMPLEMENTED") == 101


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidRequestError(errors.FieldViolation("texts", "is empty")), "INVALID_ARGUMENT"),
        (errors.QueueFullError("full", retry_after=1.0), "RESOURCE_EXHAUSTED"),
        (ValueError("a bug"), "INTERNAL"),
    ],
)
async def test_errors_become_statuses(error, code):
    server = Server(Method=raising(error))
    context = Context()
    await server.failure(grpc.aio.AbortError, context)
    assert context.status is not None
    assert context.status.name == code
    assert server.handled(code) == 1
    refused = [server.value("translane_rejected_total", reason=reason) for reason in ("INVALID_FIELD", "QUEUE_FULL")]
    assert refused == [code == "INVALID_ARGUMENT", code == "RESOURCE_EXHAUSTED"]


@pytest.mark.parametrize(("remaining", "code"), [(None, "CANCELLED"), (3.0, "CANCELLED"), (0.005, "DEADLINE_EXCEEDED")])
async def test_a_call_that_was_given_up(remaining, code):
    server = Server(Method=raising(asyncio.CancelledError()))
    await server.failure(asyncio.CancelledError, Context(remaining))
    assert server.handled(code) == 1


async def test_what_a_method_aborts_with_is_counted():
    async def method(_request, context):
        await context.abort(grpc.StatusCode.NOT_FOUND, "", ())

    server = Server(Method=method)
    await server.failure(grpc.aio.AbortError)
    assert server.handled("NOT_FOUND") == 1


async def test_a_message_that_cannot_be_parsed():
    server, context = Server(Method=raising(AssertionError("is not called"))), Context()
    await server.failure(grpc.aio.AbortError, context, message=b"?")
    assert context.status == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_stream():
    async def method(_request, _context):
        yield "one"
        yield "two"

    metrics = Metrics()
    handler = grpc.unary_stream_rpc_method_handler(method)

    async def lookup(_details):
        return handler

    wrapped = await CallInterceptor(metrics).intercept_service(lookup, call_of(PATH))
    assert [response async for response in wrapped.unary_stream("", Context())] == ["one", "two"]
    labels = LABELS | {"grpc_type": "server_stream", "grpc_code": "OK"}
    assert metrics.registry.get_sample_value("grpc_server_handled_total", labels) == 1


async def noted(_request, _context):
    note(texts=1)
    await asyncio.sleep(0)
    note(tokens=3)


async def test_the_log_has_what_was_noted_of_each_call(caplog):
    caplog.set_level(logging.DEBUG, "translane_server")
    server = Server(Method=noted, Other=echo)
    await asyncio.gather(server.call(), server.call(path="/a.Service/Other"))
    lines = {record.translane_data["method"]: record.translane_data for record in caplog.records}
    seconds = {name: line.pop("milliseconds") for name, line in lines.items()}
    assert seconds.keys() == {"Method", "Other"}
    assert lines["Method"] == {"method": "Method", "code": "OK", "peer": "a peer", "texts": 1, "tokens": 3}
    assert lines["Other"] == {"method": "Other", "code": "OK", "peer": "a peer"}


async def test_notes_of_calls_that_are_not_logged_go_nowhere(caplog):
    caplog.set_level(logging.INFO, "translane_server")
    kept = []

    async def method(_request, _context):
        note(texts=1)
        kept.append(interceptors._facts.get(None))

    await Server(Method=method).call()
    assert kept == [None]
    caplog.set_level(logging.DEBUG, "translane_server")
    await Server(Method=method).call()
    assert kept == [None, {"texts": 1}]
