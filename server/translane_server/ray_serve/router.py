"""The ingress deployment where several deployments have models of their own: it sends each call to one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from ray.exceptions import RayActorError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.handle import DeploymentHandle

from translane.conversions import list_models_response, server_info_of
from translane.v1 import translation_pb2 as pb
from translane_server.api.service import server_info
from translane_server.bundle.manifest import Languages
from translane_server.core.errors import MessageTooLargeError, ModelNotFoundError, starting
from translane_server.models.choice import (
    names,
    no_model_for,
    no_model_to,
    no_such_model,
    several_models,
    sources_of,
    with_pair,
)
from translane_server.ray_serve.calls import MODELS, RETRY_AFTER, Answer, Ingress, LostError, no_engine, queue_full
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

_METHODS = pb.DESCRIPTOR.services_by_name["TranslationService"].methods_by_name


class Router(Ingress):
    """Sends each call to the deployment that has the model. `proxy` sends it again if its engine ends."""

    def __init__(self, handles: Mapping[str, DeploymentHandle], message_bytes: int) -> None:
        self._handles = handles
        self._message_bytes = message_bytes
        self._models: dict[str, dict[str, Languages]] = {}
        self._known = asyncio.Event()  # all deployments have told their models
        self._asking: asyncio.Task[None] | None = None

    async def answers(self, method: str, message: bytes, context: Any) -> AsyncGenerator[Answer, None]:
        """See `Ingress`."""
        if method == MODELS:
            yield await self._all_models(message, context)
            return
        group = await self._group(method, message)
        async with aclosing(self._asked(group, method, message, context)) as asked:
            async for answer in asked:
                yield answer

    async def _asked(self, group: str, method: str, message: bytes, context: Any) -> AsyncGenerator[Answer, None]:
        """Yield the answers of a deployment. Raises as `answers`."""
        many = _METHODS[method].server_streaming
        response = self._handles[group].options(method_name=method, stream=many).remote(message, context)
        try:
            if many:
                async for answer in response:
                    yield answer
            else:
                yield await response
        except (asyncio.CancelledError, GeneratorExit):  # the caller has gone
            response.cancel()
            raise
        except RayActorError:
            raise LostError from None
        except BackPressureError:
            raise queue_full() from None
        except DeploymentUnavailableError:
            raise no_engine() from None

    async def _all_models(self, message: bytes, context: Any) -> Answer:
        """Return the models of all deployments, or the first error of one."""

        async def listed(group: str) -> Answer:
            (answer,) = [each async for each in self._asked(group, MODELS, message, context)]
            return answer

        answers = await asyncio.gather(*map(listed, self._handles))
        if failed := next((answer for answer in answers if answer.status), None):
            return failed
        infos = [server_info_of(pb.ListModelsResponse.FromString(answer.message)) for answer in answers]
        models = sorted((model for each in infos for model in each.models), key=lambda model: model.name)
        limits = [each.limits for each in infos]
        most_texts, document_bytes = min(each.max_request_texts for each in limits), self._message_bytes
        whole = server_info(models, most_texts, min([document_bytes, *(each.document_bytes for each in limits)]))
        return Answer(list_models_response(whole).SerializeToString())

    async def _group(self, method: str, message: bytes) -> str:
        """Return the deployment that answers a call. Raises RequestError if none does."""
        size = len(message)
        if size > self._message_bytes:
            raise MessageTooLargeError(f"the message has {size} bytes, and {self._message_bytes} are allowed")
        try:
            request: Any = GetMessageClass(_METHODS[method].input_type).FromString(message)
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
