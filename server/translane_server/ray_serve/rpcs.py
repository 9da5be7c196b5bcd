"""The methods of translane.v1.TranslationService, as Serve's gRPC proxy calls them on a deployment."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from starlette.responses import PlainTextResponse, Response

from translane_server.api.service import SERVICE_NAME
from translane_server.ray_serve.calls import Answer, Call

_log = logging.getLogger(__name__)

TRANSLATE = f"/{SERVICE_NAME}/Translate"
STREAM = f"/{SERVICE_NAME}/TranslateStream"
SCORE = f"/{SERVICE_NAME}/Score"
MODELS = f"/{SERVICE_NAME}/ListModels"


class Rpcs(ABC):
    """A deployment that Serve's gRPC proxy can call.

    Serve passes the details of a status on only with a message. So no method raises: a call that fails is answered with
    an empty message and a status, and the proxy leaves the message out.
    """

    async def __call__(self) -> Response:
        """Answer any request that comes to Serve's HTTP proxy: the service is not there."""
        return PlainTextResponse("This application takes gRPC calls alone.\n", HTTPStatus.NOT_FOUND)

    async def Translate(self, request: Any, grpc_context: Any) -> Answer:  # noqa: N802
        """See the protocol; `grpc_context` is Serve's name for what it passes."""
        return await self._unary(TRANSLATE, request, grpc_context)

    async def Score(self, request: Any, grpc_context: Any) -> Answer:  # noqa: N802
        """See the protocol."""
        return await self._unary(SCORE, request, grpc_context)

    async def ListModels(self, request: Any, grpc_context: Any) -> Answer:  # noqa: N802
        """See the protocol."""
        return await self._unary(MODELS, request, grpc_context)

    async def TranslateStream(self, request: Any, grpc_context: Any) -> AsyncIterator[Answer]:  # noqa: N802
        """See the protocol."""
        try:
            async with aclosing(self.answer_stream(STREAM, Call.of(request, grpc_context))) as answers:
                async for answer in answers:
                    answer.put_on(grpc_context)
                    yield answer
        except Exception:  # noqa: BLE001  a bug, whose details the caller must not see
            _log.exception("%s failed", STREAM)
            bug = Answer.bug()
            bug.put_on(grpc_context)
            yield bug

    @abstractmethod
    async def answer_unary(self, path: str, call: Call) -> Answer:
        """Return the answer of a method with one response.

        Args:
            path: the method's path, such as `TRANSLATE`.
            call: what the caller asks.
        """

    @abstractmethod
    def answer_stream(self, path: str, call: Call) -> AsyncGenerator[Answer, None]:
        """Yield the answers of a method with many responses. Only the last one may have a status that is not OK."""

    async def _unary(self, path: str, request: Any, context: Any) -> Answer:
        try:
            answer = await self.answer_unary(path, Call.of(request, context))
        except Exception:  # noqa: BLE001  a bug, whose details the caller must not see
            _log.exception("%s failed", path)
            answer = Answer.bug()
        answer.put_on(context)
        return answer
