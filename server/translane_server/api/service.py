"""The translane.v1 service: messages to requests, and translations to messages."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TypeVar

from translane.conversions import (
    document_request_of,
    document_responses,
    list_models_response,
    progress_response,
    score_response,
    scoring_request_of,
    stream_request_of,
    stream_response,
    translate_response,
    translation_request_of,
)
from translane.options import Options
from translane.results import DocumentProgress, Hypothesis, Limits, ModelInfo, ServerInfo
from translane.v1 import translation_pb2 as pb
from translane_server.api.call import Call, Write
from translane_server.core.errors import shutting_down
from translane_server.models.registry import Registry
from translane_server.translation.documents import open_document, translate_document
from translane_server.translation.limits import check_names, refuse, too_many, too_many_entries
from translane_server.translation.tokenizer_pool import LITTLE_WORK
from translane_server.translation.translator import Ticket, Translates

SERVICE_NAME = pb.DESCRIPTOR.services_by_name["TranslationService"].full_name

_VERSION = version("translane")  # reading it takes longer than all the rest of a call

_Message = TypeVar("_Message")


class TranslationService:
    """Answers the RPCs. Refuses translations after `close`.

    A with statement on the service counts one accepted request.
    """

    def __init__(self, models: Registry, most_texts: int, message_bytes: int, *, log_texts: bool = False) -> None:
        self._models = models
        self._most_texts = most_texts
        self._message_bytes = message_bytes
        self._log_texts = log_texts
        self._closed = False
        self._running = 0
        self._idle = asyncio.Event()  # set when no request runs any more

    def __enter__(self) -> None:
        self._running += 1

    def __exit__(self, *exception: object) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()

    def close(self) -> None:
        """Refuse new translations from now on."""
        self._closed = True

    async def idle(self) -> None:
        """Wait until every translation that was accepted is answered."""
        while self._running:
            self._idle.clear()
            await self._idle.wait()

    async def Translate(self, message: pb.TranslateRequest, call: Call) -> pb.TranslateResponse:  # noqa: N802
        call.note(texts=len(message.texts))
        check_names(message)
        if call.size > LITTLE_WORK:  # a list that is too long is not read at all
            refuse([*too_many("texts", len(message.texts), self._most_texts), *too_many_entries(message.options)])
        request = translation_request_of(message)
        translator = self._models.translator(request)
        ticket = _ticket(call, message.priority)
        with self._accept(call, translator, len(request.texts)):
            answer = await translator.translate(request, ticket)
            hypotheses = [each for translation in answer.translations for each in translation.hypotheses]
            response = await self._written(call, partial(translate_response, answer), request.options, hypotheses)
        if self._log_texts:
            call.note(source_texts=list(request.texts), translations=[each.text for each in hypotheses])
        return response

    async def TranslateStream(self, message: pb.TranslateStreamRequest, call: Call, write: Write) -> None:  # noqa: N802
        call.note(texts=1)
        check_names(message)
        if call.size > LITTLE_WORK:
            refuse(too_many_entries(message.options))
        request = stream_request_of(message)
        translator = self._models.translator(request)
        hypotheses: list[Hypothesis] = []
        with self._accept(call, translator, 1):
            async with aclosing(translator.stream(request, _ticket(call, message.priority))) as deltas:
                async for delta in deltas:
                    if delta.translation:
                        hypotheses.append(delta.translation.hypothesis)
                    make = partial(stream_response, delta)
                    await write(await self._written(call, make, request.options, hypotheses))
        if self._log_texts:
            call.note(source_texts=list(request.texts), translations=[each.text for each in hypotheses])

    async def TranslateDocument(  # noqa: N802
        self, message: pb.TranslateDocumentRequest, call: Call, write: Write
    ) -> None:
        check_names(message)
        refuse(too_many_entries(message.options))
        opened = await open_document(document_request_of(message), self._models, call.caller)
        translator = self._models.translator(opened.request)
        texts = opened.document.texts
        call.note(texts=len(texts))
        with self._accept(call, translator, len(texts)):
            ticket = _long_ticket(call, message.priority)
            async with aclosing(translate_document(opened, translator, self._models, ticket)) as events:
                async for event in events:
                    if isinstance(event, DocumentProgress):
                        await write(progress_response(event))
                        continue
                    for response in document_responses(event):
                        await write(response)

    async def Score(self, message: pb.ScoreRequest, call: Call) -> pb.ScoreResponse:  # noqa: N802
        call.note(texts=len(message.inputs))
        check_names(message)
        refuse(too_many("inputs", len(message.inputs), self._most_texts))
        request = scoring_request_of(message)
        model = self._models.choice.model(request.model, request.source_language, request.target_language)
        with self._accept(call, model, len(message.inputs)):
            response = score_response(await model.score(request, _ticket(call)))
        if self._log_texts:
            call.note(
                source_texts=[source for source, _ in request.inputs],
                translations=[target for _, target in request.inputs],
            )
        return response

    async def ListModels(self, _message: pb.ListModelsRequest, _call: Call) -> pb.ListModelsResponse:  # noqa: N802
        return list_models_response(server_info(self._models.infos(), self._most_texts, self._message_bytes))

    def _accept(self, call: Call, models: Translates, texts: int) -> TranslationService:
        """Note an accepted request, and return the context that counts it: it is answered even if the server closes."""
        call.note(model=models.name)
        call.accepted = time.monotonic()
        call.counted = models.metrics
        for each in call.counted:
            each.request_texts.observe([texts])
        if self._closed:
            raise shutting_down()
        return self

    async def _written(
        self, call: Call, make: Callable[[], _Message], options: Options, hypotheses: Sequence[Hypothesis]
    ) -> _Message:
        """Return the message that `make` makes. Many details of hypotheses take too long for the event loop."""
        if not (options.return_tokens or options.return_token_scores or options.return_alignment):
            return make()
        details = sum([len(each.tokens) + len(each.token_log_probs) + len(each.alignment) for each in hypotheses])
        return await self._models.pool.build(details, lambda _budget: make(), call.caller)


def server_info(models: Sequence[ModelInfo], most_texts: int, document_bytes: int) -> ServerInfo:
    """Return the models of a server, and the limits that hold for all of them."""
    most_waiting = min((model.max_queue_size for model in models), default=0)
    most_beams = min((model.max_beam_size for model in models), default=0)
    return ServerInfo(_VERSION, Limits(most_texts, most_waiting, most_beams, document_bytes), tuple(models))


def _ticket(call: Call, priority: int = 0) -> Ticket:
    return Ticket(call.caller, priority, call.pay, call.note, call.count_in, call.trace)


def _long_ticket(call: Call, priority: int) -> Ticket:
    """Return the ticket of a call that asks for more than its key may have at a time, little by little.

    More than its key may have in a second would leave a debt, for which the call waits without progress.
    """
    most = sys.maxsize
    if call.allowance:
        holder = call.allowance.holder
        most = min(holder.sentences_in_flight or most, int(holder.sentences_per_second or most))
    return replace(_ticket(call, priority), most_sentences=most, give_back=call.give_back, progress=call.progress)
