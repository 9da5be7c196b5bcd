"""The server of the working tree against the server of another revision: what a sentence costs each.

    python -m benchmarks.runs.revision                          # 012df512, the base and the tiny model, ten minutes
    python -m benchmarks.runs.revision c5933026 --models tiny --searches greedy

The revision's files are taken from git, and run with the packages that are installed. Each revision exports the random
models itself. Both servers have one replica of one thread, and take turns; the same client calls both. Texts are random
letters, as many as make the tokens of a real sentence, and their translations have twelve tokens.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import places
from benchmarks.engines.server_process import ServerProcess
from benchmarks.machine import Usage, describe
from benchmarks.measuring.turns import turns
from benchmarks.models.benchmarked import RANDOM, random_folder
from benchmarks.models.workload import SEARCHES
from benchmarks.report.results import write
from benchmarks.runs.flags import parsed, parser_of
from benchmarks.runs.serving import write_sentences
from translane import Client, Translation

REVISION = "012df512"  # of 2026-11-21. Nothing is to be slower than its server
TOKENS = 12  # of each translation
SETTINGS = ("--replicas", "1", "--threads", "1", "--metrics-port", "0")
SECONDS = 4.0  # of a measurement, about


@dataclass(frozen=True)
class Pattern:
    """How requests come: texts in each, and how many are under way."""

    texts: int
    clients: int

    def __str__(self) -> str:
        return f"{self.texts} a request, {self.clients} under way"


PATTERNS = (Pattern(32, 1), Pattern(1, 1), Pattern(1, 8))


class Tree:
    """The files of a revision."""

    def __init__(self, folder: Path) -> None:
        self._models = folder / "runs" / "revision"
        parts = (folder / part for part in ("protos", "server", "client", "export", "batch"))
        self._environment = {"PYTHONPATH": os.pathsep.join(str(part) for part in parts if part.exists())}
        self._has_one_command = bool(list(folder.glob("*/translane/__main__.py")))

    def bundle(self, name: str, precision: str) -> Path:
        """What this revision's exporter makes of a random model."""
        output = self._models / f"{name}-{precision}"
        if not (output / "manifest.json").exists():
            words = ("translane", "export") if self._has_one_command else ("translane_export",)
            folder = str(random_folder(name, places.MODELS).resolve())
            command = [sys.executable, "-m", *words, folder, "-o", str(output), "--precision", precision]
            subprocess.run(command, env=os.environ | self._environment, check=True)
        return output

    def serve(self, bundle: Path) -> ServerProcess:
        words = ("translane", "serve") if self._has_one_command else ("translane_server", "--model")
        return ServerProcess(["-m", *words, str(bundle), *SETTINGS], self._environment)


def checked_out(revision: str) -> Tree:
    """The files of a revision, in a folder of `places.RESULTS`."""
    asked = ("git", "rev-parse", "--short", "--verify", "--quiet", f"{revision}^{{commit}}")
    commit = subprocess.run(asked, cwd=places.ROOT, capture_output=True, text=True).stdout.strip()
    if not commit:
        print(f"skipped: there is no revision {revision} in this clone")
        sys.exit()
    folder = places.RESULTS / "revisions" / commit
    if not folder.exists():
        archive = subprocess.run(("git", "archive", commit), cwd=places.ROOT, check=True, capture_output=True).stdout
        folder.mkdir(parents=True)
        subprocess.run(("tar", "-x", "-C", folder), input=archive, check=True)
    return Tree(folder)


def measure(
    server: ServerProcess, pattern: Pattern, sentences: list[str], beam_size: int, count: int
) -> dict[str, Any]:
    """Milliseconds for a sentence, of the clock and of the server's processor time; `count` requests are sent."""
    texts = itertools.cycle(sentences)
    requests = [list(itertools.islice(texts, pattern.texts)) for _ in range(count)]
    with Client(server.address) as client, ThreadPoolExecutor(pattern.clients) as pool:

        def ask(request: list[str]) -> list[Translation]:
            return client.translate(request, beam_size=beam_size, max_length=TOKENS)

        ask(requests[0])
        used, begun = server.cpu_seconds(), time.perf_counter()
        answers = list(pool.map(ask, requests))
        seconds, used = time.perf_counter() - begun, server.cpu_seconds() - used
    number = pattern.texts * count
    return {
        "ms": 1e3 * seconds / number,
        "cpu_ms": 1e3 * used / number,
        "texts": [each.text for answer in answers for each in answer],
    }


def compare(
    servers: dict[str, ServerProcess], pattern: Pattern, sentences: list[str], beams: int, rounds: int
) -> dict[str, Any]:
    """The medians of both, and how many of the answers are alike."""
    tried = max(measure(server, pattern, sentences, beams, 4)["ms"] for server in servers.values())
    count = max(4, pattern.clients, round(1e3 * SECONDS / tried / pattern.texts))
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
    for order in turns(list(servers), rounds):
        for name in order:
            runs[name].append(measure(servers[name], pattern, sentences, beams, count))
    medians = {
        name: {unit: statistics.median(run[unit] for run in found) for unit in ("ms", "cpu_ms")}
        for name, found in runs.items()
    }
    one, other = (found[0]["texts"] for found in runs.values())
    return medians | {"alike": sum(map(str.__eq__, one, other)), "texts": len(one)}


def main() -> None:
    parser = parser_of(__doc__, searches=True, devices=["cpu"])
    parser.set_defaults(models=RANDOM, precisions=["int8"])
    parser.add_argument("revision", nargs="?", default=REVISION)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parsed(parser, "revision")
    trees = {"here": Tree(places.ROOT), "there": checked_out(arguments.revision)}
    usage = Usage()
    record: dict[str, Any] = {"machine": describe(), "revision": arguments.revision, "cells": []}
    for name, precision in itertools.product(arguments.models, arguments.precisions):
        path = write_sentences(arguments.output.parent / f"revision-{name}.txt", name, arguments.sentences)
        sentences = [line.partition("\t")[0] for line in path.read_text(encoding="utf-8").splitlines()]
        with contextlib.ExitStack() as stack:
            servers = {
                each: stack.enter_context(tree.serve(tree.bundle(name, precision))) for each, tree in trees.items()
            }
            for search, pattern in itertools.product(arguments.searches, PATTERNS):
                found = compare(servers, pattern, sentences, SEARCHES[search], arguments.rounds)
                cell = {"model": name, "precision": precision, "search": search, "pattern": str(pattern)} | found
                record["cells"].append(cell)
                record["usage"] = usage.so_far()
                write(arguments.output, record)
                there, here = found["there"], found["here"]
                print(
                    f"{name} {precision} {search}, {pattern}: {there['cpu_ms']:.3f} there, {here['cpu_ms']:.3f} ms here"
                    f" ({there['cpu_ms'] / here['cpu_ms']:.2f}); clock {there['ms'] / here['ms']:.2f};"
                    f" {found['alike']} of {found['texts']} alike",
                    flush=True,
                )


if __name__ == "__main__":
    main()
