"""What is made of measurements."""

import asyncio
import os
import subprocess
import time

import pytest

from helpers.plan_profiles import MILLI, profile
from translane_plan.measuring.call_costs import TEXTS, CallCosts
from translane_plan.measuring.dispatch_costs import dispatch_cost, sentence_cost
from translane_plan.measuring.measure import _costs, _divided_cores, alone
from translane_plan.measuring.processes import cpu_seconds, descendants, on_cores, resident
from translane_plan.measuring.relay import Relay
from translane_plan.measuring.samples import Sample
from translane_plan.profile import Length
from translane_server.options import DecodingOptions
from translane_server.sentence import Sentence

SAMPLE = Sample("a", Sentence((1, 2), DecodingOptions(8)))


def calls(front_end, replica, caller, latency=1.0, threads=0.1):
    return CallCosts(2, front_end, replica, caller, latency, 100.0, threads, [SAMPLE, SAMPLE])


def test_what_a_lone_call_takes_more_are_wakes_and_delays():
    costs = profile(step=MILLI, encode=MILLI / 2, turn=MILLI, sentence=MILLI).replica
    decoded = alone(costs, Length(2, 4))
    assert decoded == pytest.approx(2 * MILLI + MILLI + 4 * MILLI)
    lone = calls(5.0, decoded + 0.25, 2.0, latency=5.0 + decoded + 0.25 + 2.0 + 0.5)
    texts = calls(3.0 + 0.5 * (TEXTS - 1), 9.0, 9.0)
    found = _costs(costs, 1e-6, decoded, lone, calls(3.0, 9.0, 1.0), texts, cores=4)
    assert found.replica.wake == pytest.approx(0.25)
    assert found.front_end.sentence == pytest.approx(0.5)
    assert found.front_end.request == pytest.approx(2.5)
    assert found.front_end.wake == pytest.approx(1.0)
    assert found.front_end.dispatch == 1e-6
    assert found.front_end.threads == 0.1
    assert found.caller.request == 1.0
    assert found.caller.wake == pytest.approx(0.5)
    assert found.delay == pytest.approx(0.125)
    assert found.front_end.after == found.caller.after == 0
    found = _costs(costs, 1e-6, decoded, lone, calls(3.0, 9.0, 1.0), texts, cores=1)
    assert found.front_end.wake == pytest.approx(2.0)
    assert found.delay == pytest.approx(0.25)


def test_a_lone_call_that_is_shorter_than_its_work_works_on_after_its_messages():
    costs = profile().replica
    lone = calls(4.0, 0.5, 2.0, latency=6.5 - 1.0)
    found = _costs(costs, 0.0, 0.5, lone, calls(3.0, 9.0, 1.0), calls(3.0, 9.0, 1.0), cores=1)
    assert found.delay == 0
    assert found.front_end.after == found.caller.after == pytest.approx(0.25)


def test_server_and_callers_get_cores_of_their_own(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5})
    assert _divided_cores(1) == ({2}, {5})
    assert _divided_cores(9) == ({2, 3}, {5})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4})
    assert _divided_cores(1) == ({4}, {4})


def test_the_choice_among_replicas_costs_little():
    assert 0 < sentence_cost(4) < 0.1
    assert 0 <= dispatch_cost() < 1e-4


def test_processes_and_what_they_use():
    with subprocess.Popen(["sleep", "30"]) as process:
        try:
            assert process.pid in descendants(os.getpid())
            assert descendants(process.pid) == []
            used = resident([process.pid])
            assert used.proportional >= used.private >= 0
            assert cpu_seconds([process.pid]) < 1
        finally:
            process.kill()
    before = cpu_seconds([os.getpid()])
    while time.thread_time() < 0.001 or cpu_seconds([os.getpid()]) == before:
        pass
    assert resident([os.getpid()]).private > 1 << 20


def test_a_thread_goes_back_to_its_cores():
    before = os.sched_getaffinity(0)
    with on_cores({min(before)}):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


def test_a_relay_counts_bytes_in_both_directions():
    async def answer(reader, writer):
        while line := await reader.readline():
            writer.write(line * 10)
        writer.close()

    async def run():
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, Relay(f"{host}:{port}") as relay:
            reader, writer = await asyncio.open_connection(*relay.address.split(":"))
            writer.write(b"a" * 99 + b"\n")
            assert len(await reader.readexactly(1000)) == 1000
            writer.close()
            await writer.wait_closed()
        return relay

    relay = asyncio.run(run())
    assert relay.received >= 100 + 66 + 66
    assert relay.sent >= 1000 + 66 + 66
    assert relay.received + relay.sent < 1100 + 4 * 66 + 16 * 66
