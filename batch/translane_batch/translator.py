"""Has a server translate any number of texts, and finds out which of them it cannot translate."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, cast

from translane_batch.answers import BLANK, FAILED, REFUSED, Answer
from translane_batch.errors import BatchError
from translane_batch.filters import Filters
from translane_batch.settings import BatchSettings
from translane_client.aio import AsyncClient
from translane_client.errors import DeadlineExceeded, Internal, InvalidArgument, NotFound, QueueFull, TranslaneError
from translane_client.options import DecodingOptions
from translane_client.results import Translation

TEXTS = 64
"""Most texts of a request."""

_REQUEST_BYTES = 1 << 15
"""Bytes of a request of several texts. Long texts have many sentences, and a server takes so many at a time."""

_PATIENCE = 3600.0
"""Seconds in which a request must be answered. It waits that long for room in a server's queue."""

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further attempt, where decoding has failed. The server starts replicas again meanwhile."""

_POISONED, _TOO_LARGE = "POISONED", "MESSAGE_TOO_LARGE"  # reasons in the server's errors
_NAMED = re.compile(r"texts\[(\d+)\]")


class Translator:
    """Translates texts with the options of the settings.

    A request may have a text that no server translates. Such a request is sent again in parts, until the text is alone.
    So one text never costs another one its translation, and a text is given up only if it fails alone.

    Args:
        client: sends the requests.
        settings: options and languages.
        filters: which translations are left out.
        requests: most requests at once.
    """

    def __init__(self, client: AsyncClient, settings: BatchSettings, filters: Filters, requests: int) -> None:
        self._client = client
        self._model = settings.model if settings.server else ""
        self._source, self._target = settings.source_language, settings.target_language
        self._options = cast(DecodingOptions, settings.options | filters.options)
        self._filters = filters
        self._turns = asyncio.Semaphore(requests)

    async def check(self) -> None:
        """Make sure that the server takes the options and the languages.

        Raises:
            BatchError: it refuses them, or has no such model.
            TranslaneError: the server does not answer.
        """
        try:
            await self._request([""])
        except (InvalidArgument, NotFound) as error:
            raise _wrong_setting(error) from None

    async def translate(self, sources: Sequence[str], done: Callable[[int], None]) -> list[Answer]:
        """Return the answer of each source.

        Args:
            sources: the texts.
            done: called with the number of texts that are translated, as often as some are.

        Raises:
            TranslaneError: the servers do not answer, or do not translate at all.
        """
        answers = [BLANK] * len(sources)

        async def translate_batch(places: Sequence[int]) -> None:
            found = await self._answers([sources[place] for place in places])
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
            done(len(places))

        await _all(translate_batch(places) for places in _batches(sources))
        return answers

    async def _answers(self, texts: Sequence[str]) -> list[Answer]:
        try:
            async with self._turns:
                translations = await self._request(texts)
        except TranslaneError as error:
            if not _is_about_texts(error):
                raise
            if len(texts) == 1:
                reason = REFUSED if isinstance(error, InvalidArgument) else FAILED
                return [Answer("", reason, _description(error))]
            return await self._apart(texts, error)
        return [self._filters.answer(text, each) for text, each in zip(texts, translations, strict=True)]

    async def _apart(self, texts: Sequence[str], error: TranslaneError) -> list[Answer]:
        """Translate the texts that the error names one by one; or, if it names none or all, in two halves."""
        named = {int(match[1]) for each in error.violations if (match := _NAMED.match(each.field))}
        parts = [[place] for place in sorted(named)]
        parts.append([place for place in range(len(texts)) if place not in named])
        if not named or not parts[-1]:
            half = len(texts) // 2
            parts = [list(range(half)), list(range(half, len(texts)))]
        answers = [BLANK] * len(texts)
        for part in parts:
            found = await self._answers([texts[place] for place in part])
            for place, answer in zip(part, found, strict=True):
                answers[place] = answer
        return answers

    async def _request(self, texts: Sequence[str]) -> list[Translation]:
        pauses = iter(_PAUSES)
        while True:
            try:
                return [each async for each in self._attempt(texts)]
            except Internal as error:
                pause = next(pauses, None)
                if error.reason == _POISONED or pause is None:
                    raise
                await asyncio.sleep(pause)

    def _attempt(self, texts: Sequence[str]) -> AsyncIterator[Translation]:
        # Iterating waits for room in the server's queue, which a list of texts does not.
        return self._client.translate_iter(
            texts,
            model=self._model,
            source_language=self._source,
            target_language=self._target,
            timeout=_PATIENCE,
            **self._options,
        )


def _batches(sources: Sequence[str]) -> Iterator[list[int]]:
    """Yield the places of the texts of each request, long texts first, so that texts of a request end together."""
    batch, size = list[int](), 0
    for place in sorted(range(len(sources)), key=lambda place: len(sources[place]), reverse=True):
        length = len(sources[place].encode())
        if len(batch) == TEXTS or (batch and size + length > _REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(place)
        size += length
    if batch:
        yield batch


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait for all works; if one fails, none goes on."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _is_about_texts(error: TranslaneError) -> bool:
    """Whether the request's texts are the reason, so that fewer texts, or others, may do better."""
    if isinstance(error, InvalidArgument):
        return bool(error.violations) and all(each.field.startswith("texts") for each in error.violations)
    if isinstance(error, DeadlineExceeded):
        return True
    return error.reason in (_POISONED, _TOO_LARGE) and not isinstance(error, QueueFull)


def _description(error: TranslaneError) -> str:
    return error.violations[0].description if error.violations else str(error)


def _wrong_setting(error: TranslaneError) -> BatchError:
    """The error of a request that is wrong whatever its texts, with the name of the flag."""
    if not error.violations:
        return BatchError(str(error), exit_code=2)
    first = error.violations[0]
    flag = "--" + first.field.removeprefix("options.").replace("_", "-")
    return BatchError(f"{flag}: {first.description}", exit_code=2)
