"""Loads that are more like callers' than a sentence a request: several texts a request, and a trace in bursts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.engines.ctranslate2_server_settings import ServerSetting, replaced
from benchmarks.engines.server_process import ENGINES, BenchError, ServerProcess
from benchmarks.measuring.cell_load import CellLoad
from benchmarks.measuring.contest import turns
from benchmarks.models.benchmarked import BenchmarkedModel
from benchmarks.models.trace import make_trace, write_trace

TEXTS = (1, 4, 16, 64)  # of a request
IN_FLIGHT = 256  # sentences, of all clients together
SHARE = 0.5  # of the throughput that the slower server has: the mean rate of a trace


@dataclass(frozen=True)
class Throughput:
    """Sentences/s that were answered, and requests that failed."""

    rate: float
    failed: int


def throughput(load: CellLoad, server: ServerProcess, texts: int, duration: float) -> Throughput:
    """What as many clients get as keep `IN_FLIGHT` sentences in flight, each with `texts` a request."""
    flags = ("--clients", str(IN_FLIGHT // texts), "--texts-per-request", str(texts), "--timeout", "60s")
    try:
        (measured,) = load.measure(server, *flags, duration=duration)["measurements"]
    except BenchError:
        return Throughput(0.0, 0)
    return Throughput(measured["answered_per_second"], sum(measured["errors"].values()))


def by_texts(
    load: CellLoad,
    ours: ServerProcess,
    setting: ServerSetting,
    model: BenchmarkedModel,
    precision: str,
    *,
    sizes: Sequence[int],
    duration: float,
    rounds: int,
) -> list[dict[str, Any]]:
    """Throughput by texts a request: for each number, that of both servers in turns.

    CTranslate2's batches have the size of `setting` or one of `sizes`, whichever is fastest for these requests.
    """
    ways = dict.fromkeys([setting, *(replaced(setting, batch_size=size) for size in sizes)])
    found = []
    with ExitStack() as processes:
        peers = {way: processes.enter_context(way.start(model, precision)) for way in ways}
        for texts in TEXTS:
            tried = {way: throughput(load, peer, texts, duration).rate for way, peer in peers.items()}
            best = max(tried, key=lambda way: tried[way])
            servers = {"translane": ours, "ctranslate2": peers[best]}
            row: dict[str, Any] = {"texts": texts, "batch_size": best.batch_size, **{name: [] for name in ENGINES}}
            for order in turns(ENGINES, rounds):
                for name in order:
                    row[name].append(asdict(throughput(load, servers[name], texts, duration)))
            found.append(row)
    return found


def replayed(
    load: CellLoad, servers: Mapping[str, ServerProcess], language: str, *, highest: float, seconds: float, rounds: int
) -> dict[str, Any]:
    """A trace, replayed against each server in turns: its size, and for each server the measurements of all rounds.

    Translane cuts paragraphs into sentences itself. CTranslate2's server gets the sentences.

    Args:
        load: of the cell.
        servers: by the names of their engines.
        language: of the sentences.
        highest: the throughput of the slower server [sentences/s].
        seconds: of the trace.
        rounds: replays of each server.
    """
    lines = load.sentences.read_text(encoding="utf-8").splitlines()
    trace = make_trace(lines, language, rate=SHARE * highest, seconds=seconds, fixed=load.fixed)
    path = load.sentences.with_suffix(".trace.jsonl")
    write_trace(path, trace)
    sentences = sum(len(request.texts) for request in trace)
    found: dict[str, Any] = {name: [] for name in ENGINES}
    for order in turns(ENGINES, rounds):
        for name in order:
            used = servers[name].cpu_seconds()
            measured = load.replay(servers[name], path, paragraphs=name == "translane")
            measured["cpu_seconds_per_sentence"] = (servers[name].cpu_seconds() - used) / sentences
            found[name].append(measured)
    size = {"requests": len(trace), "sentences": sentences, "rate": sentences / seconds, "seconds": seconds}
    return size | found
