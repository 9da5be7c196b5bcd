"""Floods of the HTTP port: other callers are answered, health is, and memory is bounded."""

import contextlib
import http.client
import json
import statistics
import threading
import time

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.key_files import holder, key_file
from helpers.reliability.bounds import GAP
from helpers.reliability.form import form
from helpers.reliability.probe import beside
from helpers.reliability.resources import watched_memory
from translane_server.access.keys import make_token

pytestmark = [pytest.mark.timeout(150), pytest.mark.slow]

SECONDS = form(6, 20)
HONEST = "127.0.0.3"
INTERVAL = 0.05  # between two calls [seconds]

MEDIAN = 1.0  # of the time of an honest call [seconds]
MEMORY_GROWTH = 64  # [MiB]


class Asked(threading.Thread):
    """Asks again and again, and keeps how long each answer took."""

    def __init__(self, ask):
        super().__init__(daemon=True)
        self.times = []
        self.failures = []
        self._ask = ask
        self._over = threading.Event()

    def run(self):
        while not self._over.wait(INTERVAL):
            started = time.monotonic()
            try:
                if wrong := self._ask():
                    self.failures.append(wrong)
            except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                self.failures.append(repr(error))
            self.times.append(time.monotonic() - started)

    def stop(self):
        self._over.set()
        self.join(30)


@contextlib.contextmanager
def honest(server, key):
    """Ask for health by both protocols, and for a translation, as another caller."""
    body = json.dumps({"texts": ["我有一只猫。"]})
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
    connections = [
        http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=20, source_address=(HONEST, 0))
        for _ in range(2)
    ]

    def fetch(connection, *request):
        connection.request(*request)
        answer = connection.getresponse()
        answer.read()
        return "" if answer.status == 200 else str(answer.status)

    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        asked = {
            "healthz": Asked(lambda: fetch(connections[0], "GET", "/healthz")),
            "health": Asked(lambda: stub.Check(health_pb2.HealthCheckRequest(), timeout=20).status != 1),
            "translate": Asked(lambda: fetch(connections[1], "POST", "/v1/translate", body, headers)),
        }
        for each in asked.values():
            each.start()
        try:
            yield asked
        finally:
            for each in asked.values():
                each.stop()
            for connection in connections:
                connection.close()


@pytest.mark.parametrize("case", ["without a key", "with a key", "on a server without keys"])
def test_many_bodies_and_headers_at_once(start, figures, tmp_path, case):
    flags, attacker, caller = ["--http-port=0"], "", ""
    if case != "on a server without keys":
        tokens = {name: make_token() for name in ("attacker", "caller")}
        keys = key_file(tmp_path, **{name: holder(token) for name, token in tokens.items()})
        flags.append(f"--keys-file={keys}")
        caller, attacker = tokens["caller"], tokens["attacker"] if case == "with a key" else ""
    with start(*flags) as server:
        with honest(server, caller) as idle:
            time.sleep(form(1, 5))
        with (
            watched_memory(server.pid) as memory,
            honest(server, caller) as asked,
            beside("http_flood", f"127.0.0.1:{server.http_port}", attacker) as answers,
        ):
            time.sleep(SECONDS)
    longest = {name: max(each.times) for name, each in asked.items()}
    figures.add(
        **{f"longest_{name}_s": seconds for name, seconds in longest.items()},
        translate_idle_s=statistics.median(idle["translate"].times),
        longest_translate_idle_s=max(idle["translate"].times),
        translate_s=statistics.median(asked["translate"].times),
        calls=len(asked["translate"].times),
        answers=answers,
        **memory.figures,
    )
    assert all(not each.failures for each in asked.values()), {name: each.failures for name, each in asked.items()}
    assert max(statistics.median(each.times) for each in asked.values()) < MEDIAN
    assert max(longest.values()) < GAP
    assert memory.growth < MEMORY_GROWTH
    assert sum(answers.values()) >= 600
    assert "200" not in answers
