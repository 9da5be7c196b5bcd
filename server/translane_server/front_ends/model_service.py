"""ModelService of the parent: each change is made in every front end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import grpc

from translane.v1 import models_pb2 as pb
from translane.v1.models_pb2_grpc import ModelServiceServicer
from translane_server.errors import UnavailableError, starting
from translane_server.front_ends.front_end_connection import FrontEndGoneError
from translane_server.front_ends.keeper import Keeper
from translane_server.front_ends.messages import Change, Refusal

Context = grpc.aio.ServicerContext[Any, Any]
_Response = TypeVar("_Response", pb.LoadModelResponse, pb.UnloadModelResponse, pb.ReloadModelResponse)

# Suggested delay before another try, while a front end starts again [seconds].
_RETRY_AFTER = 1.0


class ModelServiceOfAll(ModelServiceServicer):
    """Makes each change in one front end after the other, so that the others serve meanwhile.

    The first front end that refuses gives the answer. What the front ends before it have changed stays so. A front end
    that is not started any more misses the changes, because it would stop all of them for good.

    Args:
        front_ends: the front ends.
    """

    def __init__(self, front_ends: Sequence[Keeper]) -> None:
        self._front_ends = front_ends

    async def LoadModel(self, request: pb.LoadModelRequest, context: Context) -> pb.LoadModelResponse:  # noqa: ARG002, N802
        return (await self._changed("LoadModel", request.SerializeToString(), pb.LoadModelResponse))[-1]

    async def UnloadModel(self, request: pb.UnloadModelRequest, context: Context) -> pb.UnloadModelResponse:  # noqa: ARG002, N802
        return (await self._changed("UnloadModel", request.SerializeToString(), pb.UnloadModelResponse))[-1]

    async def ReloadModel(self, request: pb.ReloadModelRequest, context: Context) -> pb.ReloadModelResponse:  # noqa: ARG002, N802
        responses = await self._changed("ReloadModel", request.SerializeToString(), pb.ReloadModelResponse)
        return pb.ReloadModelResponse(model=responses[-1].model, changed=any(each.changed for each in responses))

    async def _changed(
        self, method: Literal["LoadModel", "UnloadModel", "ReloadModel"], request: bytes, response: type[_Response]
    ) -> list[_Response]:
        """Return the response of each front end.

        Raises:
            RequestError: a front end refuses the change; the message names it.
        """
        responses = []
        for front_end in self._front_ends:
            if front_end.is_given_up:
                continue
            try:
                answer = await front_end.answer(Change(method, request))
            except FrontEndGoneError:
                if front_end.is_given_up:  # since it was asked
                    continue
                raise UnavailableError(f"front end {front_end.number} is starting", _RETRY_AFTER) from None
            if isinstance(answer, Refusal):
                more = () if answer.retry_after is None else (answer.retry_after,)
                raise answer.kind(f"front end {front_end.number}: {answer.message}", *more)
            responses.append(response.FromString(answer))
        if not responses:
            raise starting()
        return responses
