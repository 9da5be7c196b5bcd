"""`python -m translane_server.app.healthcheck`."""

import socket
import subprocess
import sys

import pytest

from translane_server.app.healthcheck import problem


def variables(port, host="0.0.0.0"):
    return {"TRANSLANE_HOST": host, "TRANSLANE_HEALTH_PORT": str(port), "http_proxy": "http://127.0.0.1:1"}


def check(environ):
    command = [sys.executable, "-m", "translane_server.app.healthcheck"]
    return subprocess.run(command, env=environ, capture_output=True, text=True)


def test_nobody_there_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    done = check(variables(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"127.0.0.1:{port}: UNAVAILABLE")
    assert done.stderr.count("\n") == 1


def test_without_a_port_of_health_checks_it_says_what_is_missing():
    done = check({"TRANSLANE_PORT": "50051"})
    assert done.returncode == 1
    assert done.stderr == "TRANSLANE_HEALTH_PORT is not set: the server has no port for this check\n"


@pytest.mark.parametrize(
    ("host", "address"),
    [("", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::", "[::1]"), ("[::]", "[::1]"), ("::1", "[::1]")],
)
def test_it_asks_where_the_server_listens(host, address):
    told = problem(variables(1, host), timeout=0.5)
    assert told is not None
    assert told.startswith(f"{address}:1: ")


def test_one_that_does_not_answer_is_not():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told = problem(variables(listener.getsockname()[1]), timeout=0.2)
    assert told is not None
    assert "DEADLINE_EXCEEDED" in told
