"""SIGHUP, poison and drains under load: new versions take over at once, and no call is lost or answered wrongly."""

import asyncio
import signal
import statistics
import time
from collections import Counter

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.failures import ended, failure_of
from helpers.reliability.bounds import RECOVERY
from helpers.reliability.cases import SENTENCES, unary_answer
from helpers.reliability.chaos import Chaos
from helpers.reliability.form import form
from helpers.reliability.load import Load, connected
from helpers.reliability.probe import bystander
from helpers.reliability.raw_http2 import STREAM, RawConnection, data, headers, message
from helpers.reliability.resources import MEGABYTE, holdings
from helpers.reliability.versions import ModelFolder, served_versions
from helpers.reliability.waiting import within
from helpers.server_process import fake_model
from translane.v1 import translation_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.timeout(form(150, 600))]

RELOADS = form(2, 10)
LOADING_TIME = 60.0  # [seconds]
TOLD_AGAIN = 3.0  # until the server is told to reload once more [seconds]


@pytest.fixture
def models(tmp_path):
    found = ModelFolder(tmp_path / "models")
    found.publish()
    return found


def held(server):
    return holdings([server.pid, *(process.pid for process in server.descendants())])


async def held_at_last(server, processes):
    """What the server holds when an old version's last processes have ended, or have not within the time."""
    await within(LOADING_TIME, lambda: held(server).processes <= processes)
    return held(server)


async def is_served(server, version, seconds=LOADING_TIME):
    """Whether a version is the served one within the time, and waits for it."""
    return await within(seconds, lambda: served_versions(server.address) == [version])


async def test_a_new_version_takes_over_without_a_lost_call(start, models, oracle, figures):
    with start(f"--models={models.folder}") as server, bystander(server.address) as seen:
        async with Load(server.address, oracle, callers=8, timeout=60) as load:
            await load.wait_for_answers(form(10, 20))
            before = held(server)
            for _ in range(RELOADS):
                version = models.publish()
                server.process.send_signal(signal.SIGHUP)
                is_new = await is_served(server, version)
                if not is_new:
                    break
                await load.wait_for_answers(form(10, 20))
            after = await held_at_last(server, before.processes)
    growth = (after.bytes - before.bytes) / MEGABYTE
    figures.add(
        reloads=RELOADS, is_new=is_new, growth_MiB=growth, files_more=after.files - before.files, **load.figures,
        **seen.figures,
    )  # fmt: skip
    assert is_new
    assert (load.lost, load.refused) == (0, {})
    assert not seen.failed
    assert after.processes == before.processes
    assert growth < 64
    assert after.files <= before.files + 8


@pytest.mark.parametrize("moment", form([0.3], [0.0, 0.3, 0.6, 0.9, 1.2]))
async def test_a_replica_that_is_killed_during_a_reload_loses_nothing(start, models, oracle, figures, moment):
    """The replica may be of the version that serves, or of the one that is loading, which is then refused."""
    with start(f"--models={models.folder}") as server:
        async with Load(server.address, oracle, callers=8, timeout=60) as load:
            await load.wait_for_answers(10)
            chaos = Chaos(server)
            old = {process.pid for process in server.replicas()}
            version = models.publish()
            server.process.send_signal(signal.SIGHUP)
            chaos.kill(chaos.a_replica())  # of the version that serves
            await asyncio.sleep(moment)
            chaos.kill([process for process in server.replicas() if process.pid not in old][:1])
            await load.wait_for_answers(10)
            is_new = await is_served(server, version, seconds=TOLD_AGAIN)
            if not is_new:
                server.process.send_signal(signal.SIGHUP)
                is_new = await is_served(server, version)
            back = await chaos.recovered(RECOVERY)
            await load.wait_for_answers(10)
    figures.add(killed_after_s=moment, is_new=is_new, all_back=back, **chaos.figures, **load.figures)
    assert is_new
    assert back
    assert (load.lost, load.refused) == (0, {})


# Sentences that kill every worker that takes them are refused alone, and nobody else notices.


POISON = "%"
SECRET = "nobody may read this"
CALLERS = 16
SECONDS = form(6, 300)  # in which a poisoned text comes each second
DEADLINE = 60.0  # of each call [seconds]


@pytest.mark.parametrize("texts", ["one text", "other texts"])
async def test_poisoned_texts_each_second_are_refused_alone(start, figures, texts):
    flags = ["x", "--replicas=2", "--threads=1", "--log-level=debug", "--caller-header=x-caller"]
    ends: Counter[str] = Counter()
    others: Counter[str] = Counter()
    taken: list[float] = []
    is_over = asyncio.Event()

    async def innocent(stub, number):
        for each in range(1_000_000):
            if is_over.is_set():
                return
            text, began = f"innocent {number} {each}", time.monotonic()
            try:
                request = pb.TranslateRequest(texts=[text])
                response = await stub.Translate(request, timeout=DEADLINE, metadata=[("x-caller", f"caller {number}")])
            except grpc.aio.AioRpcError as error:
                others[failure_of(error).name] += 1
                continue
            taken.append(time.monotonic() - began)
            others["right" if response.translations[0].hypotheses[0].text == text else "wrong"] += 1

    async def poison(stub, number):
        text = f"{SECRET} {POISON} {number if texts == 'other texts' else ''}"
        request = pb.TranslateRequest(texts=[text])
        ends[await ended(stub.Translate(request, timeout=DEADLINE, metadata=[("x-caller", "poisoner")]))] += 1

    with start(*flags, **fake_model(FAKE_POISON=POISON, FAKE_STEP_SECONDS="0.005")) as server:
        async with connected(server.address) as stub:
            innocents = [asyncio.create_task(innocent(stub, number)) for number in range(CALLERS)]
            poisons = []
            for number in range(SECONDS):
                poisons.append(asyncio.create_task(poison(stub, number)))
                await asyncio.sleep(1.0)
            await asyncio.gather(*poisons)
            before = others["right"]
            while others["right"] < before + 20 and server.is_alive:  # noqa: ASYNC110 the callers count
                await asyncio.sleep(0.02)
            is_over.set()
            await asyncio.gather(*innocents)
        metrics = server.metrics() if server.is_alive else {}
        log = server.log
    lost = sum(value for name, value in metrics.items() if name.startswith("translane_replica_losses_total"))
    figures.add(
        poisoned=dict(ends),
        replicas_lost=lost,
        others=dict(others),
        median_ms=1000 * statistics.median(taken),
        longest_ms=1000 * max(taken),
    )
    assert ends == {"final INTERNAL(POISONED)": SECONDS}
    assert set(others) == {"right"}
    assert 2 <= lost <= 4 * SECONDS
    if texts == "one text":
        assert lost <= 12, "it is known once it was refused"
    assert SECRET not in log


# SIGTERM under load: what was accepted is answered rightly, the rest is refused, and the process ends.


CALLS = form(96, 480)
DRAIN_TIME = 25.0  # less than the grace period, after which unfinished calls are refused [seconds]
REPLICA_TIMEOUT = 2  # until a hung replica is replaced [seconds]

# What the server says to a call that it accepted and did not finish. Other calls are told that it is shutting down.
GIVEN_UP = "the server has shut down"


@pytest.mark.parametrize("fault", ["none", "kill", "stop"])
async def test_an_accepted_call_is_answered(start, oracle, figures, fault):
    """Also where a replica is struck just before the server is ended."""
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
            outcomes[failure.name if failure.is_refusal else f"final {failure.name}"] += 1
        else:
            outcomes["OK"] += 1
            wrong += not oracle.is_right(case, answer)

    with start(f"--replica-timeout={REPLICA_TIMEOUT}") as server:
        chaos = Chaos(server)
        async with connected(server.address) as stub:
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
    assert not [name for name in outcomes if name.startswith("final")]
    assert {name for name in outcomes if name != "OK"} <= {"UNAVAILABLE(UNAVAILABLE)"}
    assert exit_code == 0
    assert seconds < DRAIN_TIME


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
