"""Has a model or a server translate any number of texts, and finds out which of them it cannot translate."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, cast

from translane.errors import (
    DeadlineExceeded,
    Internal,
    InvalidArgument,
    NotFound,
    QueueFull,
    ResourceExhausted,
    TranslaneError,
)
from translane.options import DecodingOptions
from translane.results import ModelInfo, Translation
from translane_batch.filters import Filters, languages_of
from translane_batch.records import FAILED, REFUSED, Answer
from translane_batch.settings import BatchError, BatchSettings
from translane_client.aio import AsyncClient
from translane_client.connection import Connection
from translane_client.retry import RetryPolicy
from translane_server.core.machine import available_cpus

if TYPE_CHECKING:
    from translane_server.app.in_process import AsyncTranslator

TEXTS = 64
"""Most texts of a request."""

LONGEST_TEXT = 1 << 20
"""Most bytes of a text. A longer one is refused here: gRPC ends the call of a message that is much too large."""

_REQUEST_BYTES = 1 << 15
"""Bytes of a request of several texts. Long texts have many sentences, and a server takes so many at a time."""

_PATIENCE = 3600.0
"""Seconds in which a request must be answered. It waits that long for room in a server's queue."""

_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each further attempt, where decoding has failed. The server starts replicas again meanwhile."""

_PROBE = "1"
"""A text that every server translates. If it fails, too, the server is the reason, and not another text."""

_LEAST_REQUESTS, _REQUESTS_OF_A_CPU = 8, 2
_RETRIES = RetryPolicy(attempts=30, longest_wait=600.0)  # some two minutes, in which servers come back

_POISONED, _TOO_LARGE = "POISONED", "MESSAGE_TOO_LARGE"  # reasons in the server's errors
_NAMED = re.compile(r"texts\[(\d+)\]")

Save = Callable[[Sequence[tuple[int, Answer]]], None]
"""Takes answers, with the numbers of their texts."""


@asynccontextmanager
async def opened(settings: BatchSettings, cpus: int | None = None) -> AsyncIterator[Translator]:
    """Load the model, or connect to the servers, and check that they take the settings."""
    client: AsyncClient | AsyncTranslator
    if settings.server:
        client = client_of(settings)
    else:  # these need the packages of the server
        from translane_batch.local_model import server_settings
        from translane_server.app.in_process import AsyncTranslator

        client = AsyncTranslator(server_settings(settings), cpus=cpus)
    async with client:
        filters = Filters(settings, languages_of(settings, (await client.server_info()).models))
        requests = settings.requests or max(_LEAST_REQUESTS, _REQUESTS_OF_A_CPU * (cpus or available_cpus()))
        translator = Translator(client, settings, filters, requests)
        await translator.check()
        yield translator


def client_of(settings: BatchSettings) -> AsyncClient:
    """Return a client of the servers that the settings name."""
    try:
        connection = Connection(settings.server, ca=settings.ca, token_file=settings.token_file)
    except ValueError as error:
        raise BatchError(f"--server: {error}", exit_code=2) from None
    return AsyncClient(connection, retry=_RETRIES, batch_size=TEXTS, concurrency=1)


async def identity_of_servers(settings: BatchSettings) -> str:
    """Return names, versions and digests of the models that servers may translate with."""
    async with client_of(settings) as client:
        return named_models(settings, (await client.server_info()).models)


def named_models(settings: BatchSettings, models: Iterable[ModelInfo]) -> str:
    """Return names, versions and digests of the models that the settings may mean."""
    models = [model for model in models if settings.model in ("", model.name)]
    facts = ((each.name, each.version, each.precision, each.digest) for each in models)
    return ", ".join(sorted(" ".join(filter(None, each)) for each in facts))


class Translator:
    """Translates texts with the options of the settings.

    A request may have a text that no server translates. Such a request is sent again in parts, until the text is alone.
    So one text never costs another one its translation, and a text is given up only if it fails alone, while the server
    translates other texts. At most `requests` are under way at once.
    """

    def __init__(
        self, client: AsyncClient | AsyncTranslator, settings: BatchSettings, filters: Filters, requests: int
    ) -> None:
        self._client = client
        self._model = settings.model if settings.server else ""
        self._source, self._target = settings.source_language, settings.target_language
        self._options = cast(DecodingOptions, settings.options)
        self._filters = filters
        self._turns = asyncio.Semaphore(requests)

    async def check(self) -> None:
        """Make sure that the server takes the options and the languages."""
        try:
            await self._request([""])
        except (InvalidArgument, NotFound) as error:
            message = str(error)
            if error.violations:  # the field of the request has the name of the flag
                first = error.violations[0]
                flag = "--" + first.field.removeprefix("options.").replace("_", "-")
                message = f"{flag}: {first.description}"
            raise BatchError(message, exit_code=2) from None

    async def translate(self, texts: Sequence[tuple[int, str]], save: Save) -> None:
        """Translate texts, each with its number, and hand the answers out as they come."""

        async def translate_batch(batch: Sequence[tuple[int, str]]) -> None:
            numbers, sources = zip(*batch, strict=True)
            save(list(zip(numbers, await self._answers(sources), strict=True)))

        sizes = {number: len(text.encode()) for number, text in texts}
        if long := [number for number, size in sizes.items() if size > LONGEST_TEXT]:
            detail = f"bytes, at most {LONGEST_TEXT} are accepted"
            save([(number, Answer("", REFUSED, f"has {sizes[number]} {detail}")) for number in long])
        await all_of(translate_batch(batch) for batch in _batches(texts, sizes))

    async def _answers(self, texts: Sequence[str]) -> list[Answer]:
        try:
            async with self._turns:
                translations = await self._request(texts)
        except TranslaneError as error:
            if not _is_about_texts(error):
                raise
            if len(texts) == 1:
                return [await self._given_up(texts[0], error)]
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
        answers = dict[int, Answer]()
        for part in parts:
            found = await self._answers([texts[place] for place in part])
            answers.update(zip(part, found, strict=True))
        return [answers[place] for place in range(len(texts))]

    async def _request(self, texts: Sequence[str]) -> list[Translation]:
        pauses = iter(_PAUSES)
        while True:
            try:
                return [each async for each in self._attempt(texts)]
            except (Internal, DeadlineExceeded) as error:
                several = isinstance(error, DeadlineExceeded) and len(texts) > 1  # fewer texts take less time
                pause = next(pauses, None)
                if error.reason == _POISONED or several or pause is None:
                    raise
                await asyncio.sleep(pause)

    async def _given_up(self, text: str, error: TranslaneError) -> Answer:
        """Return the answer of a text that has failed alone. Raise TranslaneError if other texts fail, too."""
        if not (isinstance(error, InvalidArgument) or error.reason in (_POISONED, _TOO_LARGE)):
            # The server does not say that the text is the reason.
            async with self._turns:
                with suppress(InvalidArgument):  # an answer, too: such as that the language of the probe is not known
                    await self._request([_PROBE])
                try:  # once more: the server may translate again only since the last attempt
                    (translation,) = [each async for each in self._attempt([text])]
                    return self._filters.answer(text, translation)
                except TranslaneError as again:
                    if not _is_about_texts(again):
                        raise
                    error = again
        reason = REFUSED if isinstance(error, InvalidArgument) else FAILED
        return Answer("", reason, error.violations[0].description if error.violations else str(error))

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


def _batches(texts: Iterable[tuple[int, str]], sizes: dict[int, int]) -> Iterator[list[tuple[int, str]]]:
    """Yield the texts of each request, long ones first, so that texts of a request end together.

    `sizes` are the bytes of each text, by its number. A text above `LONGEST_TEXT` is in no request.
    """
    batch, size = list[tuple[int, str]](), 0
    for number, text in sorted(texts, key=lambda each: sizes[each[0]], reverse=True):
        length = sizes[number]
        if length > LONGEST_TEXT:
            continue
        if len(batch) == TEXTS or (batch and size + length > _REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((number, text))
        size += length
    if batch:
        yield batch


async def all_of(works: Iterable[Coroutine[Any, Any, None]]) -> None:
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
    if isinstance(error, QueueFull):
        return False
    return isinstance(error, DeadlineExceeded | ResourceExhausted) or error.reason == _POISONED
