"""What an autoscaler sees of a server at shares of its highest rate: busy rows and waiting sentences.

    python -m benchmarks.runs.autoscaling
    python -m benchmarks.runs.autoscaling --write    # into docs/kubernetes.md

The highest rate is that of 128 callers who wait for their answers. Then sentences come at random times, at shares of
that rate. Other programs on the machine change the highest rate, and so do the callers, who share its processors. The
table says how the two numbers grow, and not how fast a server is.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.engines.server_process import bench
from benchmarks.places import ROOT
from benchmarks.report.marked_part import write_part
from helpers.reliability.server_process import ServerProcess, running_server

PAGE = ROOT / "docs" / "kubernetes.md"
SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0, 1.2)
CLIENTS = 128
SECONDS = 10.0
BETWEEN_SAMPLES = 0.25  # [seconds]


@dataclass(frozen=True)
class Sample:
    busy: float
    """The share of the rows that decode."""
    waiting: float
    """Sentences that wait for a row."""


@dataclass
class Watch:
    """Samples of a server's metrics, over the time of a load."""

    samples: list[Sample] = field(default_factory=list)

    def steady(self) -> Sequence[Sample]:
        """Those after the first third, in which the load begins."""
        return self.samples[len(self.samples) // 3 :]


@dataclass(frozen=True)
class Seen:
    """What an autoscaler sees at a share of the highest rate."""

    share: float
    busy: float
    waiting: float
    p95: float | None  # [seconds]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each load")
    parser.add_argument("--write", action="store_true", help="write the table into docs/kubernetes.md")
    arguments = parser.parse_args()
    if not arguments.seconds > 0:
        parser.error("--seconds must be more than 0")
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder) / "log", "--replicas=1", "--threads=1") as server,
    ):
        lines = table(list(measure(server, arguments.seconds)))
    print(lines)
    if arguments.write:
        write_part(PAGE, "load and its signals", "python -m benchmarks.runs.autoscaling --write", lines)


def measure(server: ServerProcess, seconds: float) -> Iterator[Seen]:
    """Put loads on the server, one after the other."""
    duration = ("--duration", f"{seconds}s")
    (closed,) = bench(server.address, "--clients", str(CLIENTS), *duration)["measurements"]
    highest = closed["answered_per_second"]
    for share in SHARES:
        with watching(server) as watch:
            (found,) = bench(server.address, "--rate", f"{share * highest:.1f}", *duration)["measurements"]
        steady = watch.steady()
        busy, waiting = fmean(each.busy for each in steady), fmean(each.waiting for each in steady)
        yield Seen(share, busy, waiting, found["latency_seconds"]["p95"])


@contextmanager
def watching(server: ServerProcess) -> Iterator[Watch]:
    """Take samples of the server's metrics all the time."""
    watch, stop = Watch(), threading.Event()

    def take() -> None:
        while not stop.wait(BETWEEN_SAMPLES):
            watch.samples.append(sample_of(server))

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield watch
    finally:
        stop.set()
        thread.join()


def sample_of(server: ServerProcess) -> Sample:
    """The server's two numbers, now."""
    active = limit = waiting = 0.0
    for name, value in server.metrics().items():
        if name.startswith("translane_rows{") and 'state="active"' in name:
            active += value
        elif name.startswith("translane_rows_limit{"):
            limit += value
        elif name.startswith("translane_sentences_waiting{"):
            waiting += value
    return Sample(active / limit, waiting)


def table(found: Sequence[Seen]) -> str:
    rows = [
        f"| {each.share:.0%} | {each.busy:.0%} | {each.waiting:.1f} |"
        f" {'–' if each.p95 is None else f'{each.p95 * 1000:,.0f}'} |"
        for each in found
    ]
    return "\n".join(["| load | busy rows | sentences that wait | p95 [ms] |", "|---:|---:|---:|---:|", *rows])


if __name__ == "__main__":
    main()
