"""The services with which an operator changes models and the log of a running server; and their port."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import TypeVar

from translane.conversions import model_message
from translane.v1 import log_pb2
from translane.v1 import models_pb2 as pb
from translane.v1.log_pb2_grpc import LogServiceServicer, add_LogServiceServicer_to_server
from translane.v1.models_pb2_grpc import ModelServiceServicer, add_ModelServiceServicer_to_server
from translane_server.api.answering import Answering
from translane_server.api.call import Call
from translane_server.api.grpc_port import GrpcPort, enable_reflection
from translane_server.core.errors import FieldViolation, InvalidRequestError, ModelRefusedError, StartupError
from translane_server.models.registry import Registry
from translane_server.observation.logs import Level, change_level
from translane_server.observation.metrics import Metrics
from translane_server.observation.tracing import Tracer
from translane_server.settings.server_settings import ServerSettings

_SERVICE_NAMES = tuple(
    service.full_name for file in (pb, log_pb2) for service in file.DESCRIPTOR.services_by_name.values()
)
_LEVELS: Mapping[int, Level] = {
    log_pb2.LOG_LEVEL_DEBUG: "debug",
    log_pb2.LOG_LEVEL_INFO: "info",
    log_pb2.LOG_LEVEL_WARNING: "warning",
    log_pb2.LOG_LEVEL_ERROR: "error",
}

# The port listens on this address alone: whoever can log in to the machine may use it, and nobody else.
ADMIN_HOST = "127.0.0.1"

_MAX_MESSAGE_BYTES = 4096
_MAX_STREAMS = 16  # calls at once on a connection
_LONGEST_LOAD = 3600.0  # longest time of a call [seconds]

_Changed = TypeVar("_Changed")


class ModelService(ModelServiceServicer):
    """Answers the RPCs about models."""

    def __init__(self, models: Registry) -> None:
        self._models = models

    async def LoadModel(self, request: pb.LoadModelRequest, _call: Call) -> pb.LoadModelResponse:  # noqa: N802
        model = await _or_refused(self._models.load(request.name))
        return pb.LoadModelResponse(model=model_message(model.info(self._models.stored)))

    async def UnloadModel(self, request: pb.UnloadModelRequest, _call: Call) -> pb.UnloadModelResponse:  # noqa: N802
        model = await self._models.unload(request.name)
        return pb.UnloadModelResponse(model=model_message(model.info(self._models.stored)))

    async def ReloadModel(self, request: pb.ReloadModelRequest, _call: Call) -> pb.ReloadModelResponse:  # noqa: N802
        model, changed = await _or_refused(self._models.reload(request.name, request.version))
        return pb.ReloadModelResponse(model=model_message(model.info(self._models.stored)), changed=changed)


class LogService(LogServiceServicer):
    """Answers the RPC about the log."""

    async def SetLogLevel(self, request: log_pb2.SetLogLevelRequest, _call: Call) -> log_pb2.SetLogLevelResponse:  # noqa: N802
        if (level := _LEVELS.get(request.level)) is None:
            raise InvalidRequestError(FieldViolation("level", "is needed, such as LOG_LEVEL_DEBUG"))
        return log_pb2.SetLogLevelResponse(before=f"LOG_LEVEL_{change_level(level)}")


def admin_port(models: Registry, metrics: Metrics, *, reflects: bool, tracer: Tracer | None = None) -> GrpcPort:
    """Return the port of `ModelService` and `LogService`, for `ADMIN_HOST` alone."""
    options = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
    ]
    limits = ServerSettings.model_construct(
        max_calls=_MAX_STREAMS, max_message_bytes=_MAX_MESSAGE_BYTES, request_timeout=_LONGEST_LOAD
    )
    port = GrpcPort(metrics, Answering(limits, tracer=tracer), options)
    add_ModelServiceServicer_to_server(ModelService(models), port)  # type: ignore[no-untyped-call]
    add_LogServiceServicer_to_server(LogService(), port)  # type: ignore[no-untyped-call]
    if reflects:
        enable_reflection(_SERVICE_NAMES, port)
    return port


async def _or_refused(change: Awaitable[_Changed]) -> _Changed:
    """Wait for a change of a model. Whoever asked for it is told why it cannot be loaded."""
    try:
        return await change
    except StartupError as error:
        raise ModelRefusedError(str(error)) from None
