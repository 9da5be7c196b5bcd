"""Calls on their way through Ray Serve: the methods that its gRPC proxy calls on a deployment, and what they answer."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from google.rpc.status_pb2 import Status
from grpc_status import rpc_status
from starlette.responses import PlainTextResponse, Response

from translane_server.api.status import internal, status_of
from translane_server.core.errors import QueueFullError, RequestError, UnavailableError

_log = logging.getLogger(__name__)

# The key of a call's metadata in which `proxy` says how many seconds the call has until its deadline.
REMAINING = "translane-remaining-seconds"

# The method that concerns all deployments.
MODELS = "ListModels"

# How long a refused caller should wait before it tries again [seconds].
RETRY_AFTER = 1.0


class LostError(Exception):
    """The engine that had a call has ended. Serve says INTERNAL without details, and `proxy` asks another engine.

    Ray's own error must not leave a deployment: Serve would take the deployment for the one that has ended.
    """


@dataclass(frozen=True)
class Answer:
    """What a deployment answers: a message, or the status of a call that has failed."""

    message: bytes = b""
    status: Status | None = None

    def told(self, context: Any) -> Answer:
        """Write the status on Serve's picture of the gRPC context, and return this answer."""
        if self.status:
            plain = rpc_status.to_status(self.status)
            context.set_code(plain.code)
            context.set_details(plain.details)
            context.set_trailing_metadata(list(plain.trailing_metadata))
        return self

    def SerializeToString(self) -> bytes:  # noqa: N802  Serve calls it, as protobuf has it
        """Return the message, for Serve's proxy."""
        return self.message


class Ingress(ABC):
    """A deployment with the methods of translane.v1.TranslationService. Serve's gRPC proxy and `Router` call them.

    Serve passes the details of a status on only with a message. So a call that fails is answered with an empty message
    and a status, and `proxy` leaves the message out.
    """

    async def __call__(self) -> Response:
        """Answer any request that comes to Serve's HTTP proxy: the service is not there."""
        return PlainTextResponse("This application takes gRPC calls alone.\n", HTTPStatus.NOT_FOUND)

    # The methods of the protocol. `grpc_context` is Serve's name for its `RayServegRPCContext`.

    async def Translate(self, request: Any, grpc_context: Any) -> Answer:  # noqa: N802
        return await self._only("Translate", request, grpc_context)

    async def Score(self, request: Any, grpc_context: Any) -> Answer:  # noqa: N802
        return await self._only("Score", request, grpc_context)

    async def ListModels(self, request: Any, grpc_context: Any) -> Answer:  # noqa: N802
        return await self._only(MODELS, request, grpc_context)

    async def TranslateStream(self, request: Any, grpc_context: Any) -> AsyncGenerator[Answer, None]:  # noqa: N802
        async with aclosing(self._told("TranslateStream", request, grpc_context)) as answers:
            async for answer in answers:
                yield answer

    async def TranslateDocument(self, request: Any, grpc_context: Any) -> AsyncGenerator[Answer, None]:  # noqa: N802
        async with aclosing(self._told("TranslateDocument", request, grpc_context)) as answers:
            async for answer in answers:
                yield answer

    @abstractmethod
    def answers(self, method: str, message: bytes, context: Any) -> AsyncGenerator[Answer, None]:
        """Yield the answers to a call: one, or those of a stream. Only the last one may have a status.

        Raises:
            RequestError: the call is refused.
            LostError: see there.
        """

    async def _only(self, method: str, request: Any, context: Any) -> Answer:
        (answer,) = [answer async for answer in self._told(method, request, context)]
        return answer

    async def _told(self, method: str, request: Any, context: Any) -> AsyncGenerator[Answer, None]:
        # Serve parses requests where it does not have the methods of `proxy`.
        message = request if isinstance(request, bytes) else request.SerializeToString()
        try:
            async with aclosing(self.answers(method, message, context)) as answers:
                async for answer in answers:
                    yield answer.told(context)
        except LostError:
            raise
        except RequestError as error:
            yield Answer(status=status_of(error)).told(context)
        except Exception:  # noqa: BLE001  a bug, whose details the caller must not see
            _log.exception("%s failed", method)
            yield Answer(status=internal()).told(context)


def queue_full() -> QueueFullError:
    """Return the error of a call for which Serve has no room."""
    return QueueFullError("as many calls wait as Ray Serve takes", RETRY_AFTER)


def no_engine() -> UnavailableError:
    """Return the error of a call for which Serve has no engine."""
    return UnavailableError("no engine takes calls; try again", RETRY_AFTER)
