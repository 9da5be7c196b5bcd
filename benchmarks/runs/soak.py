"""Whether a server's memory stays where it is while it translates a million sentences.

    python -m benchmarks.runs.soak                           # a million; half an hour to two hours on two cores
    python -m benchmarks.runs.soak --minutes 3

Clients of a real server wait for each answer before they ask again. Most requests hold many short sentences for greedy
search. Others ask for beams, samples, scores or streams; clients cancel requests, let deadlines pass, send requests
that are refused, and connect anew. Meanwhile the benchmark samples the resident memory and the open files of the
server's processes; memory that several processes share counts in equal parts for each. Growth is the memory at the end
over the memory when a tenth of the sentences was done, medians of some samples each.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.engines.server_process import translane
from benchmarks.machine import Usage, describe, family, memory, open_files
from benchmarks.models import workload
from benchmarks.report import tables
from benchmarks.report.bounds import MEMORY
from benchmarks.report.results import write
from translane import AsyncClient, DeadlineExceeded, InvalidArgument, TranslaneError

TEXTS, FEW_TEXTS = 64, 8  # of a request
LONGEST_TEXT = 16  # characters: many sentences in little time
REQUESTS_OF_A_CONNECTION = 200
TENTH = 0.1  # of the run: from where growth counts
SOME = 0.05  # of the samples, whose median counts
KEPT = 500  # samples of a record


@dataclass(frozen=True)
class Sample:
    """What the server's processes held at some time."""

    seconds: float
    sentences: int
    bytes: float
    files: float


Ask = Callable[[AsyncClient, Sequence[str], random.Random], Awaitable[int]]


async def greedy(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    return len(await client.translate(pick.sample(texts, TEXTS)))


async def beams(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    return len(await client.translate(pick.sample(texts, FEW_TEXTS), beam_size=4, num_hypotheses=2))


async def samples(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    return len(await client.translate(pick.sample(texts, FEW_TEXTS), top_k=10, temperature=1.2, max_length=40))


async def scores(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    return len(await client.score([(text, "He is there.") for text in pick.sample(texts, FEW_TEXTS)]))


async def stream(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    """A stream that is read to its end, or left after its first words."""
    is_left = pick.random() < 0.5
    async with client.translate_stream(pick.choice(texts)) as deltas:
        async for _ in deltas:
            if is_left:
                return 0
    return 1


async def cancelled(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    try:
        async with asyncio.timeout(pick.uniform(0.0, 0.1)):
            return await greedy(client, texts, pick)
    except TimeoutError:
        return 0


async def late(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    try:
        return len(await client.translate(pick.sample(texts, TEXTS), timeout=pick.uniform(0.005, 0.1)))
    except DeadlineExceeded:
        return 0


async def refused(client: AsyncClient, texts: Sequence[str], pick: random.Random) -> int:
    try:
        await client.translate(pick.choice(texts), beam_size=1000)
    except InvalidArgument:
        return 0
    raise AssertionError("a search of a thousand beams was done")


# How often each is asked, of a hundred requests.
MIXTURE: dict[Ask, int] = {
    greedy: 62,
    beams: 10,
    samples: 5,
    scores: 5,
    stream: 8,
    cancelled: 4,
    late: 2,
    refused: 4,
}


class Soak:
    """A server under load.

    Args:
        address: of the server.
        pid: of its process, which may start others.
        texts: what is sent.
        sentences: how many translations end it.
        seconds: after which it ends, too.
    """

    def __init__(self, address: str, pid: int, texts: Sequence[str], sentences: int, seconds: float) -> None:
        self._address = address
        self._pid = pid
        self._texts = texts
        self._wanted = sentences
        self._seconds = seconds
        self._started = time.monotonic()
        self.sentences = 0
        self.requests: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.samples: list[Sample] = []

    @property
    def done(self) -> float:
        """The part of the run that is over."""
        passed = time.monotonic() - self._started
        return max(self.sentences / self._wanted, passed / self._seconds)

    async def run(self, clients: int) -> None:
        tasks = [asyncio.create_task(self._client(number)) for number in range(clients)]
        try:
            await self._watch()
        finally:
            await asyncio.gather(*tasks, return_exceptions=True)
            self._sample()

    async def _client(self, number: int) -> None:
        pick = random.Random(number)
        while self.done < 1:
            async with AsyncClient(self._address) as client:
                for _ in range(REQUESTS_OF_A_CONNECTION):
                    if self.done >= 1:
                        return
                    (ask,) = pick.choices(list(MIXTURE), list(MIXTURE.values()))
                    try:
                        answered = await ask(client, self._texts, pick)
                        self.sentences += answered  # not in one: others count on while this one waits
                    except (TranslaneError, AssertionError) as error:
                        self.failures[f"{ask.__name__}: {type(error).__name__}: {error}"[:200]] += 1
                        await asyncio.sleep(0.1)
                    self.requests[ask.__name__] += 1

    async def _watch(self) -> None:
        told = 0
        while self.done < 1:
            sample = self._sample()
            if (tenths := int(10 * self.done)) > told:
                told = tenths
                print(
                    f"{sample.seconds:6.0f} s  {sample.sentences:>9,} sentences  {sample.bytes / 1e6:7.1f} MB",
                    flush=True,
                )
            await asyncio.sleep(1)

    def _sample(self) -> Sample:
        seconds = time.monotonic() - self._started
        processes = family(self._pid)
        self.samples.append(Sample(seconds, self.sentences, memory(processes), open_files(processes)))
        return self.samples[-1]


def ends(found: Sequence[Sample]) -> tuple[Sample, Sample]:
    """The medians of some samples from a tenth of the sentences on, and of the last ones. ValueError: too few."""
    rest = [sample for sample in found if sample.sentences >= TENTH * found[-1].sentences]
    some = max(1, round(SOME * len(found)))
    if len(rest) < 2 * some:
        raise ValueError(f"{len(found)} samples are too few to tell growth from")
    return _median(rest[:some]), _median(rest[-some:])


def _median(found: Sequence[Sample]) -> Sample:
    columns = zip(*(asdict(sample).values() for sample in found), strict=True)
    return Sample(*(statistics.median(column) for column in columns))


def short_texts(path: Path) -> list[str]:
    """The short texts of a file of texts, or of source, tab, reference. ValueError: it has too few."""
    short = [text for text in workload.read_texts(path) if 0 < len(text) <= LONGEST_TEXT]
    if len(short) < TEXTS:
        raise ValueError(f"{path}: {TEXTS} texts of {LONGEST_TEXT} characters or fewer are needed, not {len(short)}")
    return short


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=places.DEMO)
    parser.add_argument("--sentences", type=int, default=1_000_000, help="how many translations end it")
    parser.add_argument("--minutes", type=float, default=600.0, help="after which it ends in any case")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "-i", "--input", type=Path, default=places.SENTENCES, help="texts; what follows a tab is left out"
    )
    parser.add_argument("--server-flag", action="append", default=[], metavar="FLAG", help="of translane serve")
    parser.add_argument("-o", "--output", type=Path, default=places.result("soak"))
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the server is ended, and the record written
    texts = short_texts(arguments.input)
    machine, usage = describe(), Usage()
    with translane(arguments.bundle, arguments.server_flag) as server:
        soak = Soak(server.address, server.pid, texts, arguments.sentences, 60 * arguments.minutes)
        try:
            asyncio.run(soak.run(arguments.clients))
        except KeyboardInterrupt:
            print("broken off", file=sys.stderr)
        told = usage.so_far()
    try:
        first, last = ends(soak.samples)
    except ValueError as error:
        sys.exit(str(error))
    growth = last.bytes / first.bytes - 1
    step = -(-len(soak.samples) // KEPT)
    record: dict[str, Any] = {
        "machine": machine,
        "usage": told,
        "sentences": soak.sentences,
        "requests": soak.requests.total(),
        "kinds": soak.requests,
        "failures": soak.failures,
        "first": asdict(first),
        "last": asdict(last),
        "growth": growth,
        "samples": [asdict(sample) for sample in soak.samples[::step]],
    }
    write(arguments.output, record)
    print("\n".join([*tables.soak(record), f"all samples are in {arguments.output}"]))
    for failure, count in soak.failures.items():
        print(f"failed {count:,} times: {failure}", file=sys.stderr)
    sys.exit(0 if MEMORY.is_kept(growth) and not soak.failures else 1)


if __name__ == "__main__":
    main()
