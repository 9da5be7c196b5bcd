"""`python -m translane_server.healthcheck`."""

import socket
import subprocess
import sys
from concurrent import futures
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from translane_server.healthcheck import NoTargetError, Target, problem, target

Status = health_pb2.HealthCheckResponse


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, "127.0.0.1:50051"),
        ({"TRANSLANE_HOST": "0.0.0.0", "TRANSLANE_PORT": "7"}, "127.0.0.1:7"),
        ({"TRANSLANE_HOST": "::"}, "[::1]:50051"),
        ({"TRANSLANE_HOST": "::1"}, "[::1]:50051"),
        ({"TRANSLANE_HOST": "10.1.2.3"}, "10.1.2.3:50051"),
    ],
)
def test_it_asks_where_the_server_listens(environ, address):
    assert str(target(environ)) == address
    assert not target(environ).tls


def test_it_asks_over_tls_or_at_the_health_port():
    tls = {"TRANSLANE_TLS_CERT": "server.crt", "TRANSLANE_TLS_KEY": "server.key"}
    mutual = {**tls, "TRANSLANE_TLS_CLIENT_CA": "callers.crt"}
    assert target(tls) == Target("127.0.0.1", "50051", tls=True)
    with pytest.raises(NoTargetError, match="set TRANSLANE_HEALTH_PORT for this check"):
        target(mutual)
    for environ in (tls, mutual):
        assert target({**environ, "TRANSLANE_HEALTH_PORT": "7"}) == Target("127.0.0.1", "7")


@pytest.fixture
def server():
    server, servicer = grpc.server(futures.ThreadPoolExecutor(1)), health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield SimpleNamespace(health=servicer, port=port)
    server.stop(None).wait()


def check(port):
    environ = {"TRANSLANE_HOST": "0.0.0.0", "TRANSLANE_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}
    command = [sys.executable, "-m", "translane_server.healthcheck"]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_a_server_that_translates_is_healthy(server):
    server.health.set("", Status.SERVING)
    assert problem(Target("127.0.0.1", str(server.port))) is None
    done = check(server.port)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_one_that_starts_or_drains_is_not(server):
    server.health.set("", Status.NOT_SERVING)
    assert problem(Target("127.0.0.1", str(server.port))) == "NOT_SERVING"


def test_nobody_there_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = check(port)
    assert done.returncode == 1
    assert done.stderr.startswith(f"127.0.0.1:{port}: UNAVAILABLE")
    assert done.stderr.count("\n") == 1


def test_one_that_does_not_answer_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = problem(Target("127.0.0.1", str(listener.getsockname()[1])), timeout=0.2)
    assert found is not None
    assert found.startswith("DEADLINE_EXCEEDED")


def test_one_that_answers_no_handshake_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        found = problem(Target("127.0.0.1", str(listener.getsockname()[1]), tls=True), timeout=0.2)
    assert found is not None
    assert found.startswith("TLS: ")
