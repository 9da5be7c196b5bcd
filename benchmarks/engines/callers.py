"""A program that calls a server as fast as it answers: some connections, some open calls on each.

    python -m benchmarks.engines.callers --connections 8 --calls 8

It reads lines of `ADDRESS SECONDS`. For each one it opens new connections, keeps so many calls open on each until the
time is over, and writes a line of JSON: see `Told`. A line without any word ends it. The calls do not parse their
answers, so that most of the processor is the server's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

import grpc

from translane.v1 import translation_pb2 as pb

PATH = "/translane.v1.TranslationService/Translate"
TEXT = "你好。"


@dataclass(frozen=True)
class Told:
    """What a process of callers has measured.

    Attributes:
        seconds: from the first call to the last answer.
        cpu: processor time of this process meanwhile [seconds].
        waits: of every call, in order of their ends [seconds].
    """

    seconds: float
    cpu: float
    waits: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True, help="open on each connection")
    arguments = parser.parse_args()
    for line in sys.stdin:
        if not line.strip():
            return
        address, seconds = line.split()
        told = asyncio.run(call(address, float(seconds), arguments.connections, arguments.calls))
        print(json.dumps(asdict(told)), flush=True)


async def call(address: str, seconds: float, connections: int, calls: int) -> Told:
    """Call for some seconds."""
    options = [("grpc.use_local_subchannel_pool", 1)]  # otherwise all channels share one connection
    channels = [grpc.aio.insecure_channel(address, options) for _ in range(connections)]
    await asyncio.gather(*(channel.channel_ready() for channel in channels))
    request = pb.TranslateRequest(texts=[TEXT]).SerializeToString()
    waits: list[float] = []
    begin, cpu = time.perf_counter(), time.process_time()

    async def caller(channel: grpc.aio.Channel) -> None:
        method = channel.unary_unary(PATH, None, None)
        while (start := time.perf_counter()) < begin + seconds:
            await method(request)
            waits.append(time.perf_counter() - start)

    await asyncio.gather(*(caller(channel) for channel in channels for _ in range(calls)))
    told = Told(time.perf_counter() - begin, time.process_time() - cpu, waits)
    await asyncio.gather(*(channel.close(None) for channel in channels))
    return told


if __name__ == "__main__":
    main()
