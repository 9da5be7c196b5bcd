"""A real server under the load of a schedule, beside a simulation of the same requests at the same times."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.machine import Usage, family
from translane_client.bench.load import Load
from translane_client.bench.measurement import Measurement, quantile
from translane_client.bench.schedule import arrivals
from translane_client.connection import Connection
from translane_plan.measuring.processes import cpu_seconds
from translane_plan.measuring.samples import Sample, Samples
from translane_plan.measuring.server import MeasuredServer
from translane_plan.profile import Length, Profile
from translane_plan.simulation.load import Load as SimulatedLoad
from translane_plan.simulation.shape import Shape
from translane_plan.simulation.simulation import simulate

WARM_UP = 2.0  # seconds before the measured ones
_TIMEOUT = 60.0


@dataclass(frozen=True)
class Checked:
    """What was measured, and what was simulated of the same requests; times in seconds.

    Attributes:
        rate: sentences a second that were offered.
        measured: p50, p95, sentences answered a second, and cores that the server used.
        simulated: the same.
        lag: how late the load generator was, at worst but for 1% of the requests.
        others: share of the processors' time that other programs used.
    """

    rate: float
    measured: Mapping[str, float]
    simulated: Mapping[str, float]
    lag: float
    others: float

    def as_json(self) -> dict[str, Any]:
        """The fields, as JSON values."""
        return {**vars(self), "measured": dict(self.measured), "simulated": dict(self.simulated)}


def check(
    server: MeasuredServer,
    samples: Samples,
    lengths: Mapping[str, Length],
    profile: Profile,
    shape: Shape,
    *,
    rate: float,
    seconds: float,
    seed: int,
) -> Checked:
    """Offer a server sentences at a rate, and simulate the same.

    Args:
        server: the server.
        samples: the sentences, which are sent in turn.
        lengths: text → lengths of its sentence.
        profile: the costs of the simulation.
        shape: the server's processes, and the cores of the load generator.
        rate: sentences a second.
        seconds: how long to measure.
        seed: the same seed gives the same times.

    Raises:
        RuntimeError: a call has failed.
    """
    times = list(itertools.takewhile(lambda at: at < WARM_UP + seconds, arrivals(rate, seed)))
    sent: list[Sample] = []
    measurement = Measurement(rate, None, 1)
    processes, usage = family(server.pid), Usage()
    before, begun = cpu_seconds(processes), time.perf_counter()
    asyncio.run(_offer(server, samples, times, sent, measurement, seconds))
    used = (cpu_seconds(processes) - before) / (time.perf_counter() - begun)
    others = usage.so_far()["others"]
    if measurement.errors:
        raise RuntimeError(f"calls have failed: {dict(measurement.errors)}")
    # From the sending on, because timers come up to a millisecond late.
    waits = sorted(wait - lag for wait, lag in zip(measurement.latencies, measurement.lags, strict=True))
    early = sum(at < WARM_UP for at in times)
    outcome = simulate(
        profile,
        shape,
        SimulatedLoad(iter(_lengths(sent, lengths)), len(sent), times, warm_up=early / len(sent)),
    )
    return Checked(
        rate=rate,
        measured={
            "p50": quantile(waits, 0.5),
            "p95": quantile(waits, 0.95),
            "answered": measurement.sentences_per_second,
            "cores": used,
        },
        simulated={
            "p50": outcome.latency(0.5),
            "p95": outcome.latency(0.95),
            "answered": outcome.rate,
            "cores": outcome.cores * shape.cores,
        },
        lag=measurement.lag,
        others=others,
    )


async def _offer(
    server: MeasuredServer,
    samples: Samples,
    times: Sequence[float],
    sent: list[Sample],
    measurement: Measurement,
    seconds: float,
) -> None:
    load = Load(Connection(server.address), samples.requests(1, sent), texts_per_request=1, timeout=_TIMEOUT)
    async with load:
        await load.try_once()
        sent.clear()
        await load.offer(times, measurement, warm_up=WARM_UP, duration=seconds, bound=None)


def _lengths(sent: Sequence[Sample], lengths: Mapping[str, Length]) -> list[Length]:
    return [lengths[sample.text] for sample in sent]
