"""What the port refuses, and what it answers meanwhile, through a real socket."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fakes.serving import serving
from helpers.failures import ended
from helpers.http_calls import until
from helpers.reliability import raw_http2
from helpers.reliability.raw_http2 import RawConnection
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc
from translane_server.api import health
from translane_server.api.admission import READING

SERVICE = "translane.v1.TranslationService"
SERVING = health_pb2.HealthCheckResponse.SERVING
CANCELLED_OR_WRONG = ("CANCELLED", "INVALID_ARGUMENT")


def of_a_connection_of_its_own(running):
    options = [("grpc.use_local_subchannel_pool", 1)]
    return grpc.aio.insecure_channel(f"127.0.0.1:{running.server.port}", options=options)


def streaming(channel, method="Translate"):
    """A call of a unary method whose message can be held back."""
    return channel.stream_stream(f"/{SERVICE}/{method}", None, None)(None)


async def test_calls_without_messages_keep_nobody_out():
    async with serving(max_calls=1000, max_streams=1000) as running, AsyncExitStack() as stack:
        others = await stack.enter_async_context(of_a_connection_of_its_own(running))
        calls = [streaming(others) for _ in range(400)]
        for call in calls:
            await call.wait_for_connection()
        check = health_pb2_grpc.HealthStub(running.channel).Check
        assert (await running.stub.Translate(pb.TranslateRequest(texts=["a"]), timeout=10)).translations
        assert (await check(health_pb2.HealthCheckRequest(), timeout=10)).status == SERVING
        outcomes = asyncio.as_completed([ended(call.read()) for call in calls])
        refused = [await each for each in itertools.islice(outcomes, 300)]
        assert set(refused) == {"RESOURCE_EXHAUSTED(TOO_MANY_CALLS)"}
        assert (running.value("translane_rejected_total", reason="TOO_MANY_CALLS") or 0) >= 300
        for call in calls:
            call.cancel()


async def test_of_a_stream_of_messages_the_last_one_counts():
    async with serving(max_message_bytes=1024, max_bytes_in_flight=2048) as running:
        call = running.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", None, None)(
            None
        )
        for _ in range(10):
            await call.write(b"\x22\xc0\x02" + b"x" * 320)  # field 4, a name of no symbol
            assert await call.read()
        await call.done_writing()


async def test_bytes_of_requests_in_flight():
    limits: dict[str, Any] = {"max_bytes_in_flight": 2500, "caller_share": 0.5, "caller_header": "x-caller"}
    async with serving(max_message_bytes=1024, **limits) as running:
        running.backend.hold()
        options = pb.DecodingOptions(suppressed_phrases=["z" * 100] * 9)  # bytes that are not decoded
        request = pb.TranslateRequest(texts=["abc"], options=options)
        calls = [running.stub.Translate(request, metadata=[("x-caller", caller)]) for caller in "abc"]
        refused, *others = asyncio.as_completed([ended(call) for call in calls])
        assert await refused == "RESOURCE_EXHAUSTED(TOO_MANY_BYTES)"
        assert running.value("translane_rejected_total", reason="TOO_MANY_BYTES") == 1
        running.backend.release()
        assert [await other for other in others] == ["OK", "OK"]
        assert await ended(running.stub.Translate(request)) == "OK"


async def test_calls_of_one_caller_leave_room_for_health():
    async with serving(max_calls=4, caller_share=0.5) as running:
        running.backend.hold()
        calls = [running.stub.Translate(pb.TranslateRequest(texts=["abc"])) for _ in range(5)]
        *refused, fourth, fifth = asyncio.as_completed([ended(call) for call in calls])
        assert {await each for each in refused} == {"RESOURCE_EXHAUSTED(TOO_MANY_CALLS)"}
        check = health_pb2_grpc.HealthStub(running.channel).Check
        assert (await check(health_pb2.HealthCheckRequest(), timeout=10)).status == SERVING
        running.backend.release()
        assert (await fourth, await fifth) == ("OK", "OK")
        assert running.value("translane_rejected_total", reason="TOO_MANY_CALLS") == 3


async def test_calls_of_all_callers_leave_room_for_health():
    async with serving(max_calls=2, caller_share=0.5, caller_header="caller") as running:
        running.backend.hold()
        request = pb.TranslateRequest(texts=["abc"])
        calls = [running.stub.Translate(request, metadata=[("caller", name)]) for name in "ab"]
        await until(lambda: running.value("translane_open_calls") == 2)
        with pytest.raises(grpc.aio.AioRpcError, match="as many calls are open as this server takes"):
            await running.stub.Translate(request, metadata=[("caller", "c")])
        check = health_pb2_grpc.HealthStub(running.channel).Check
        assert (await check(health_pb2.HealthCheckRequest(), timeout=10)).status == SERVING
        running.backend.release()
        assert [await ended(call) for call in calls] == ["OK", "OK"]


async def test_health_checks_whose_answers_nobody_reads_take_no_places_of_others():
    async with serving(max_calls=64, caller_header="caller") as running:
        with RawConnection(f"127.0.0.1:{running.server.port}", window=0) as connection:
            block = connection.block("/grpc.health.v1.Health/Check")
            for stream in range(1, 401, 2):
                body = raw_http2.data(stream, raw_http2.message(b""), end_stream=True)
                connection.write(raw_http2.headers(stream, block) + body)
            assert await asyncio.to_thread(connection.wait_for_ends, 200 - 32, 10)
            assert running.value("translane_open_calls") == 32
            other = [("caller", "other")]
            assert await ended(running.stub.Translate(pb.TranslateRequest(texts=["abc"]), metadata=other)) == "OK"
            check = health_pb2_grpc.HealthStub(running.channel).Check
            assert (await check(health_pb2.HealthCheckRequest(), metadata=other, timeout=10)).status == SERVING
        await until(lambda: running.value("translane_open_calls") == 0)


async def test_a_call_that_is_cancelled_before_its_message_is_no_wrong_request():
    async with serving() as running:
        call = streaming(running.channel)
        await until(lambda: running.value("translane_open_calls") == 1)
        call.cancel()
        await until(lambda: running.value("translane_open_calls") == 0)
        handled = {"grpc_type": "unary", "grpc_service": SERVICE, "grpc_method": "Translate"}
        counts = [running.value("grpc_server_handled_total", grpc_code=code, **handled) for code in CANCELLED_OR_WRONG]
        assert [count or 0 for count in counts] == [1, 0]


@pytest.mark.slow
async def test_many_calls_in_one_moment_are_all_answered():
    async with serving() as running:
        for _ in range(5):
            calls = [running.stub.ListModels(pb.ListModelsRequest()) for _ in range(8 * READING)]
            assert Counter(await asyncio.gather(*map(ended, calls))) == {"OK": 8 * READING}


async def test_calls_beyond_the_streams_of_a_connection_wait_at_the_client():
    async with serving(max_streams=4, max_queue_size=8) as running:
        calls = [running.stub.Translate(pb.TranslateRequest(texts=["abc"])) for _ in range(100)]
        assert Counter(await asyncio.gather(*map(ended, calls))) == {"OK": 100}


@pytest.mark.slow
async def test_connections_beyond_the_limit_are_closed_and_later_ones_taken():
    async with serving(max_connections=3) as running, AsyncExitStack() as stack:
        others = []
        for _ in range(3):
            others.append(await asyncio.open_connection("127.0.0.1", running.server.port))
        reader, writer = await asyncio.open_connection("127.0.0.1", running.server.port)
        async with asyncio.timeout(10):
            while await reader.read(1000):
                pass
        writer.close()
        for _, other in others:
            other.close()
        channel = await stack.enter_async_context(of_a_connection_of_its_own(running))
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        answer = await stub.Translate(pb.TranslateRequest(texts=["a"]), wait_for_ready=True, timeout=20)
        assert answer.translations


async def test_an_idle_connection_is_closed():
    async with serving(max_connection_idle=0.1) as running:
        channel = of_a_connection_of_its_own(running)
        await channel.channel_ready()
        state = grpc.ChannelConnectivity.READY
        async with asyncio.timeout(10):
            await channel.wait_for_state_change(state)
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        assert (await stub.Translate(pb.TranslateRequest(texts=["a"]), timeout=10)).translations
        await channel.close()


async def test_an_idle_connection_to_the_health_port_is_closed(monkeypatch):
    monkeypatch.setattr(health, "_LONGEST_IDLE", 0.1)
    async with serving(health_port=0) as running:
        port = running.server._health_port
        assert port
        with RawConnection(f"127.0.0.1:{port.port}") as connection:
            assert await asyncio.to_thread(connection.gone.wait, 10)


@pytest.mark.parametrize("reads", [False, True])
async def test_callers_who_do_not_read_keep_their_place(caplog, reads):
    """They keep it until they leave, or read the message that is on its way.

    The status of a stream that took too long comes after that message.
    """
    async with serving(request_timeout=0.2) as running:
        with RawConnection(f"127.0.0.1:{running.server.port}", window=0) as connection:
            for stream, path, message in (
                (1, raw_http2.STREAM, pb.TranslateStreamRequest(text="abc")),
                (3, raw_http2.TRANSLATE, pb.TranslateRequest(texts=["abc"])),
            ):
                body = raw_http2.message(message.SerializeToString())
                connection.write(raw_http2.headers(stream, connection.block(path)))
                connection.write(raw_http2.data(stream, body, end_stream=True))
            await asyncio.sleep(0.6)
            assert running.value("translane_open_calls") == 2
            assert running.value("translane_rows", model="fake", state="active") == 0
            assert await ended(running.stub.Translate(pb.TranslateRequest(texts=["abc"]))) == "OK"
            if reads:
                connection.write(raw_http2.settings())  # a window for each stream
                assert await asyncio.to_thread(connection.wait_for_ends, 2, 10)
                assert connection.ended[3] is None
                failure = connection.ended[1]
                assert failure
                assert failure.code is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: running.value("translane_open_calls") == 0)
    assert "Traceback" not in caplog.text
