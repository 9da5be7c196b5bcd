"""What the HTTP port gives to GET: the server's health, the description of the RPCs, and more that it is given."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.resources import files

import grpc
from grpc_health.v1 import health_pb2

from translane_server.forwarding.forwarder import Forwarder, Metadata

JSON_TYPE = "application/json"

_HEALTH = "/grpc.health.v1.Health/Check"
_HEALTH_TIMEOUT = 5.0  # seconds


@dataclass(frozen=True)
class Page:
    """An answer to GET."""

    body: bytes
    content_type: str = JSON_TYPE
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


MakePage = Callable[[Metadata], Awaitable[Page]]
"""Makes a page for the caller whom the metadata names."""

# What makes each page, by its path.
Pages = Mapping[str, MakePage]


def made_pages(forwarder: Forwarder, more: Pages, *, describes: bool) -> Pages:
    """Return the pages of the port.

    Args:
        forwarder: calls the gRPC service.
        more: further pages.
        describes: whether there is a description of the RPCs.
    """

    async def health(_metadata: Metadata) -> Page:
        state = await _health(forwarder)
        ready = state == "SERVING"
        body = json.dumps({"status": state}).encode()
        return Page(body, status=HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    pages: dict[str, MakePage] = {"/healthz": health, **more}
    if describes:
        document = Page(files(__package__).joinpath("openapi.json").read_bytes())

        async def description(_metadata: Metadata) -> Page:
            return document

        pages["/openapi.json"] = description
    return pages


async def _health(forwarder: Forwarder) -> str:
    """The health of the whole server, as gRPC's health service names it."""
    try:
        answer = await forwarder.unary(_HEALTH, b"", (), _HEALTH_TIMEOUT)
    except grpc.aio.AioRpcError:
        return "UNKNOWN"
    status = health_pb2.HealthCheckResponse.FromString(answer).status
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))
