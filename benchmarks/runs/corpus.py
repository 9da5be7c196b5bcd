"""A corpus of generated lines through `translane batch` with kills in between: is each record there, once, and right?

    python -m benchmarks.runs.corpus                                  # a million records, 60,000 different, two kills
    python -m benchmarks.runs.corpus --records 50000 --different 4000
    python -m benchmarks.runs.corpus --ray local --cpus-per-worker 1
    python -m benchmarks.runs.corpus --write                          # into docs/batch.md
    python -m benchmarks.runs.corpus --from-record --write            # the figures of the last run

Three files hold the records: lines, JSON lines, and gzipped lines; some are blank. The command is killed with SIGKILL
when the first, the second … part of its tasks is translated, and started again. Then each line of the outputs is
compared with the translation that its text gets from a server of its own. The figures have the seconds of all starts
together, and the largest memory of the command and of its replicas.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import places
from benchmarks.machine import Usage, describe, family, memory
from benchmarks.models.generated_corpus import corpus_of, outputs_of, records_of
from benchmarks.report.corpus_table import corpus_table, is_right
from benchmarks.report.marked_part import write_part
from benchmarks.report.results import write
from translane_client import AsyncClient
from translane_server.embedded import EmbeddedServer
from translane_server.model_places import ModelPlace
from translane_server.settings import ServerSettings

PAGE = places.ROOT / "docs" / "batch.md"
PAUSE = 0.5  # between two looks at the command [seconds]


@dataclass(frozen=True)
class Outcome:
    """What became of the records, and what it took. Of `lost`, `extra` and `wrong` there should be none."""

    records: int
    different: int
    kills: int
    lost: int
    extra: int
    wrong: int
    seconds: float
    translated_after_the_last_kill: int
    summary: dict[str, Any]
    memory_of_the_command: int
    memory_of_all: int


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--different", type=int, default=60_000)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--task-size", type=int, default=4096)
    parser.add_argument("--minutes", type=float, default=30.0, help="after which the benchmark gives up")
    parser.add_argument("--model", type=Path, default=places.DEMO)
    parser.add_argument("--ray", default="", help="as of the command")
    parser.add_argument("--cpus-per-worker", type=int, help="as of the command")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=places.result("corpus"))
    parser.add_argument("--from-record", action="store_true", help="take the figures of the last run")
    parser.add_argument("--write", action="store_true", help=f"write the figures into docs/{PAGE.name}")
    arguments = parser.parse_args()
    record = read_record(arguments.output) if arguments.from_record else run(arguments)
    print(corpus_table(record))
    if arguments.write:
        write_part(PAGE, "figures of a corpus", "python -m benchmarks.runs.corpus --write", corpus_table(record))
    return 0 if is_right(record) else 1


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the benchmark, write its record and return it."""
    usage = Usage()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = records_of(arguments.records, arguments.different, random.Random(arguments.seed))
        corpus = corpus_of(folder / "corpus", lines)
        outcome = measure(arguments, corpus, folder / "translated", lines)
    print(json.dumps(asdict(outcome), indent=1))
    record = {"machine": describe(), "usage": usage.so_far(), "rows": [asdict(outcome)]}
    write(arguments.output, record)
    return record


def read_record(path: Path) -> dict[str, Any]:
    """The record of the last run."""
    if not path.exists():
        raise SystemExit(f"{path}: there is no record; leave --from-record out")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def measure(arguments: argparse.Namespace, corpus: Path, output: Path, lines: Sequence[str]) -> Outcome:
    command = [
        sys.executable, "-m", "translane", "batch", str(corpus), "-o", str(output), "--model", str(arguments.model),
        "--task-size", str(arguments.task_size), "--summary", "-",
    ]  # fmt: skip
    if arguments.ray:
        command += ["--ray", arguments.ray]
    if arguments.cpus_per_worker:
        command += ["--cpus-per-worker", str(arguments.cpus_per_worker)]
    watch = Watch(output / ".translane-batch", 60 * arguments.minutes)
    tasks = sum(1 for _ in range(0, arguments.different, arguments.task_size))
    for number in range(arguments.kills):
        watch.run(command, kill_at=max(1, (number + 1) * tasks // (arguments.kills + 1)))
    summary = json.loads(watch.run(command))
    print(f"{watch.seconds:.0f} s; comparing with the translation of each text", file=sys.stderr)
    expected = asyncio.run(translations_of(arguments.model, sorted({line for line in lines if line})))
    found = list(outputs_of(output))
    return Outcome(
        records=len(lines),
        different=len(expected),
        kills=arguments.kills,
        lost=max(0, len(lines) - len(found)),
        extra=max(0, len(found) - len(lines)),
        wrong=sum(expected[line] != text if line else text != "" for line, text in zip(lines, found, strict=False)),
        seconds=watch.seconds,
        translated_after_the_last_kill=summary["sources_translated"],
        summary=summary,
        memory_of_the_command=watch.memory_of_one,
        memory_of_all=watch.memory_of_all,
    )


class Watch:
    """Runs the command, kills it, and looks at its memory.

    Attributes:
        seconds: time of all runs together.
        memory_of_one: most resident memory of the command itself [bytes].
        memory_of_all: most resident memory of the command and its replicas [bytes].
    """

    def __init__(self, work: Path, limit: float) -> None:
        self._translations, self._limit = work / "translations", limit
        self.seconds = 0.0
        self.memory_of_one = self.memory_of_all = 0

    def run(self, command: Sequence[str], kill_at: int | None = None) -> str:
        """Run the command until its end, or until so many tasks are translated; return what it prints."""
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            while process.poll() is None:
                if self.seconds + time.monotonic() - started > self._limit:
                    raise SystemExit("the run takes too long")
                if kill_at is not None and self._translated() >= kill_at:
                    break
                self._look(process.pid)
                time.sleep(PAUSE)
        finally:
            process.kill()
            printed, _ = process.communicate()
            self.seconds += time.monotonic() - started
        if kill_at is not None and process.returncode == 0:
            raise SystemExit("the run has ended before it could be killed; more --different texts take longer")
        if kill_at is None and process.returncode:
            raise SystemExit(f"the command ended with {process.returncode}")
        return printed

    def _translated(self) -> int:
        return sum(1 for _ in self._translations.glob("*.jsonl")) if self._translations.exists() else 0

    def _look(self, pid: int) -> None:
        try:
            processes = family(pid)
        except psutil.Error:  # it has just ended
            return
        self.memory_of_one = max(self.memory_of_one, memory(processes[:1]))
        self.memory_of_all = max(self.memory_of_all, memory(processes))


async def translations_of(model: Path, texts: Sequence[str]) -> dict[str, str]:
    """What a server makes of each text."""
    settings = ServerSettings(model=(ModelPlace(model),), sentences_waiting=1 << 16, caller_share=1.0)
    embedded = await EmbeddedServer.start(settings)
    try:
        async with AsyncClient(embedded.address, batch_size=64, concurrency=16) as client:
            return {text: translation.text async for text, translation in _paired(texts, client.translate_iter(texts))}
    finally:
        await embedded.stop(5)


async def _paired(texts: Sequence[str], translations: Any) -> Any:
    remaining = iter(texts)
    async for translation in translations:
        yield next(remaining), translation


if __name__ == "__main__":
    sys.exit(main())
