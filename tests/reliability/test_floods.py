"""Floods of frames, streams, bytes, connections and requests: others are served, and memory is bounded."""

import asyncio
import contextlib
import itertools
import re
import socket
import time
from collections import Counter

import grpc
import psutil
import pytest

from helpers.failures import ended
from helpers.reliability import raw_http2
from helpers.reliability.bounds import GAP, HONEST_CALL, MEMORY_GROWTH, MESSAGE_TIME, OPEN_STREAMS, VANISHED
from helpers.reliability.cases import SENTENCES, single
from helpers.reliability.form import IS_LONG, form
from helpers.reliability.load import CHANNEL_OPTIONS, Load, connected
from helpers.reliability.probe import bystander
from helpers.reliability.raw_http2 import RawConnection
from helpers.reliability.resources import watched_memory
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(150)

AT_ONCE = 500  # frames of one write
WAITING = 64  # sentences


def flood(connection, frames):
    """Write frames, some hundred at a time, until the connection is closed. Returns how many were written."""
    written = 0
    batch = []
    for frame in frames:
        batch.append(frame)
        if len(batch) == AT_ONCE:
            if connection.gone.is_set() or not connection.write(b"".join(batch)):
                return written
            written += len(batch)
            batch = []
    connection.write(b"".join(batch))
    return written + len(batch)


def streams(count):
    return range(1, 2 * count, 2)


def ask_once(address, *, waits=True):
    """How long a new client waits for a translation [seconds], or for a failure unless it `waits` for a connection."""
    started = time.monotonic()
    with grpc.insecure_channel(address, options=CHANNEL_OPTIONS) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        try:
            stub.Translate(single().request, timeout=20, wait_for_ready=waits)
        except grpc.RpcError:
            if waits:
                raise
    return time.monotonic() - started


@contextlib.contextmanager
def attacked(server, figures, **connection):
    """A connection to a server, beside which the bystander is served and memory is bounded."""
    with (
        bystander(server.address) as seen,
        watched_memory(server.pid) as memory,
        RawConnection(server.address, **connection) as opened,
    ):
        yield opened
    figures.add(**memory.figures, **seen.figures)
    assert not seen.failed
    assert max(seen.health, seen.translate) < GAP
    assert memory.growth < MEMORY_GROWTH


@pytest.mark.slow
@pytest.mark.parametrize("part", [b"", raw_http2.message(bytes(1000))[:500]], ids=["headers alone", "half a message"])
def test_calls_that_never_come_whole_are_bounded(shared_server, figures, part):
    count = form(4_000, 20_000)
    with attacked(shared_server, figures) as connection:
        block = connection.block()
        parts = [lambda stream: raw_http2.headers(stream, block), lambda stream: raw_http2.data(stream, part)]
        begun = parts if part else parts[:1]
        sent = flood(connection, (b"".join(make(stream) for make in begun) for stream in streams(count)))
        time.sleep(1.0)
        held = 0 if connection.gone.is_set() else sent - len(connection.ended)
        all_ended = connection.wait_for_ends(sent, MESSAGE_TIME) if IS_LONG else "not awaited"
        figures.add(begun=sent, open_after_a_second=held, allowed=connection.settings.get(3), all_ended=all_ended)
    assert held <= OPEN_STREAMS
    assert all_ended


@pytest.mark.slow
def test_rapid_resets(shared_server, figures):
    with attacked(shared_server, figures) as connection:
        block = connection.block()
        calls = (raw_http2.headers(stream, block) + raw_http2.reset(stream) for stream in streams(form(10_000, 50_000)))
        figures.add(resets=flood(connection, calls))
        time.sleep(1.0)
        figures.add(closed=connection.gone.is_set())


@pytest.mark.parametrize("kind", form(["ping and settings"], ["ping", "settings", "ping and settings"]))
def test_control_frames(shared_server, figures, kind):
    frames = b"".join(getattr(raw_http2, each)() for each in kind.split(" and "))
    with attacked(shared_server, figures) as connection:
        figures.add(times=flood(connection, itertools.repeat(frames, form(20_000, 200_000))))
        time.sleep(0.5)
        figures.add(closed=connection.gone.is_set())


@pytest.mark.slow
def test_giant_headers(shared_server, figures):
    with attacked(shared_server, figures) as connection:
        block = connection.block(extra=[(f"x-{number}", "v" * 8000) for number in range(12)])
        calls = (raw_http2.headers(stream, block, end_stream=True) for stream in streams(form(50, 500)))
        sent = flood(connection, calls)
        ended = connection.wait_for_ends(sent, seconds=10)
        codes = Counter(failure.name if failure else "OK" for failure in connection.ended.values())
        figures.add(calls=sent, KiB_of_headers=len(block) // 1024, ended=ended, codes=dict(codes))
    assert ended
    assert "OK" not in codes


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "size"), [(form(40, 80), 4_000_000), (form(150, 600), 1_000_000)])
async def test_bytes_in_flight_are_bounded(shared_server, figures, calls, size):
    request = pb.TranslateRequest(texts=[" " * (size // 256 - 4)] * 256)  # texts without tokens, which decode nothing
    with bystander(shared_server.address) as seen, watched_memory(shared_server.pid) as memory:
        async with connected(shared_server.address) as stub:
            outcomes = Counter(
                await asyncio.gather(*[ended(stub.Translate(request, timeout=60)) for _ in range(calls)])
            )
    figures.add(calls=calls, bytes_each=request.ByteSize(), outcomes=dict(outcomes), **memory.figures, **seen.figures)
    assert memory.growth < MEMORY_GROWTH
    assert max(seen.health, seen.translate) < GAP
    assert not [name for name in outcomes if re.match("final (CANCELLED|INTERNAL|UNKNOWN|DEADLINE)", name)]


@pytest.mark.slow
def test_slow_readers_take_little_memory(shared_server, figures):
    request = pb.TranslateRequest(
        texts=["".join(SENTENCES[:2])] * 4, options=pb.DecodingOptions(return_tokens=True, return_alignment=True)
    )
    with attacked(shared_server, figures, window=0) as connection:
        block, body = connection.block(), raw_http2.message(request.SerializeToString())
        room = 60_000 // len(body)  # HTTP/2's first window for the whole connection is 65,535 bytes
        readers = min(form(200, 1000), room)
        for stream in streams(readers):
            connection.write(raw_http2.headers(stream, block) + raw_http2.data(stream, body, end_stream=True))
        time.sleep(2.0)
        figures.add(readers=readers)


@pytest.mark.slow
def test_idle_connections_keep_out_nobody(shared_server, figures):
    count, port, refused = form(300, 1500), shared_server.port, 0
    with contextlib.ExitStack() as opened, attacked(shared_server, figures):
        for begins in [b"", raw_http2.PREFACE[:10], raw_http2.PREFACE] * (count // 3):
            try:
                connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
                connection.sendall(begins)
            except OSError:
                refused += 1
        seconds = ask_once(shared_server.address)
        time.sleep(1.0)
        figures.add(connections=count, refused=refused, new_client_s=seconds)
    assert seconds < HONEST_CALL


@pytest.mark.slow
def test_few_descriptors(start, figures):
    descriptors = 256
    with start("--http-port=0", limits={"n": descriptors}) as server:
        with contextlib.ExitStack() as opened, bystander(server.address) as seen:
            for port in [server.port, server.http_port] * 200:
                with contextlib.suppress(OSError):
                    opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=1))
            files = psutil.Process(server.pid).num_fds()
            assert server.metrics()
            meanwhile = ask_once(server.address, waits=False)
        recovered = ask_once(server.address)
        figures.add(descriptors=files, of=descriptors, new_client_s=meanwhile, recovered_s=recovered, **seen.figures)
        assert not seen.failed
        assert max(seen.health, seen.translate) < GAP
        assert meanwhile < HONEST_CALL
        assert recovered < HONEST_CALL


@pytest.mark.skipif(not IS_LONG, reason="takes the server's keepalive time; RELIABILITY=long runs it")
@pytest.mark.timeout(2 * VANISHED)
def test_a_client_that_has_vanished_is_noticed(shared_server, figures):
    request = pb.TranslateStreamRequest(text="".join(SENTENCES), options=pb.DecodingOptions(split_sentences=True))
    with RawConnection(shared_server.address, window=0, answers_pings=False) as connection:
        body = raw_http2.message(request.SerializeToString())
        connection.write(
            raw_http2.headers(1, connection.block(raw_http2.STREAM)) + raw_http2.data(1, body, end_stream=True)
        )
        began = time.monotonic()
        is_noticed = connection.gone.wait(VANISHED)
        seconds = time.monotonic() - began
    figures.add(noticed=is_noticed, after_s=seconds)
    assert is_noticed


@pytest.mark.slow
async def test_ten_times_the_load_is_answered_or_refused(start, oracle, figures):
    callers = form(64, 256)
    many = [case for case in oracle.cases if case.name.startswith("many")]  # 24 texts each
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(start(f"--max-queue-size={WAITING}", f"--max-request-texts={WAITING}"))
        memory = stack.enter_context(watched_memory(server.pid))
        async with Load(server.address, oracle, callers, cases=many) as load:
            await asyncio.sleep(form(2, 60))
    figures.add(callers=callers, sentences_asked=24 * callers, can_wait=WAITING, **load.figures, **memory.figures)
    assert load.answered > 0
    assert load.refused.total() > 0
    assert load.lost == 0
    assert memory.growth < MEMORY_GROWTH
