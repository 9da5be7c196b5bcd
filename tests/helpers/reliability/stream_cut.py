"""A stream that loses its server between its first part and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from helpers.client_calls import Answer, ClientCall, without_times
from translane import AsyncClient, RetryPolicy


@dataclass(frozen=True)
class CutStream:
    """What a caller got of a stream.

    Attributes:
        answer: as `ask_async` returns it.
        parts: how many parts the text came in.
        retries: how often the client tried again.
    """

    answer: Answer
    parts: int
    retries: int


async def cut_stream(
    address: str, call: ClientCall, strike: Callable[[], object], *, seconds: float, retry: RetryPolicy | None = None
) -> CutStream:
    """Read a stream, and strike when its first part has come.

    Args:
        address: of the service, as a client takes it.
        call: asks for the stream.
        strike: ends what sends the stream.
        seconds: the deadline of the stream.
        retry: when the client tries again. None: the client's default.

    Raises:
        TranslaneError: the stream did not go on.
    """
    retries = 0

    async def sleep(pause: float) -> None:
        nonlocal retries
        retries += 1
        await asyncio.sleep(pause)

    async with AsyncClient(address, timeout=seconds, retry=retry) as client:
        client._sleep = sleep
        stream = client.translate_stream(call.subject, **call.options)
        parts = [await anext(stream)]
        strike()
        parts += [part async for part in stream]
    return CutStream(("".join(parts), without_times(stream.result)), len(parts), retries)
