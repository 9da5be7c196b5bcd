"""SIGTERM under load: what was accepted is answered rightly, the rest is refused, and the process ends."""

import asyncio
import time
from collections import Counter

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.reliability.cases import SENTENCES, unary_answer
from helpers.reliability.chaos import Chaos
from helpers.reliability.failures import failure_of
from helpers.reliability.form import form
from helpers.reliability.load import CHANNEL_OPTIONS
from helpers.reliability.raw_http2 import STREAM, RawConnection, data, headers, message
from translane.v1 import translation_pb2 as pb
from translane.v1 import translation_pb2_grpc

pytestmark = pytest.mark.timeout(150)

CALLS = form(96, 480)
DRAIN_TIME = 25.0  # less than the grace period, after which unfinished calls are refused [seconds]
REPLICA_TIMEOUT = 2  # until a hung replica is replaced [seconds]

# What the server says to a call that it accepted and did not finish. Other calls are told that it is shutting down.
GIVEN_UP = "the server has shut down"


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["none", "kill", "stop"])
async def test_an_accepted_call_is_answered(start, oracle, figures, fault):
    with start(f"--replica-timeout={REPLICA_TIMEOUT}") as server:
        await drained(server, oracle, figures, fault)


async def drained(server, oracle, figures, fault):
    """Send calls, strike a replica, end the server with SIGTERM, and look at the end of each call."""
    cases = [case for case in oracle.cases if case.name.split()[0] in ("greedy", "beams", "samples", "scores", "split")]
    outcomes: Counter[str] = Counter()
    wrong = 0
    refusals: Counter[str] = Counter()

    async def call(stub, case):
        nonlocal wrong
        method = stub.Score if case.name.startswith("scores") else stub.Translate
        try:
            answer = unary_answer(await method(case.request, timeout=60))
        except grpc.aio.AioRpcError as error:
            failure = failure_of(error)
            refusals[failure.message] += 1
            outcomes[failure.name if failure.is_refusal else f"bare {failure.name}"] += 1
        else:
            outcomes["OK"] += 1
            wrong += not oracle.is_right(case, answer)

    chaos = Chaos(server)
    async with grpc.aio.insecure_channel(server.address, options=CHANNEL_OPTIONS) as channel:
        stub = translation_pb2_grpc.TranslationServiceStub(channel)
        calls = [asyncio.create_task(call(stub, cases[number % len(cases)])) for number in range(CALLS)]
        while not outcomes:  # noqa: ASYNC110 the calls count
            await asyncio.sleep(0.01)
        if fault != "none":
            getattr(chaos, fault)(chaos.a_replica())
        began = time.monotonic()
        exit_code = await asyncio.to_thread(server.terminate, 60)
        seconds = time.monotonic() - began
        await asyncio.gather(*calls)
    figures.add(
        accepted_and_refused=refusals[GIVEN_UP],
        calls=CALLS,
        **chaos.figures,
        outcomes=dict(outcomes),
        wrong=wrong,
        exit_code=exit_code,
        drained_in_s=seconds,
    )
    assert wrong == 0
    assert refusals[GIVEN_UP] == 0
    assert set(refusals) <= {"the server is shutting down"}
    assert not [name for name in outcomes if name.startswith("bare")]
    assert {name for name in outcomes if name != "OK"} <= {"UNAVAILABLE(UNAVAILABLE)"}
    assert exit_code == 0
    assert seconds < DRAIN_TIME


@pytest.mark.slow
def test_callers_who_do_not_read_do_not_keep_the_server_from_its_end(start, figures):
    """A watcher of health, and a stream: gRPC takes no status while a message waits for its reader."""
    asked = pb.TranslateStreamRequest(text="".join(SENTENCES), options={"split_sentences": True})
    flags = ("--request-timeout=1", "--grace-period=1")
    with start(*flags) as server, RawConnection(server.address, window=0) as connection:
        connection.write(headers(1, connection.block("/grpc.health.v1.Health/Watch")))
        connection.write(data(1, message(b""), end_stream=True))
        connection.write(headers(3, connection.block(STREAM)))
        connection.write(data(3, message(asked.SerializeToString()), end_stream=True))
        deadline = time.monotonic() + 10
        while server.metrics()["translane_open_calls"] < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        with grpc.insecure_channel(server.address) as channel:
            watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=20)
            news = [next(watching).status]
            time.sleep(1.5)  # longer than the stream may take
            began = time.monotonic()
            server.process.terminate()
            news.append(next(watching).status)
            exit_code = server.process.wait(30)
    figures.add(exit_code=exit_code, ended_in_s=time.monotonic() - began)
    assert news == [health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
    assert exit_code == 0
