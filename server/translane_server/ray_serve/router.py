"""The ingress deployment where several deployments have models of their own: it sends each call to one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from ray import exceptions
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from translane.conversions import list_models_response, server_info_of
from translane.v1 import translation_pb2 as pb
from translane_server.api.service import server_info
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import MessageTooLargeError, ModelNotFoundError, RequestError, starting
from translane_server.models.choice import (
    names,
    no_model_for,
    no_model_to,
    no_such_model,
    several_models,
    sources_of,
    with_pair,
)
from translane_server.ray_serve.calls import ATTEMPTS, RETRY_AFTER, Answer, Call, engines_lost, queue_full
from translane_server.ray_serve.rpcs import MODELS, SCORE, STREAM, TRANSLATE, Rpcs
from translane_server.text.language_tags import is_auto
from translane_server.translation.limits import check_names

Groups = Mapping[str, Mapping[str, Languages]]
"""The languages of each model, by the names of the deployment and of the model."""


def group_of(groups: Groups, model: str, source: str, target: str) -> str:
    """Return the deployment that answers a request.

    It is the one that has the model; without a name, the only one with a model for the language pair, as a server
    chooses among its models. Where no model has the pair, it is the first deployment that may translate through a third
    language, with models of its own. For the source language ``auto``, it is the only one that translates to the
    target language. What is wrong with a request beyond that, the deployment says itself.

    Args:
        groups: the deployments.
        model: the name of a model, or "".
        source: tag of a request, or ``auto``.
        target: tag of a request.

    Raises:
        ModelNotFoundError: no model has the name, or the languages.
        InvalidRequestError: models of several deployments have the languages.
    """
    owners = {name: group for group, models in groups.items() for name in models}
    known = {name: languages for models in groups.values() for name, languages in models.items()}
    if model:
        if model not in owners:
            raise no_such_model(model, owners)
        return owners[model]
    if is_auto(source):
        found = [name for name, languages in known.items() if sources_of(languages, target)]
        if not found:
            raise no_model_to(target, owners)
    else:
        found = with_pair(known, source, target)
    chosen = {owners[name] for name in found}
    if len(chosen) > 1:
        raise several_models(found)
    if chosen:
        return chosen.pop()
    for group, models in groups.items():
        if _may_pivot(models.values(), source, target):
            return group
    raise no_model_for(source, target, owners)


def _may_pivot(models: Iterable[Languages], source: str, target: str) -> bool:
    """Whether one model reads the source language and one writes the target language."""
    known = list(models)
    return any(names(each.source, source) for each in known) and any(names(each.target, target) for each in known)


_log = logging.getLogger(__name__)

# How often the deployments are asked for their models, and how long one may take to answer [seconds].
_FRESH = 5.0
_PATIENCE = 5.0

_REQUESTS: Mapping[str, type[pb.TranslateRequest | pb.TranslateStreamRequest | pb.ScoreRequest]] = {
    TRANSLATE: pb.TranslateRequest,
    STREAM: pb.TranslateStreamRequest,
    SCORE: pb.ScoreRequest,
}

# What Ray raises where a Serve replica has ended, or does not answer.
_LOST = (exceptions.RayActorError, DeploymentUnavailableError)


class Router(Rpcs):
    """Sends each call to the deployment that has its model.

    Args:
        groups: the deployments, by name.
        message_bytes: largest message [bytes].
    """

    def __init__(self, groups: Mapping[str, DeploymentHandle[Any]], message_bytes: int) -> None:
        self._handles = groups
        self._message_bytes = message_bytes
        self._models: dict[str, dict[str, Languages]] = {}
        self._known = asyncio.Event()  # all deployments have told their models
        self._asking: asyncio.Task[None] | None = None

    async def answer_unary(self, path: str, call: Call) -> Answer:
        """See `Rpcs`."""
        try:
            if path == MODELS:
                return await self._all_models(call)
            return await self._asked(await self._group(path, call), path, call)
        except RequestError as error:
            return Answer.failed(error)

    async def answer_stream(self, path: str, call: Call) -> AsyncGenerator[Answer, None]:
        """See `Rpcs`. A stream that has begun is not sent to another engine."""
        try:
            handle = self._handles[await self._group(path, call)]
        except RequestError as error:
            yield Answer.failed(error)
            return
        for attempt in range(1, ATTEMPTS + 1):
            response = handle.options(method_name="answer_stream", stream=True).remote(path, call)
            has_begun = has_ended = False
            try:
                async for answer in response:
                    has_begun = True
                    yield answer
                has_ended = True
                return
            except (*_LOST, BackPressureError) as error:
                has_ended = True
                if has_begun or attempt == ATTEMPTS or isinstance(error, BackPressureError):
                    yield Answer.failed(_told(error))
                    return
            finally:
                if not has_ended:  # the caller has gone
                    response.cancel()

    async def _asked(self, group: str, path: str, call: Call) -> Answer:
        """Return the answer of a deployment, of another engine if one has ended.

        Raises:
            RequestError: there is no answer.
        """
        for attempt in range(1, ATTEMPTS + 1):
            response = self._handles[group].options(method_name="answer_unary").remote(path, call)
            try:
                answer: Answer = await response
                return answer
            except asyncio.CancelledError:
                response.cancel()
                raise
            except (*_LOST, BackPressureError) as error:
                if attempt == ATTEMPTS or isinstance(error, BackPressureError):
                    raise _told(error) from None
        raise AssertionError("the last attempt answers or raises")

    async def _all_models(self, call: Call) -> Answer:
        """Return the models of all deployments, or the first error of one."""
        answers = await asyncio.gather(*(self._asked(group, MODELS, call) for group in self._handles))
        if failed := next((answer for answer in answers if answer.code is not grpc.StatusCode.OK), None):
            return failed
        infos = [server_info_of(pb.ListModelsResponse.FromString(answer.message)) for answer in answers]
        models = sorted((model for each in infos for model in each.models), key=lambda model: model.name)
        whole = server_info(models, min(each.limits.max_request_texts for each in infos))
        return Answer(list_models_response(whole).SerializeToString())

    async def _group(self, path: str, call: Call) -> str:
        """Return the deployment that answers a call.

        Raises:
            RequestError: none does.
        """
        size = len(call.message)
        if size > self._message_bytes:
            raise MessageTooLargeError(f"the message has {size} bytes, and {self._message_bytes} are allowed")
        try:
            request = _REQUESTS[path].FromString(call.message)
        except DecodeError:  # any deployment says what is wrong
            return next(iter(self._handles))
        check_names(request)
        if self._asking is None:
            self._asking = asyncio.create_task(self._keep_asking())
        if not self._known.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._known.wait(), _PATIENCE)
        try:
            # In the order of the configuration, and not in that of the answers.
            groups = {group: self._models[group] for group in self._handles if group in self._models}
            return group_of(groups, request.model, request.source_language, request.target_language)
        except ModelNotFoundError:
            if self._known.is_set():
                raise
            raise starting() from None

    async def _keep_asking(self) -> None:
        """Ask the deployments for their models again and again: a reload may have added some."""
        while True:
            await asyncio.gather(*(self._ask(group) for group in self._handles))
            if len(self._models) == len(self._handles):
                self._known.set()
            await asyncio.sleep(_FRESH if self._known.is_set() else RETRY_AFTER)

    async def _ask(self, group: str) -> None:
        try:
            response = self._handles[group].options(method_name="languages").remote()
            self._models[group] = await asyncio.wait_for(response, _PATIENCE)
        except Exception as error:  # noqa: BLE001  whatever it is, the models before are the best guess
            _log.warning("the deployment %s does not tell its models: %s", group, type(error).__name__)


def _told(error: Exception) -> RequestError:
    """The error that tells a caller why there is no answer."""
    if isinstance(error, BackPressureError):
        return queue_full()
    return engines_lost()
