"""A long run of everything at once: mixed load, cancelled calls, killed and hung replicas, and new versions.

    make soak                      # half an hour
    make soak SOAK_SECONDS=120
    PYTHONPATH=tests .venv/bin/python -m reliability.soak -o runs/bench/soak.json    # a record for docs/benchmarks.md

Every call that was accepted must be answered once, and with the undisturbed answer, to the bit. Memory, descriptors and
threads must not grow. A line each minute tells what happened so far, and a table at the end tells all. The exit code is
1 if a call was lost, or anything grew.
"""

import argparse
import asyncio
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.reliability.bounds import RECOVERY
from helpers.reliability.cases import make_cases
from helpers.reliability.chaos import Chaos
from helpers.reliability.load import Load, Oracle
from helpers.reliability.probe import Seen, bystander
from helpers.reliability.resources import MEGABYTE, holdings
from helpers.reliability.versions import ModelFolder, served_versions
from helpers.server_process import ServerProcess, running_server

SECONDS = 1800.0
CASES = 96
PATIENT, IMPATIENT = 6, 3  # callers; an impatient caller cancels half of its calls
DEADLINE = 120.0  # of a call [seconds]
WARM_UP = 0.1  # of the run, in which nothing is sampled: pools and caches fill
BETWEEN_SAMPLES = 2.0  # [seconds]
BETWEEN_FAULTS = (15.0, 30.0)  # shortest and longest [seconds]; a server ends that loses many replicas in a short time
BETWEEN_RELOADS = 30.0  # [seconds]
LOADING_TIME = 60.0  # [seconds]
TOLD_AGAIN = 15.0  # [seconds]


_PART = 0.2  # of the samples: the first ones are compared with the last ones
_LEAST = 10  # samples

# The most growth from the first samples to the last ones: memory by this share, or by so much if that is more.
_SHARE, _BYTES = 0.1, 24 * MEGABYTE
_FILES, _THREADS = 12, 6


@dataclass(frozen=True)
class Sample:
    """What was held at a time."""

    seconds: float  # since the beginning
    server: float  # memory of the process that takes requests [bytes]
    replicas: float  # memory of all other processes [bytes]
    files: float  # open descriptors of all processes
    threads: float  # threads of all processes


@dataclass(frozen=True)
class Trend:
    """A quantity's medians among the first and the last samples, and its slope."""

    first: float
    last: float
    slope_per_hour: float
    is_growth: bool


def trends(samples: Sequence[Sample]) -> dict[str, Trend]:
    """Return the trend of each quantity; memory in MiB. ValueError: there are too few samples."""
    if len(samples) < _LEAST:
        raise ValueError(f"{len(samples)} samples are too few to tell growth from")
    return {
        "memory of the server [MiB]": _memory(samples, [sample.server for sample in samples]),
        "memory of replicas [MiB]": _memory(samples, [sample.replicas for sample in samples]),
        "descriptors": _trend(samples, [sample.files for sample in samples], _FILES),
        "threads": _trend(samples, [sample.threads for sample in samples], _THREADS),
    }


def _memory(samples: Sequence[Sample], values: Sequence[float]) -> Trend:
    allowed = max(_SHARE * statistics.median(values), _BYTES) / MEGABYTE
    return _trend(samples, [value / MEGABYTE for value in values], allowed)


def _trend(samples: Sequence[Sample], values: Sequence[float], allowed: float) -> Trend:
    part = max(1, round(_PART * len(values)))
    first, last = statistics.median(values[:part]), statistics.median(values[-part:])
    slope = statistics.linear_regression([sample.seconds for sample in samples], values).slope
    return Trend(first, last, 3600 * slope, last - first > allowed)


class Soak:
    """A server with everything that happens to it.

    Args:
        server: the running server.
        models: the folder of its models.
        oracle: what is asked for, and the answers.
        seconds: how long it runs.
    """

    def __init__(self, server: ServerProcess, models: ModelFolder, oracle: Oracle, seconds: float) -> None:
        self._server = server
        self._models = models
        self._seconds = seconds
        self._pick = random.Random(7)
        self._started = time.monotonic()
        self._quiet = asyncio.Lock()  # held by a fault or a reload: what is held meanwhile is no sample
        self.patient = Load(server.address, oracle, PATIENT, timeout=DEADLINE, seed=1)
        self.impatient = Load(server.address, oracle, IMPATIENT, timeout=DEADLINE, leaving=0.5, seed=2)
        self.chaos = Chaos(server)
        self.reloads = self.reloads_struck = 0
        self.wrong: Counter[str] = Counter()
        self.samples: list[Sample] = []

    @property
    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._started

    async def run(self) -> None:
        """Run until the time is over, or the server has ended."""
        async with self.patient, self.impatient:
            beside = [self._strike(), self._reload(), self._sample(), self._tell()]
            tasks = [asyncio.create_task(each) for each in beside]
            await self._end()
            async with self._quiet:  # no fault is left without its recovery
                for task in tasks:
                    task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            self.wrong.update(repr(error) for error in ended if isinstance(error, Exception))
        if not self._server.is_alive:
            self.wrong["the server has ended"] += 1

    async def _end(self) -> None:
        while self.passed < self._seconds and self._server.is_alive:  # noqa: ASYNC110 a process has no event
            await asyncio.sleep(0.2)

    async def _strike(self) -> None:
        while True:
            await self.chaos.pause(*BETWEEN_FAULTS)
            async with self._quiet:
                kind = self._pick.choice(["kill", "kill", "kill all", "stop", "slow", "kill the forker"])
                await self._fault(kind)
                if not await self.chaos.recovered(RECOVERY):
                    self.wrong[f"no recovery after: {kind}"] += 1

    async def _fault(self, kind: str) -> None:
        if kind == "slow":
            slow = self.chaos.a_replica()
            for _ in range(5):
                self.chaos.stop(slow)
                await asyncio.sleep(0.1)
                self.chaos.resume(slow)
                await asyncio.sleep(0.1)
        elif kind == "stop":
            self.chaos.stop(self.chaos.a_replica())
            await asyncio.sleep(1.0)
        elif kind == "kill":
            self.chaos.kill(self.chaos.a_replica())
        else:
            self.chaos.kill(self._server.replicas() if kind == "kill all" else self._server.forkers())
            await asyncio.sleep(0.5)

    async def _reload(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_RELOADS)
            async with self._quiet:
                old = self._models.last
                version = await asyncio.to_thread(self._models.publish)
                self._server.process.send_signal(signal.SIGHUP)
                struck = self._pick.random() < 0.5
                if struck:  # while both versions have replicas
                    await self.chaos.pause(0.0, 1.5)
                    self.chaos.kill(self.chaos.a_replica())
                    self.reloads_struck += 1
                if await self._is_served(version, again=struck):
                    self.reloads += 1
                    self._models.remove(old)
                else:
                    self.wrong["a new version is not served"] += 1
                if not await self.chaos.recovered(RECOVERY):
                    self.wrong["no recovery after a reload"] += 1

    async def _is_served(self, version: str, *, again: bool) -> bool:
        """Whether a version is served within the time, and waits for it.

        Args:
            again: whether a replica that was loading may have been killed. Then the version is refused, until the
                server is told to reload once more.
        """
        deadline = time.monotonic() + LOADING_TIME
        told = time.monotonic()
        while time.monotonic() < deadline and self._server.is_alive:
            if await asyncio.to_thread(served_versions, self._server.address) == [version]:
                return True
            await asyncio.sleep(0.2)
            if again and time.monotonic() > told + TOLD_AGAIN:
                self._server.process.send_signal(signal.SIGHUP)
                told = time.monotonic()
        return False

    async def _sample(self) -> None:
        await asyncio.sleep(WARM_UP * self._seconds)
        while True:
            await asyncio.sleep(BETWEEN_SAMPLES)
            async with self._quiet:
                self.samples.append(await asyncio.to_thread(self._held))

    def _held(self) -> Sample:
        server = holdings([self._server.pid])
        others = holdings([process.pid for process in self._server.descendants()])
        return Sample(
            self.passed, server.bytes, others.bytes, server.files + others.files, server.threads + others.threads
        )

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(60)
            held = self.samples[-1] if self.samples else await asyncio.to_thread(self._held)
            print(
                f"{self.passed / 60:4.0f} min  {self.patient.answered + self.impatient.answered:>8,} answered  "
                f"{self.impatient.left:>6,} cancelled  {self.patient.lost + self.impatient.lost} lost  "
                f"{self.chaos.faults.total()} faults  {self.reloads} reloads  "
                f"{(held.server + held.replicas) / 2**20:6.0f} MiB  {held.files:.0f} files",
                flush=True,
            )


def report(soak: Soak, seen: Seen) -> bool:
    """Print the table. Returns whether nothing was lost and nothing grew."""
    loads = (soak.patient, soak.impatient)
    failed = sum((load.failed for load in loads), Counter[str]())
    refused = sum((load.refused for load in loads), Counter[str]())
    wrong = [each for load in loads for each in load.wrong]
    rows: list[tuple[str, object]] = [
        ("seconds", round(soak.passed)),
        ("answered, to the bit", sum(load.answered for load in loads)),
        ("cancelled by callers", soak.impatient.left),
        ("refused with RetryInfo", dict(refused)),
        ("failed", dict(failed)),
        ("wrong", len(wrong)),
        ("faults", dict(soak.chaos.faults)),
        ("longest recovery [s]", round(max(soak.chaos.recoveries, default=0.0), 2)),
        ("reloads", soak.reloads),
        ("of them with a replica killed meanwhile", soak.reloads_struck),
        ("bystander's longest gap [s]", round(max(seen.health, seen.translate), 2)),
        ("bystander's failures", seen.failed),
    ]
    # while no replica can decode, NOT_SERVING is true, and a call may be told to try again
    is_good = not (failed or wrong or soak.wrong or set(seen.failed) - {"health NOT_SERVING"})
    try:
        for name, trend in trends(soak.samples).items():
            rows.append((name, f"{trend.first:.1f} → {trend.last:.1f}, {trend.slope_per_hour:+.1f} an hour"))
            if trend.is_growth:
                soak.wrong[f"growth of {name}"] += 1
                is_good = False
    except ValueError as error:
        rows.append(("growth", f"not judged: {error}"))
        is_good = False
    rows.append(("found wrong", dict(soak.wrong) or "nothing"))
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    for each in wrong[:10]:
        print(f"wrong: {each}", file=sys.stderr)
    return is_good


def record(soak: Soak) -> dict[str, Any]:
    """What a report of the benchmarks tells of growth. ValueError: there are too few samples."""
    found = trends(soak.samples)
    first, last = (
        {
            "bytes": MEGABYTE * sum(getattr(trend, end) for name, trend in found.items() if name.startswith("memory")),
            "files": getattr(found["descriptors"], end),
        }
        for end in ("first", "last")
    )
    requests = soak.patient.answered + soak.impatient.answered
    return {"requests": requests, "first": first, "last": last, "growth": last["bytes"] / first["bytes"] - 1}


async def run(seconds: float, output: Path | None = None) -> bool:
    """Soak a server, print the report, and write the record. Returns whether all is well."""
    from benchmarks.machine import Usage, describe  # found in the folder of the repository, where this is run
    from benchmarks.report.results import write

    machine, usage = describe(), Usage()
    with tempfile.TemporaryDirectory() as folder:
        models = ModelFolder(Path(folder) / "models")
        models.publish()
        with running_server(Path(folder) / "log", f"--models={models.folder}") as server:
            oracle = await asyncio.to_thread(Oracle, server.address, make_cases(CASES))
            with bystander(server.address) as seen:
                soak = Soak(server, models, oracle, seconds)
                await soak.run()
            is_good = report(soak, seen)
            if not is_good:
                print("the end of the server's log:", *server.log.splitlines()[-20:], sep="\n  ", file=sys.stderr)
    if output:
        write(output, {"machine": machine, "usage": usage.so_far(), **record(soak)})
    return is_good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("-o", "--output", type=Path, help="a record of the benchmarks")
    arguments = parser.parse_args()
    sys.exit(0 if asyncio.run(run(arguments.seconds, arguments.output)) else 1)


if __name__ == "__main__":
    main()
