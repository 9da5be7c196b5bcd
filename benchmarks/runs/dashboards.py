"""Pictures of the dashboard's panels, of a server under load, for docs/dashboards.md.

    python -m benchmarks.runs.dashboards                   # some minutes; needs Debian's package prometheus
    python -m benchmarks.runs.dashboards --minutes 1 -o /tmp/pictures

A real Prometheus scrapes a real server. Callers of all kinds come and go: some send beams, some wait too short, some
send what is refused. Now and then comes a burst that the queue cannot take, and twice a replica is killed. The panels
and their queries are those of deploy/observability/dashboard.json.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path

from benchmarks import places
from benchmarks.engines.server_process import translane
from benchmarks.machine import family
from benchmarks.measuring.prometheus import Prometheus, Series
from benchmarks.models import workload
from benchmarks.report.dashboard import Query, rows
from benchmarks.report.dashboard_pictures import picture
from benchmarks.report.plots import save
from translane_client import AsyncClient, RetryPolicy, TranslaneError
from translane_plan.measuring.server import free_port

SCRAPE = 2.0  # [seconds]
RATE = "12s"  # the interval of rates
POINTS = 240  # of a line
PICTURES = places.ROOT / "docs" / "dashboards"
FLAGS = ("--replicas=2", "--threads=1", "--rows=32", "--sentences-waiting=256")
KILLS = (0.4, 0.75)  # when a replica is killed, as a share of the time
BURSTS = (0.15, 0.55, 0.85)
BURST = 6  # requests of as many texts as one may have


class Load:
    """Callers of a server for some time.

    Args:
        address: of the server.
        pid: of its process.
        texts: what is sent.
        seconds: how long.
    """

    def __init__(self, address: str, pid: int, texts: Sequence[str], seconds: float) -> None:
        self._address = address
        self._pid = pid
        self._texts = texts
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    async def run(self) -> None:
        async with AsyncClient(self._address, retry=RetryPolicy(attempts=1)) as client:
            events = [self._later(share, self._burst(client)) for share in BURSTS]
            events += [self._later(share, self._kill()) for share in KILLS]
            callers = [self._caller(client, random.Random(number), number / 5) for number in range(5)]
            await asyncio.gather(*events, *callers)

    async def _caller(self, client: AsyncClient, pick: random.Random, joins: float) -> None:
        """Asks again and again, from the share `joins` of the first half on."""
        await asyncio.sleep(joins * self._seconds / 2)
        while time.monotonic() < self._end:
            with contextlib.suppress(TranslaneError):
                await self._ask(client, pick)
            await asyncio.sleep(pick.expovariate(5))

    async def _ask(self, client: AsyncClient, pick: random.Random) -> None:
        texts = pick.sample(self._texts, pick.choice((1, 1, 1, 4, 16)))
        kind = pick.random()
        if kind < 0.2:
            await client.translate(texts, beam_size=4)
        elif kind < 0.24:
            await client.translate(texts, timeout=0.005)
        elif kind < 0.27:
            await client.translate(texts, beam_size=1000)
        else:
            await client.translate(texts)

    async def _burst(self, client: AsyncClient) -> None:
        texts = [random.choice(self._texts) for _ in range(250)]
        await asyncio.gather(*(client.translate(texts) for _ in range(BURST)), return_exceptions=True)

    async def _kill(self) -> None:
        """Kill one replica: a process of the server's that has no children."""
        processes = [process for process in family(self._pid)[1:] if not family(process)[1:]]
        os.kill(max(processes), signal.SIGKILL)

    async def _later(self, share: float, what: Coroutine[None, None, None]) -> None:
        await asyncio.sleep(share * self._seconds)
        await what


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("-i", "--input", type=Path, default=places.SENTENCES, help="texts; a tab ends a text")
    parser.add_argument("-o", "--output", type=Path, default=PICTURES, help="folder of the pictures")
    arguments = parser.parse_args()
    texts = [text for text in workload.read_texts(arguments.input) if text.strip()][:2000]
    metrics_port = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        Prometheus(Path(folder), SCRAPE) as prometheus,
        translane(places.DEMO, [*FLAGS, f"--metrics-port={metrics_port}"]) as server,
    ):
        prometheus.watch({"translane": {"translane-0": f"127.0.0.1:{metrics_port}"}})
        start = time.time()
        asyncio.run(Load(server.address, server.pid, texts, 60 * arguments.minutes).run())
        end = time.time()

        def ask(query: Query) -> Sequence[Series]:
            return prometheus.query_range(query.of_everything(RATE), start, end, (end - start) / POINTS)

        for row in rows():
            name = row.title.lower().replace(" ", "-")
            path = save(picture(row, ask), arguments.output / f"{name}.png")
            print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
