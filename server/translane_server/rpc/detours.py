"""Requests that no model translates at once: their language is found first, or they go through a third language."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from translane.v1 import translation_pb2 as pb
from translane_server.api.call import Call, Write
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.models.pivots import Pivot
from translane_server.models.registry import Registry
from translane_server.models.served_model import ServedModel
from translane_server.requests.limits import TranslationRequest, refuse, too_many
from translane_server.requests.timings import add_times, keep_slowest, set_total
from translane_server.rpc.pivoted import (
    add_first_step,
    check_pivoted,
    first_step,
    of_the_text_between,
    renamed,
    second_step,
)
from translane_server.rpc.source_languages import SourceLanguages
from translane_server.rpc.text_workers import TextWorkers

_Result = TypeVar("_Result")
_Request = TypeVar("_Request", pb.TranslateRequest, pb.TranslateStreamRequest)


class Steps(Protocol):
    """Translates with one model."""

    async def check(self, request: pb.TranslateRequest, served: ServedModel, call: Call) -> None:
        """Refuse a request whose options are wrong, or for which the model's queue has no room.

        Raises:
            RequestError: the request is refused.
        """

    async def translate(
        self, request: pb.TranslateRequest, served: ServedModel, call: Call, *, is_paid: bool = False
    ) -> pb.TranslateResponse:
        """Return the translations of a model. See `Translate`. The call pays, unless an earlier step has paid."""

    async def stream(
        self,
        request: pb.TranslateStreamRequest,
        served: ServedModel,
        call: Call,
        write: Write,
        *,
        is_paid: bool = False,
    ) -> None:
        """Write the translation of a model. See `TranslateStream`. The call pays, unless an earlier step has paid."""


class Detours:
    """Answers requests in several steps, each of them a request to one model.

    The limits of texts, options and the queue hold for each step, and cancelling a request ends the step that runs.

    Args:
        models: the models of the server.
        steps: translates with one model.
        workers: find the languages of texts.
        texts_per_request: maximum number of texts.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        models: Registry,
        steps: Steps,
        workers: TextWorkers,
        texts_per_request: int,
        clock: Callable[[], float],
    ) -> None:
        self._models = models
        self._steps = steps
        self._languages = SourceLanguages(models, workers)
        self._most_texts = texts_per_request
        self._clock = clock

    async def translate(self, request: pb.TranslateRequest, pivot: Pivot | None, call: Call) -> pb.TranslateResponse:
        """Answer a request whose source language is ``auto``, or whose languages need two models.

        Args:
            request: the request.
            pivot: the two models; None if the language of the texts is to be found out.
            call: asks for it.

        Raises:
            RequestError: a step refuses, or fails.
        """
        started = self._clock()
        response = await (
            self._translate(request, pivot, call) if pivot else self._translate_by_language(request, call)
        )
        set_total(response.timing, self._clock() - started)
        call.note(model=response.model, source_tokens=sum(each.source_tokens for each in response.translations))
        return response

    async def stream(self, request: pb.TranslateStreamRequest, pivot: Pivot | None, call: Call, write: Write) -> None:
        """Answer a stream as `translate` answers a request. Of two models, the second one streams.

        Raises:
            RequestError: a step refuses, or fails.
        """
        started = self._clock()
        found = ""
        model: ServedModel | Pivot | None = pivot
        if model is None:
            (found,) = await self._languages.find(request, [request.text], call.caller)
            request = _with_language(request, found)
            model = self._route(request)
        first: pb.TranslateResponse | None = None
        if isinstance(model, Pivot):
            with renamed(lambda field: field.replace("texts[0]", "text")):
                first = await self._first_step(_unary(request), model, call)
            request = second_step(request, model, first)

        async def describe(message: pb.TranslateStreamResponse) -> None:
            """Send a message, and add to the last one what the steps before have done."""
            if message.HasField("hypothesis"):
                if isinstance(model, Pivot) and first:
                    add_first_step([message.hypothesis], message.treatment, first.translations[0], model)
                    add_times(message.timing, first.timing)
                if found:
                    message.treatment.source_language = found
                set_total(message.timing, self._clock() - started)
            await write(message)

        if isinstance(model, Pivot):
            with of_the_text_between(model):
                await self._steps.stream(request, model.second, call, describe, is_paid=True)
        else:
            await self._steps.stream(request, model, call, describe)
        call.note(model=model.name)

    # The language of the source

    async def _translate_by_language(self, request: pb.TranslateRequest, call: Call) -> pb.TranslateResponse:
        """Translate the texts of each language as a request of its own, all at the same time."""
        count = len(request.texts)
        if not count:
            raise InvalidRequestError(FieldViolation("texts", "is empty; at least one is needed"))
        refuse(too_many("texts", count, self._most_texts))
        parts: dict[str, list[int]] = {}
        for number, language in enumerate(await self._languages.find(request, list(request.texts), call.caller)):
            parts.setdefault(language, []).append(number)
        answers = await _together([self._part(request, language, numbers, call) for language, numbers in parts.items()])
        response = pb.TranslateResponse(model=", ".join(dict.fromkeys(answer.model for answer in answers)))
        translations: dict[int, pb.Translation] = {}
        for (language, numbers), answer in zip(parts.items(), answers, strict=True):
            for number, translation in zip(numbers, answer.translations, strict=True):
                translation.treatment.source_language = language
                translations[number] = translation
            keep_slowest(response.timing, answer.timing)
        response.translations.extend(translations[number] for number in range(count))
        return response

    async def _part(
        self, request: pb.TranslateRequest, language: str, numbers: Sequence[int], call: Call
    ) -> pb.TranslateResponse:
        """Translate some texts of a request, which have the same language."""
        part = _with_language(request, language)
        del part.texts[:]
        part.texts.extend(request.texts[number] for number in numbers)

        def name(field: str) -> str:
            return re.sub(r"^texts\[(\d+)\]", lambda match: f"texts[{numbers[int(match[1])]}]", field)

        with renamed(name):
            return await self._translate(part, self._route(part), call)

    # Two models

    async def _translate(
        self, request: pb.TranslateRequest, model: ServedModel | Pivot, call: Call
    ) -> pb.TranslateResponse:
        if not isinstance(model, Pivot):
            return await self._steps.translate(request, model, call)
        first = await self._first_step(request, model, call)
        with of_the_text_between(model):
            response = await self._steps.translate(second_step(request, model, first), model.second, call, is_paid=True)
        for translation, before in zip(response.translations, first.translations, strict=True):
            add_first_step(translation.hypotheses, translation.treatment, before, model)
        add_times(response.timing, first.timing)
        response.model = model.name
        return response

    async def _first_step(self, request: pb.TranslateRequest, pivot: Pivot, call: Call) -> pb.TranslateResponse:
        """Translate into the language in the middle, unless the second step would be refused."""
        check_pivoted(request.options, pivot)
        blank = pb.TranslateResponse(translations=[pb.Translation(hypotheses=[pb.Hypothesis()])] * len(request.texts))
        await self._steps.check(second_step(request, pivot, blank), pivot.second, call)
        return await self._steps.translate(first_step(request, pivot), pivot.first, call)

    def _route(self, request: TranslationRequest) -> ServedModel | Pivot:
        return self._models.route(request.model, request.source_language, request.target_language)


async def _together(calls: Sequence[Coroutine[Any, Any, _Result]]) -> list[_Result]:
    """Return the results of calls that run at the same time. If one of them fails, the others are cancelled."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _with_language(request: _Request, language: str) -> _Request:
    changed = type(request)()
    changed.CopyFrom(request)
    changed.source_language = language
    return changed


def _unary(request: pb.TranslateStreamRequest) -> pb.TranslateRequest:
    return pb.TranslateRequest(
        texts=[request.text],
        source_language=request.source_language,
        target_language=request.target_language,
        options=request.options,
        priority=request.priority,
        format=request.format,
    )
