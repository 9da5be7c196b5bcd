"""What calls cost a real server: its front end, its replica and the load generator, alone and under load."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from translane_client.bench.load import Load
from translane_client.bench.measurement import Measurement
from translane_client.connection import Connection
from translane_client.errors import TranslaneError
from translane_plan.errors import PlanError
from translane_plan.measuring.processes import cpu_seconds, main_thread_ticks, seconds_of
from translane_plan.measuring.relay import Relay
from translane_plan.measuring.samples import Sample, Samples
from translane_plan.measuring.server import MeasuredServer
from translane_plan.profile import Traffic

AT_ONCE = 64  # calls that are open together
TEXTS, CALLS_OF_TEXTS = 8, 8  # of a longer request, and how many of these are open together
_PAUSES = 8  # a lone call comes as many times its own latency after the one before
_WARM_UP = 1.0  # seconds
_RELAYED = 40  # calls whose bytes are counted
_TIMEOUT = 60.0


@dataclass(frozen=True)
class CallCosts:
    """Processor time of a call, and its latency [seconds].

    Attributes:
        calls: number of calls that were measured.
        front_end: of the front end.
        replica: of the replica.
        caller: of the load generator.
        latency: mean time from the sending of a call to its answer.
        rate: calls a second.
        threads: share of the front end's processor time that its first thread did not take.
        sent: the samples that were sent.
    """

    calls: int
    front_end: float
    replica: float
    caller: float
    latency: float
    rate: float
    threads: float
    sent: Sequence[Sample]


class CallMeter:
    """Calls a server, and takes the times of its processes.

    Args:
        server: the server.
        samples: what to translate.
    """

    def __init__(self, server: MeasuredServer, samples: Samples) -> None:
        self._server = server
        self._samples = samples

    def lone(self, seconds: float) -> CallCosts:
        """Calls that find all processes asleep."""

        async def offer(load: Load, measurement: Measurement) -> None:
            probe = Measurement(None, 1, 1)
            await load.keep_busy(1, probe, warm_up=0.0, duration=min(_WARM_UP, seconds / 4))
            if not probe.latencies:
                raise PlanError("the server to measure does not answer")
            self._begin()
            pause = _PAUSES * statistics.fmean(probe.latencies)
            times = itertools.count(0.0, pause)
            await load.offer(times, measurement, warm_up=0.0, duration=max(seconds, 3 * pause), bound=None)

        return self._measure(1, offer)

    def busy(self, seconds: float) -> CallCosts:
        """Calls of one text that come as soon as others are answered."""
        return self._closed(1, AT_ONCE, seconds)

    def of_texts(self, seconds: float) -> CallCosts:
        """Calls of several texts."""
        return self._closed(TEXTS, CALLS_OF_TEXTS, seconds)

    def traffic(self) -> Traffic:
        """Count the bytes of lone calls."""
        return asyncio.run(self._relayed())

    def _closed(self, texts: int, calls: int, seconds: float) -> CallCosts:
        async def keep_busy(load: Load, measurement: Measurement) -> None:
            warm_up = Measurement(None, calls, texts)
            await load.keep_busy(calls, warm_up, warm_up=0.0, duration=min(_WARM_UP, seconds / 4))
            self._begin()
            await load.keep_busy(calls, measurement, warm_up=0.0, duration=seconds)

        return self._measure(texts, keep_busy)

    def _begin(self) -> None:
        """What is used and sent from now on counts."""
        self._sent.clear()
        self._replicas = self._server.replica_pids
        self._before = self._used()

    def _used(self) -> tuple[float, float, float, float, float]:
        return (
            time.perf_counter(),
            cpu_seconds([self._server.pid]),
            cpu_seconds(self._replicas),
            time.process_time(),
            seconds_of(main_thread_ticks(self._server.pid)),
        )

    def _measure(self, texts: int, run: Callable[[Load, Measurement], Awaitable[None]]) -> CallCosts:
        self._sent: list[Sample] = []
        measurement = Measurement(None, 1, texts)
        load = self._load(self._server.address, texts, self._sent)

        async def measured() -> None:
            async with load:
                await run(load, measurement)

        try:
            asyncio.run(measured())
        except TranslaneError as error:
            raise PlanError(f"the server to measure refuses a call: {error}") from None
        used = self._used()
        passed, front, replica, caller, first = (now - then for now, then in zip(used, self._before, strict=True))
        calls = len(measurement.latencies)
        if not calls or load.failures:
            reason = next(iter(load.failures.values()), "there is no answer")
            raise PlanError(f"the server to measure does not answer: {reason}")
        return CallCosts(
            calls=calls,
            front_end=front / calls,
            replica=replica / calls,
            caller=caller / calls,
            latency=statistics.fmean(measurement.latencies) - statistics.fmean(measurement.lags),
            rate=calls / passed,
            threads=min(0.9, max(0.0, 1 - first / front)) if front else 0.0,
            sent=self._sent,
        )

    def _load(self, address: str, texts: int, sent: list[Sample]) -> Load:
        requests = self._samples.requests(texts, sent)
        return Load(Connection(address), requests, texts_per_request=texts, timeout=_TIMEOUT)

    async def _relayed(self) -> Traffic:
        async with Relay(self._server.address) as relay, self._load(relay.address, 1, []) as load:
            for _ in range(_RELAYED // 4):  # the first calls also open the connection
                await load.try_once()
            received, sent = relay.received, relay.sent
            for _ in range(_RELAYED):
                await load.try_once()
            return Traffic(received=(relay.received - received) / _RELAYED, sent=(relay.sent - sent) / _RELAYED)
