"""Sentences to the engine, and their results back, for a task of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from translane_server.errors import RequestError
from translane_server.request import Request, Sentence, SentenceResult, Translator


async def decode(engine: Translator, sentences: Sequence[Sentence], priority: int = 0) -> tuple[SentenceResult, ...]:
    """Have `sentences` decoded, as one request.

    Where the task is cancelled, as gRPC does when the caller goes or its deadline passes, their rows are freed.

    Raises:
        RequestError: the engine refuses or fails.
    """
    if not sentences:
        return ()
    answered: asyncio.Future[tuple[SentenceResult, ...] | RequestError] = asyncio.get_running_loop().create_future()

    def settle(outcome: tuple[SentenceResult, ...] | RequestError) -> None:
        if not answered.done():
            answered.set_result(outcome)

    request = Request(sentences, settle, priority)
    engine.submit(request)
    try:
        outcome = await answered
    except asyncio.CancelledError:
        engine.cancel(request)
        raise
    if isinstance(outcome, RequestError):
        raise outcome
    return outcome
