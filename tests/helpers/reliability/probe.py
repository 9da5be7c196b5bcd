"""A bystander in a process of its own: it asks for health and for a small translation twenty times a second.

It has another address than all other callers.

python -m helpers.reliability.probe HOST:PORT    # until its standard input ends; prints its figures as JSON
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from helpers.reliability.cases import single
from helpers.reliability.other_address import from_other_address
from translane.v1 import translation_pb2_grpc

_INTERVAL = 0.05  # between two calls [seconds]
_TIMEOUT = 60.0  # of a call [seconds]
_OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
_TESTS = Path(__file__).parents[2]


@dataclass
class Seen:
    """What a bystander saw.

    Attributes:
        failed: failed calls, by kind and status code; health that is not SERVING is one, too.
    """

    health: float = 0.0  # the longest time without an answer about health [seconds]
    translate: float = 0.0  # the longest time without a translation [seconds]
    calls: int = 0  # how many calls were answered
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, object]:
        """For `Figures.add`."""
        return {
            "bystander's_calls": self.calls,
            "its_failures": self.failed,
            "longest_gap_of_health_s": self.health,
            "longest_gap_of_translations_s": self.translate,
        }


@contextlib.contextmanager
def bystander(address: str) -> Iterator[Seen]:
    """Run a bystander beside the `with` block. The block's value is filled when the block ends."""
    seen = Seen()
    with beside("probe", address) as found:
        yield seen
    seen.__dict__.update(found)


@contextlib.contextmanager
def beside(program: str, *arguments: str) -> Iterator[dict[str, Any]]:
    """Run a program of this folder beside the `with` block. The block's value is filled when the block ends.

    The program says "ready". When its standard input ends, it writes what it has found as JSON.
    """
    found: dict[str, Any] = {}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", f"helpers.reliability.{program}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin
    assert process.stdout
    try:
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"{program} was not answered at the beginning")
        yield found
        found |= json.loads(process.communicate(timeout=30)[0])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()


class _Probe:
    """Calls `ask` again and again, and keeps the longest time between two answers."""

    def __init__(self, name: str, ask: Callable[[], Awaitable[str]]) -> None:
        self.name = name
        self.gap = 0.0
        self.calls = 0
        self.failed: Counter[str] = Counter()
        self._ask = ask
        self._last = time.monotonic()

    async def run(self) -> None:
        try:
            while True:
                try:
                    wrong = await self._ask()
                except grpc.aio.AioRpcError as error:
                    wrong = error.code().name
                if wrong:
                    self.failed[f"{self.name} {wrong}"] += 1
                else:
                    self.answered()
                    self.calls += 1
                await asyncio.sleep(_INTERVAL)
        finally:
            self.answered()  # what was not answered so far is a gap, too

    def answered(self) -> None:
        """Note that there is an answer now. The pause between two calls is no gap."""
        now = time.monotonic()
        self.gap = max(self.gap, now - self._last - _INTERVAL)
        self._last = now


async def _run(address: str) -> None:
    async with (
        from_other_address(address) as forwarded,
        grpc.aio.insecure_channel(forwarded, options=_OPTIONS) as first,
        grpc.aio.insecure_channel(forwarded, options=_OPTIONS) as second,
    ):
        health = health_pb2_grpc.HealthStub(first)
        stub: Any = translation_pb2_grpc.TranslationServiceStub(second)  # type: ignore[no-untyped-call]  # generated

        async def check() -> str:
            status = (await health.Check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT)).status
            return "" if status == health_pb2.HealthCheckResponse.SERVING else "NOT_SERVING"

        async def translate() -> str:
            await stub.Translate(single().request, timeout=_TIMEOUT)
            return ""

        probes = [_Probe("health", check), _Probe("translate", translate)]
        await check()
        await translate()
        for probe in probes:
            probe.answered()
            probe.gap = 0.0
        print("ready", flush=True)
        running = [asyncio.create_task(probe.run()) for probe in probes]
        await asyncio.to_thread(sys.stdin.read)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    failed = probes[0].failed + probes[1].failed
    print(json.dumps(Seen(probes[0].gap, probes[1].gap, sum(probe.calls for probe in probes), failed).__dict__))


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1]))
