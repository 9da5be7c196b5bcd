"""The way of a stream: sentences to the engine, and their text to the caller while it is decoded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from translane_server.errors import RequestError
from translane_server.request import AlignedToken, Request, Sentence, SentenceResult, Translator
from translane_server.text.detokenizer import DecodePrefix, TextStream

_Result = TypeVar("_Result")
_Progress = tuple[tuple[int, ...], tuple[AlignedToken, ...]]

Send = Callable[[str], Awaitable[None]]


class Run(Protocol):
    """Calls a function away from the event loop."""

    def __call__(self, function: Callable[..., _Result], /, *arguments: object) -> Awaitable[_Result]:
        """What `function` returns for `arguments`."""


@dataclass(frozen=True, slots=True)
class StreamedSentence:
    """A sentence to decode, and what makes text of its tokens."""

    sentence: Sentence
    decode: DecodePrefix


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """What is left when all is decoded.

    Attributes:
        rest: the text that was not sent.
        results: of each sentence.
        texts: of the best hypothesis of each sentence.
    """

    rest: str
    results: tuple[SentenceResult, ...]
    texts: tuple[str, ...]


async def stream_text(
    engine: Translator,
    sentences: Sequence[StreamedSentence],
    gaps: Sequence[str],
    priority: int,
    *,
    send: Send,
    run: Run,
) -> StreamEnd:
    """Decode `sentences` side by side, and send their text as soon as it is certain, one after the other.

    What is sent and `StreamEnd.rest` concatenate to the sentences' texts, with `gaps` around them. A caller who reads
    slowly gets more at a time; neither the engine nor the memory feels it. Where this ends early, its rows are freed.

    Args:
        engine: decodes.
        sentences: n of them.
        gaps: n + 1 of them: what is before, between and after the sentences.
        priority: of all of them.
        send: takes a delta, which is never empty.
        run: where tokens become text.

    Raises:
        RequestError: the engine refuses or fails.
    """
    pending, *gaps_after = gaps
    results, texts = [], []
    feeds = [_Feed(each.sentence, priority) for each in sentences]
    try:
        _submit(engine, feeds)
        for feed, each, gap in zip(feeds, sentences, gaps_after, strict=True):
            stream = TextStream(each.decode)
            while not isinstance(news := await feed.news(), SentenceResult):
                if delta := await run(stream.push, *news):
                    await send(pending + delta)
                    pending = ""
            best = news.hypotheses[0]
            text = await run(each.decode, best.token_ids, best.alignment)
            pending += stream.finish(text)
            results.append(news)
            texts.append(text)
            if pending and len(texts) < len(sentences):
                await send(pending)
                pending = ""
            pending += gap
    finally:
        for feed in feeds:
            if feed.accepted and not feed.answered:
                engine.cancel(feed.request)
    return StreamEnd(pending, tuple(results), tuple(texts))


def _submit(engine: Translator, feeds: Sequence[_Feed]) -> None:
    """Have all sentences accepted, or none: each is a request of its own, because each ends when it ends."""
    if feeds:
        engine.check_room(len(feeds))
    for feed in feeds:
        engine.submit(feed.request)
        feed.accepted = True


class _Feed:
    """What the engine tells of a sentence; only the newest is kept for the reader."""

    def __init__(self, sentence: Sentence, priority: int) -> None:
        self.request = Request([replace(sentence, on_progress=self._on_progress)], self._on_done, priority)
        self.accepted = False
        self._changed = asyncio.Event()
        self._progress: _Progress = ((), ())
        self._outcome: tuple[SentenceResult, ...] | RequestError | None = None

    @property
    def answered(self) -> bool:
        """Whether there is nothing more to come."""
        return self._outcome is not None

    async def news(self) -> _Progress | SentenceResult:
        """Wait until there is more than there was at the last call: tokens and their alignment, or the result.

        Raises:
            RequestError: decoding failed.
        """
        await self._changed.wait()
        self._changed.clear()
        if self._outcome is None:
            return self._progress
        if isinstance(self._outcome, RequestError):
            raise self._outcome
        (result,) = self._outcome
        return result

    def _on_progress(self, token_ids: tuple[int, ...], alignment: tuple[AlignedToken, ...]) -> None:
        self._progress = (token_ids, alignment)
        self._changed.set()

    def _on_done(self, outcome: tuple[SentenceResult, ...] | RequestError) -> None:
        self._outcome = outcome
        self._changed.set()
