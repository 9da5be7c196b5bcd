"""The interceptor around handlers, called as gRPC calls it; what callers see of it is in integration/server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from translane_server.api.interceptors import CallInterceptor
from translane_server.api.open_calls import CallLimits
from translane_server.observation.metrics import Metrics

EOF = grpc.aio.EOF  # type: ignore[attr-defined]  # missing from the stubs
PATH = "/a.Service/Method"
LABELS = {"grpc_type": "unary", "grpc_service": "a.Service", "grpc_method": "Method"}


class Context:
    """What the interceptor needs of a ServicerContext."""

    def __init__(self):
        self.messages = [b"hello"]
        self.written = []
        self.status: grpc.StatusCode | None = None

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
        return None

    async def abort(self, code, details, trailing_metadata):
        self.status = code
        raise grpc.aio.AbortError


def call_of(path) -> Any:
    """What the interceptor needs of a HandlerCallDetails."""
    return SimpleNamespace(method=path)


class Server:
    """Handlers by path behind an interceptor."""

    def __init__(self, **behaviors):
        self.metrics = Metrics()
        self._interceptor = CallInterceptor(self.metrics, CallLimits())
        self.open_calls = calls = self._interceptor.open_calls
        self.metrics.watch_calls(lambda: calls.count, lambda: calls.size, 2048)
        self._handlers = {
            f"/a.Service/{name}": grpc.unary_unary_rpc_method_handler(behavior, parse, bytes)
            for name, behavior in behaviors.items()
        }

    async def find(self):
        return await self._interceptor.intercept_service(self._lookup, call_of(PATH))

    async def failure(self, error):
        handler = await self.find()
        with pytest.raises(error):
            await asyncio.create_task(handler.stream_unary(None, Context()))

    def handled(self, code):
        return self.value("grpc_server_handled_total", **LABELS, grpc_code=code)

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(name, labels)

    async def _lookup(self, details):
        return self._handlers.get(details.method)


def parse(message):
    return message.decode()


async def echo(request, _context):
    return request


def raising(error):
    async def method(_request, _context):
        raise error

    return method


async def test_a_caller_that_has_gone_is_no_bug(caplog):
    server = Server(Method=raising(grpc.aio.InternalError("gone")))
    await server.failure(grpc.aio.InternalError)
    assert server.handled("CANCELLED") == 1
    assert not caplog.records


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
