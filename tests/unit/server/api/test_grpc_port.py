"""The gRPC port, called as gRPC calls it, and its options; what callers see of it is in integration/server."""

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from fakes.serving import make_settings
from translane_server.api import grpc_port
from translane_server.api.admission import Use
from translane_server.api.answering import Answering
from translane_server.observation.metrics import Metrics


def options(**settings):
    return dict(grpc_port.options_of(make_settings(**settings), connections=100))


def make_port(**settings):
    metrics, made = Metrics(), make_settings(**settings)
    return grpc_port.GrpcPort(metrics, Answering(made), grpc_port.options_of(made, connections=1))


@pytest.mark.parametrize(
    "settings",
    [
        {
            "max_calls": 2**20,
            "max_streams": 2**20,
            "max_message_bytes": 2**30,
            "max_bytes_in_flight": 2**40,
            "max_connection_idle": 2000000,
            "max_connection_age": 2000000,
            "request_timeout": 86400,
        },
        {"request_timeout": 1e-9},
    ],
)
async def test_grpc_takes_the_extreme_settings(settings):
    assert all(
        0 <= value < 2**31 for key, value in options(**settings).items() if key != "grpc.max_send_message_length"
    )
    await make_port(**settings).server.stop(None)


def test_a_full_request_of_long_sentences_fits_the_default():
    # the longest sentences take 256 tokens, and a token of common writings is at most 3 letters of 3 bytes on average
    assert make_settings().max_message_bytes >= 256 * 256 * 3 * 3 + 256 * 4


async def test_only_errors_that_say_something_are_logged(caplog):
    await make_port().server.stop(None)
    logger = logging.getLogger("grpc._cython.cygrpc")
    for error in (grpc.aio.InternalError("gone"), ValueError("a bug")):
        logger.error("failed", exc_info=error)
    logger.error("alone")
    assert [record.exc_info and type(record.exc_info[1]) for record in caplog.records] == [ValueError, None]


class Context:
    """What the port needs of a ServicerContext."""

    def __init__(self, *, has_gone=False):
        self.written = []
        self.status: grpc.StatusCode | None = None
        self._has_gone = has_gone

    async def read(self):
        await asyncio.sleep(0)
        return b"hello"

    async def write(self, message):
        if self._has_gone:
            raise grpc.aio.InternalError("gone")
        self.written.append(message)

    def invocation_metadata(self):
        return ()

    def peer(self):
        return "ipv4:192.0.2.1:1234"

    def time_remaining(self):
        return None

    async def abort(self, code, details, trailing_metadata):
        self.status = code
        raise grpc.aio.AbortError


class Port:
    """A port with one method."""

    def __init__(self, make, behavior, *, service="a.Service", name="Method", **limits):
        self.metrics = Metrics()
        answering = Answering(make_settings(**limits))
        self.admission = answering.admission
        port = grpc_port.GrpcPort(self.metrics, answering, [])
        port.add_registered_method_handlers(service, {name: make(behavior)})
        details: Any = SimpleNamespace(method=f"/{service}/{name}")
        self.handler = port.service(details)
        self.server = port.server

    def handled(self, code):
        labels = {"grpc_type": "server_stream", "grpc_service": "a.Service", "grpc_method": "Method"}
        return self.metrics.registry.get_sample_value("grpc_server_handled_total", labels | {"grpc_code": code})


async def echo(request, _call):
    return request


async def write_soon(_request, _call, write):
    await asyncio.sleep(0.25)
    await write("changed")


async def test_a_caller_that_has_gone_is_no_bug(caplog):
    port = Port(grpc.unary_stream_rpc_method_handler, write_soon)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(port.handler.stream_stream(None, Context(has_gone=True)))
    assert port.handled("CANCELLED") == 1
    assert not caplog.records


async def test_a_call_is_open_until_its_task_ends():
    port = Port(grpc.unary_unary_rpc_method_handler, echo)
    answered, sent = asyncio.Event(), asyncio.Event()

    async def rpc():
        assert await port.handler.stream_unary(None, Context()) == b"hello"
        answered.set()
        await sent.wait()  # as gRPC's own task sends the answer after the handler has returned

    task = asyncio.create_task(rpc())
    await answered.wait()
    assert port.admission.open == Use(1, 5)
    sent.set()
    await task
    await asyncio.sleep(0)
    assert port.admission.open == Use()


async def test_a_stream_whose_caller_does_not_read_ends_with_the_next_message():
    writing, reads = asyncio.Event(), asyncio.Event()

    class Slow(Context):
        async def write(self, message):
            writing.set()
            await reads.wait()
            await super().write(message)

    async def write_many(_request, _call, write):
        for number in range(3):
            await write(number)

    port, context = Port(grpc.unary_stream_rpc_method_handler, write_many, request_timeout=0.01), Slow()
    task = asyncio.create_task(port.handler.stream_stream(None, context))
    await writing.wait()
    await asyncio.sleep(0.3)
    assert (port.admission.open.calls, context.status) == (1, None)
    reads.set()
    await asyncio.wait([task])
    assert (context.written, context.status) == ([0], grpc.StatusCode.DEADLINE_EXCEEDED)
    assert isinstance(task.exception(), grpc.aio.AbortError)


@pytest.mark.parametrize(
    ("service", "name", "ends"), [("grpc.health.v1.Health", "Watch", False), ("a.Service", "Method", True)]
)
async def test_a_watch_has_no_longest_time(service, name, ends):
    make = grpc.unary_stream_rpc_method_handler
    port, context = Port(make, write_soon, service=service, name=name, request_timeout=0.01), Context()
    task = asyncio.create_task(port.handler.stream_stream(None, context))
    await asyncio.wait([task])
    assert (context.written, context.status) == (
        ([], grpc.StatusCode.DEADLINE_EXCEEDED) if ends else (["changed"], None)
    )
    assert isinstance(task.exception(), grpc.aio.AbortError if ends else type(None))
