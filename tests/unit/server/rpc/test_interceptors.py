"""The interceptor around handlers, called as gRPC calls it; what callers see of it is in integration/server."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.message import DecodeError

from translane_server import errors
from translane_server.observation.metrics import Metrics
from translane_server.rpc import current_call
from translane_server.rpc.current_call import note
from translane_server.rpc.interceptors import CallInterceptor
from translane_server.rpc.open_calls import CallLimits

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs
PATH = "/a.Service/Method"
LABELS = {"grpc_type": "unary", "grpc_service": "a.Service", "grpc_method": "Method"}


class Context:
    """What the interceptor needs of a ServicerContext."""

    def __init__(self, remaining=None, messages=(b"hello",)):
        self.remaining = remaining
        self.messages = [*messages]
        self.written = []
        self.status: grpc.StatusCode | None = None
        self.trailers: Any = ()

    async def read(self):
        await asyncio.sleep(0)
        return self.messages.pop(0) if self.messages else EOF

    async def write(self, message):
        self.written.append(message)

    def invocation_metadata(self):
        return ()

    def code(self):
        return self.status

    def peer(self):
        return "ipv4:192.0.2.1:1234"

    def time_remaining(self):
        return self.remaining

    async def abort(self, code, details, trailing_metadata):
        self.status = code
        self.trailers = trailing_metadata
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

    def __init__(self, limits=None, **behaviors):
        self.metrics = Metrics()
        self.asked = []
        self._interceptor = CallInterceptor(self.metrics, limits or CallLimits(), clock=Ticks())
        self.open_calls = calls = self._interceptor.open_calls
        self.metrics.watch_calls(lambda: calls.count, lambda: calls.size, 2048)
        self._handlers = {
            f"/a.Service/{name}": grpc.unary_unary_rpc_method_handler(behavior, parse, bytes)
            for name, behavior in behaviors.items()
        }

    async def find(self, path=PATH):
        return await self._interceptor.intercept_service(self._lookup, call_of(path))

    async def call(self, context=None, path=PATH):
        handler = await self.find(path)
        return await asyncio.create_task(handler.stream_unary(None, context or Context()))

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
        context = Context(messages=())
        await server.failure(grpc.aio.AbortError, context, path=f"/a.Service/{number}")
        assert context.status == grpc.StatusCode.UNIMPLEMENTED
    assert await server.find("/a.Service/1") is await server.find("/no service")
    assert len(server.asked) == 102
    assert not server._interceptor._handlers
    unknown = {"grpc_type": "unary", "grpc_service": "unknown", "grpc_method": "unknown"}
    assert server.value("grpc_server_handled_total", **unknown, grpc_code="UNIMPLEMENTED") == 100


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


async def test_a_caller_that_has_gone_is_no_bug(caplog):
    server = Server(Method=raising(grpc.aio.InternalError("gone")))
    await server.failure(grpc.aio.InternalError)
    assert server.handled("CANCELLED") == 1
    assert not caplog.records


async def test_what_a_method_aborts_with_is_counted():
    async def method(_request, context):
        await context.abort(grpc.StatusCode.NOT_FOUND, "", ())

    server = Server(Method=method)
    await server.failure(grpc.aio.AbortError)
    assert server.handled("NOT_FOUND") == 1


async def test_a_message_that_cannot_be_parsed():
    server, context = Server(Method=raising(AssertionError("is not called"))), Context(messages=[b"?"])
    await server.failure(grpc.aio.AbortError, context)
    assert context.status == grpc.StatusCode.INVALID_ARGUMENT
    assert server.value("translane_rejected_total", reason="INVALID_FIELD") == 1


async def test_a_call_without_a_message():
    server, context = Server(Method=raising(AssertionError("is not called"))), Context(messages=())
    await server.failure(grpc.aio.AbortError, context)
    assert context.status == grpc.StatusCode.INVALID_ARGUMENT
    assert server.handled("INVALID_ARGUMENT") == 1


async def test_a_call_is_open_until_its_task_ends():
    server = Server(Method=echo)
    handler = await server.find()
    answered, sent = asyncio.Event(), asyncio.Event()

    async def rpc():
        assert await handler.stream_unary(None, Context()) == "hello"
        answered.set()
        await sent.wait()  # as gRPC's own task sends the answer after the handler has returned

    task = asyncio.create_task(rpc())
    await answered.wait()
    assert (server.open_calls.count, server.open_calls.size) == (1, 5)
    assert server.value("translane_open_calls") == 1
    assert server.value("translane_open_call_bytes") == 5
    sent.set()
    await task
    await asyncio.sleep(0)
    assert (server.open_calls.count, server.open_calls.size) == (0, 0)


async def test_a_call_that_takes_too_long():
    async def method(_request, _context):
        await asyncio.Event().wait()

    server, context = Server(CallLimits(request_timeout=0.01), Method=method), Context()
    await server.failure(grpc.aio.AbortError, context)
    assert context.status == grpc.StatusCode.DEADLINE_EXCEEDED
    assert server.handled("DEADLINE_EXCEEDED") == 1
    assert b"REQUEST_TIMEOUT" in dict(context.trailers)["grpc-status-details-bin"]
    await asyncio.sleep(0)
    assert server.open_calls.count == 0


async def test_a_refused_call_is_counted():
    running = asyncio.Event()

    async def method(_request, _context):
        running.set()
        await asyncio.Event().wait()

    server = Server(CallLimits(calls=1), Method=method)
    first = asyncio.create_task(server.call())
    await running.wait()
    context = Context()
    await server.failure(grpc.aio.AbortError, context)
    assert context.status == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert server.value("translane_rejected_total", reason="TOO_MANY_CALLS") == 1
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first


@pytest.mark.parametrize(("path", "ends"), [("/grpc.health.v1.Health/Watch", False), (PATH, True)])
async def test_a_watch_has_no_longest_time(path, ends):
    async def watch(_request, _context):
        await asyncio.sleep(0.05)
        yield "changed"

    async def lookup(_details):
        return grpc.unary_stream_rpc_method_handler(watch)

    interceptor = CallInterceptor(Metrics(), CallLimits(request_timeout=0.01))
    wrapped, context = await interceptor.intercept_service(lookup, call_of(path)), Context()
    task = asyncio.create_task(wrapped.stream_stream(None, context))
    await asyncio.wait([task])
    assert (context.written, context.status) == (
        ([], grpc.StatusCode.DEADLINE_EXCEEDED) if ends else (["changed"], None)
    )
    assert isinstance(task.exception(), grpc.aio.AbortError if ends else type(None))


async def streamed(handler, context):
    async def lookup(_details):
        return handler

    metrics = Metrics()
    wrapped = await CallInterceptor(metrics, CallLimits()).intercept_service(lookup, call_of(PATH))
    await asyncio.create_task(wrapped.stream_stream(None, context))
    return metrics


async def test_a_stream_of_answers():
    async def method(request, _context):
        yield request
        yield "two"

    context = Context()
    metrics = await streamed(grpc.unary_stream_rpc_method_handler(method, parse), context)
    assert context.written == ["hello", "two"]
    labels = LABELS | {"grpc_type": "server_stream", "grpc_code": "OK"}
    assert metrics.registry.get_sample_value("grpc_server_handled_total", labels) == 1


async def test_a_stream_of_answers_that_the_method_writes():
    async def method(request, context):
        await context.write(request)

    context = Context()
    await streamed(grpc.unary_stream_rpc_method_handler(method, parse), context)
    assert context.written == ["hello"]


async def test_a_stream_whose_caller_does_not_read_ends_with_the_next_message():
    writing, reads = asyncio.Event(), asyncio.Event()

    class Slow(Context):
        async def write(self, message):
            writing.set()
            await reads.wait()
            await super().write(message)

    async def method(_request, context):
        for number in range(3):
            await context.write(number)

    async def lookup(_details):
        return grpc.unary_stream_rpc_method_handler(method)

    interceptor = CallInterceptor(Metrics(), CallLimits(request_timeout=0.01))
    wrapped, context = await interceptor.intercept_service(lookup, call_of(PATH)), Slow()
    task = asyncio.create_task(wrapped.stream_stream(None, context))
    await writing.wait()
    await asyncio.sleep(0.02)
    assert (interceptor.open_calls.count, context.status) == (1, None)
    reads.set()
    await asyncio.wait([task])
    assert (context.written, context.status) == ([0], grpc.StatusCode.DEADLINE_EXCEEDED)


async def test_streams_both_ways():
    async def method(requests, _context):
        async for request in requests:
            yield request

    context = Context(messages=[b"one", b"three", b"two"])
    metrics = await streamed(grpc.stream_stream_rpc_method_handler(method, parse), context)
    assert context.written == ["one", "three", "two"]
    labels = LABELS | {"grpc_type": "bidi_stream", "grpc_code": "OK"}
    assert metrics.registry.get_sample_value("grpc_server_handled_total", labels) == 1


async def noted(_request, _context):
    note(texts=1)
    await asyncio.sleep(0)
    note(tokens=3)


async def test_the_log_has_what_was_noted_of_each_call(caplog):
    caplog.set_level(logging.DEBUG, "translane_server")
    server = Server(Method=noted, Other=echo)
    await asyncio.gather(server.call(), server.call(path="/a.Service/Other"))
    found = [record.translane_data for record in caplog.records if record.name.startswith("translane_server")]
    lines = {line["method"]: line for line in found}
    seconds = {name: line.pop("milliseconds") for name, line in lines.items()}
    assert seconds.keys() == {"Method", "Other"}
    assert lines["Method"] == {"method": "Method", "code": "OK", "peer": "ipv4:192.0.2.1:1234", "texts": 1, "tokens": 3}
    assert lines["Other"] == {"method": "Other", "code": "OK", "peer": "ipv4:192.0.2.1:1234"}


async def test_notes_of_calls_that_are_not_logged_go_nowhere(caplog):
    caplog.set_level(logging.INFO, "translane_server")
    kept = []

    async def method(_request, _context):
        note(texts=1)
        kept.append(current_call._facts.get(None))

    await Server(Method=method).call()
    assert kept == [None]
    caplog.set_level(logging.DEBUG, "translane_server")
    await Server(Method=method).call()
    assert kept == [None, {"texts": 1}]
