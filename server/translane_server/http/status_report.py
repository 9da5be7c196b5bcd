"""`GET /status.json`: the models that ListModels lists, and how busy they are."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import grpc
from google.protobuf import json_format

from translane.v1 import translation_pb2 as pb
from translane_server.forwarding.forwarder import Forwarder, Metadata
from translane_server.http.pages import Page
from translane_server.http.statuses import body_of, headers_of, http_status_of, status_of_call
from translane_server.observation.load import ModelLoad, ServerLoad

_LIST_MODELS = "/translane.v1.TranslationService/ListModels"
_TIMEOUT = 5.0  # seconds

# The load of a model that has no metrics yet.
_NO_LOAD = ModelLoad(0, 0, 0, 0, 0, 0, 0.0, 0, 0, 0)


class StatusReport:
    """Makes the report. Who may call ListModels may read it, and everybody else gets the error of ListModels.

    Args:
        forwarder: calls the gRPC service.
        read: returns the load of the server.
        clock: seconds, monotonic.
    """

    def __init__(
        self, forwarder: Forwarder, read: Callable[[], ServerLoad], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._forwarder = forwarder
        self._read = read
        self._clock = clock
        self._started = clock()

    async def page(self, metadata: Metadata) -> Page:
        """Return the report for the caller whom `metadata` names."""
        try:
            answer = await self._forwarder.unary(_LIST_MODELS, b"", metadata, _TIMEOUT)
        except grpc.aio.AioRpcError as error:
            status = status_of_call(error)
            return Page(body_of(status), status=http_status_of(status), headers=headers_of(status))
        listed = pb.ListModelsResponse.FromString(answer)
        return Page(json.dumps(report(listed, self._read(), self._clock() - self._started)).encode())


def report(listed: pb.ListModelsResponse, load: ServerLoad, uptime: float) -> dict[str, Any]:
    """Return the report: the answer of ListModels in protobuf's JSON, with figures of the server and of each model.

    Args:
        listed: the answer of ListModels.
        load: the load of the server.
        uptime: time since the server started [seconds].
    """
    content: dict[str, Any] = json_format.MessageToDict(listed)
    for model in content.setdefault("models", []):
        model["load"] = _named(asdict(load.models.get(model["name"], _NO_LOAD)))
    of_server = {name: value for name, value in vars(load).items() if name != "models"}
    return content | {"uptimeSeconds": round(uptime, 3)} | _named(of_server)


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with names in lowerCamelCase, as all JSON of this port has them."""
    return {_camel_case(name): value for name, value in fields.items()}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
