"""The way of a stream: sentences to the dispatcher, and their text to the caller while it is decoded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.sentence import CertainTokens, Sentence, SentenceResult
from translane_server.text.detokenizer import Detokenizer

Send = Callable[[str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class StreamedSentence:
    """A sentence to decode, and what makes text of its tokens.

    Attributes:
        sentence: to decode.
        surfaces: what tokens add to its text, as UTF-8.
        text: the whole text of its best hypothesis.
    """

    sentence: Sentence
    surfaces: Callable[[CertainTokens], Sequence[bytes]]
    text: Callable[[SentenceResult], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What is left when all is decoded.

    Attributes:
        rest: the text that was not sent.
        results: of each sentence.
    """

    rest: str
    results: tuple[SentenceResult, ...]


async def stream_text(
    dispatcher: Dispatcher, sentences: Sequence[StreamedSentence], gaps: Sequence[str], priority: int, send: Send
) -> StreamEnd:
    """Decode `sentences` side by side, and send their text as soon as it is certain, one after the other.

    What is sent and `StreamEnd.rest` concatenate to the sentences' texts, with `gaps` around them. A caller who reads
    slowly gets more at a time; neither the replicas nor the memory feels it. Where this ends early, its rows are freed.

    Args:
        dispatcher: decodes.
        sentences: n of them.
        gaps: n + 1 of them: what is before, between and after the sentences.
        priority: of all of them.
        send: takes a delta, which is never empty.

    Raises:
        RequestError: the dispatcher refuses, or decoding fails.
    """
    pending, *gaps_after = gaps
    results: list[SentenceResult] = []
    async with aclosing(dispatcher.stream([each.sentence for each in sentences], priority)) as news:
        for each, gap in zip(sentences, gaps_after, strict=True):
            detokenizer = Detokenizer()
            while isinstance(event := await anext(news), CertainTokens):
                if delta := detokenizer.push(each.surfaces(event)):
                    await send(pending + delta)
                    pending = ""
            pending += detokenizer.finish(await each.text(event))
            results.append(event)
            if pending and len(results) < len(sentences):
                await send(pending)
                pending = ""
            pending += gap
    return StreamEnd(pending, tuple(results))
