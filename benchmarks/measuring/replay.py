"""Replays a trace against a server, and measures as `translane bench` does; a program of its own.

    python -m benchmarks.measuring.replay --server localhost:50051 --trace trace.jsonl --json measured.json

Each request is sent at its own moment, and waits for nobody. Latency counts from that moment.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.models.trace import TraceRequest, read_trace
from translane.v1 import translation_pb2 as pb
from translane_client.bench.load import Load
from translane_client.bench.measurement import Measurement
from translane_client.bench.report import as_json
from translane_client.connection import Connection

_AFTER = 1.0  # seconds for which the last requests count


def serialized(request: TraceRequest, beam_size: int, *, paragraphs: bool) -> bytes:
    """The TranslateRequest of a request of the trace.

    Args:
        request: of the trace.
        beam_size: 1 is greedy search.
        paragraphs: whether a paragraph is sent as one text, and the server cuts it; else its sentences are sent.
    """
    texts = [request.paragraph] if paragraphs and request.paragraph else request.texts
    message = pb.TranslateRequest(texts=texts)
    message.options.beam_size = beam_size
    if beam_size > 1:
        message.options.early_stopping = True
    if request.max_length:
        message.options.max_length = request.max_length
    return message.SerializeToString()


async def replay(
    address: str, trace: Sequence[TraceRequest], requests: Sequence[bytes], deadline: float
) -> Measurement:
    """Send the requests at the moments of the trace; return their latencies and errors."""
    measurement = Measurement(None, None, 1)
    load = Load(Connection(address), iter(requests), texts_per_request=1, timeout=deadline)
    async with load:
        times, duration = [request.at for request in trace], trace[-1].at + _AFTER
        await load.offer(times, measurement, warm_up=0.0, duration=duration, bound=None)
    return measurement


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True, help="file for what is measured")
    parser.add_argument("--paragraphs", action="store_true", help="send a paragraph as one text, which the server cuts")
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=30.0, help="of each request [s]")
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    requests = [serialized(one, arguments.beam_size, paragraphs=arguments.paragraphs) for one in trace]
    measurement = asyncio.run(replay(arguments.server, trace, requests, arguments.timeout))
    arguments.json.write_text(json.dumps(as_json(measurement)), encoding="utf-8")


if __name__ == "__main__":
    main()
