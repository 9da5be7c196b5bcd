"""Streams text while the dispatcher decodes the sentences."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from translane_server.engine.sequence import CommittedTokens, Sentence, SentenceResult
from translane_server.text.tokenizer import Detokenizer
from translane_server.workers.dispatcher import Dispatcher


@dataclass(frozen=True, slots=True)
class StreamedSentence:
    """A sentence to decode, and the functions that turn its tokens into text.

    Attributes:
        sentence: the sentence.
        surfaces: returns what each token adds to the text, as UTF-8.
        text: returns the whole text of the best hypothesis.
    """

    sentence: Sentence
    surfaces: Callable[[CommittedTokens], Sequence[bytes]]
    text: Callable[[SentenceResult], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What a stream leaves when all sentences are decoded.

    Attributes:
        rest: the text that is not sent yet.
        results: the result of each sentence.
    """

    rest: str
    results: tuple[SentenceResult, ...]


async def stream_text(
    dispatcher: Dispatcher,
    sentences: Sequence[StreamedSentence],
    gaps: Sequence[str],
    *,
    priority: int = 0,
    caller: str = "",
) -> AsyncGenerator[str | StreamEnd]:
    """Decode `sentences` at the same time. Yield their texts in order, each part as soon as it is certain; and the end.

    The deltas, which are never empty, and `StreamEnd.rest` concatenate to the texts of the sentences with `gaps` around
    them. A caller who reads slowly gets larger deltas. Slow callers slow down no replica and use no more memory. If the
    generator is closed early, the rows are freed.

    Args:
        dispatcher: decodes the sentences.
        sentences: n sentences.
        gaps: n + 1 texts: before, between and after the sentences.
        priority: the priority of all sentences.
        caller: who asks.

    Raises:
        RequestError: the dispatcher refuses, or decoding fails.
    """
    pending, *gaps_after = gaps
    results: list[SentenceResult] = []
    async with aclosing(dispatcher.stream([each.sentence for each in sentences], priority, caller)) as news:
        for each, gap in zip(sentences, gaps_after, strict=True):
            detokenizer = Detokenizer()
            while isinstance(event := await anext(news), CommittedTokens):
                if delta := detokenizer.push(each.surfaces(event)):
                    yield pending + delta
                    pending = ""
            pending += detokenizer.finish(await each.text(event))
            results.append(event)
            if pending and len(results) < len(sentences):
                yield pending
                pending = ""
            pending += gap
    yield StreamEnd(pending, tuple(results))
