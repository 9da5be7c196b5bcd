"""The HTTP port's ASGI application: what lies at which path, and what every answer has."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from email.utils import formatdate
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from translane.v1 import translation_pb2 as pb
from translane_server.api.call import REQUEST_ID, request_id_in
from translane_server.api.status import internal
from translane_server.core.errors import UnknownMethodError
from translane_server.http.errors import RefusedError, refused, wrong
from translane_server.observation.load import ModelLoad, ServerLoad

_log = logging.getLogger(__name__)

_INDEX = "index.html"
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

# The page runs its own scripts alone, talks to its own server alone, and is in no frame. A script that makes HTML of
# text fails (https://w3c.github.io/webappsec-csp/, https://w3c.github.io/trusted-types/dist/spec/).
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_SECURITY_HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}

# What a page of another origin may send and read, and for how long a browser remembers it [seconds].
_SENT = ("authorization", "content-type", "request-timeout", "traceparent", "tracestate", REQUEST_ID)
_READ = ("retry-after", REQUEST_ID)
_REMEMBERED = 7200


def application(
    rpcs: Mapping[str, ASGIApp],
    readings: Mapping[str, ASGIApp],
    health: Callable[[], str],
    *,
    origins: Sequence[str] = (),
    describes: bool = True,
) -> ASGIApp:
    """Return the application.

    Args:
        rpcs: what answers a POST, by its path.
        readings: what answers a GET, by its path.
        health: returns the health of the server, as gRPC's health service names it.
        origins: whose pages may call (https://fetch.spec.whatwg.org/#http-cors-protocol), such as
            `https://example.org`; `*` is every origin.
        describes: whether there is a description of the RPCs.
    """

    async def healthz(_request: Request) -> Response:
        state = health()
        ready = state == "SERVING"
        return JSONResponse({"status": state}, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)

    routes: list[BaseRoute] = [Route(path, answer, methods=["POST"]) for path, answer in rpcs.items()]
    routes += [Route(path, answer, methods=["GET"]) for path, answer in readings.items()]
    routes.append(Route("/healthz", healthz))
    routes += [Route(path, _always(*page)) for path, page in _pages(describes=describes).items()]
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=["GET", "POST"],
        allow_headers=_SENT,
        expose_headers=_READ,
        max_age=_REMEMBERED,
    )
    made = Starlette(
        routes=routes,
        middleware=[cors] if origins else [],
        exception_handlers={HTTPException: _unrouted, Exception: _failed},
    )
    made.router.redirect_slashes = False
    return _EveryAnswer(made)


class _EveryAnswer:
    """Adds the headers that all answers have."""

    def __init__(self, application: ASGIApp) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = scope["state"]["connection"]
        request_id = request_id_in(scope["headers"])

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message["headers"]
                headers += [
                    (b"date", formatdate(usegmt=True).encode()),
                    (b"cache-control", b"no-store"),
                    (b"x-content-type-options", b"nosniff"),
                ]
                if request_id:
                    headers.append((REQUEST_ID.encode(), request_id.encode()))
                if connection.is_ending:
                    headers.append((b"connection", b"close"))
            await send(message)

        await self._application(scope, receive, sent)


def status_page(load: Callable[[], ServerLoad], clock: Callable[[], float] = time.monotonic) -> Callable[[Any], bytes]:
    """Return what makes the page `/status.json` of an answer of ListModels: the models, and how busy they are.

    Args:
        load: returns the load of the server.
        clock: monotonic clock [seconds].
    """
    started = clock()

    def shown(listed: pb.ListModelsResponse) -> bytes:
        return json.dumps(status_report(listed, load(), clock() - started)).encode()

    return shown


def status_report(listed: pb.ListModelsResponse, load: ServerLoad, uptime: float) -> dict[str, Any]:
    """Return the answer of ListModels in protobuf's JSON, with figures of the server and of each model.

    Args:
        listed: the answer of ListModels.
        load: the load of the server.
        uptime: time since the server started [seconds].
    """
    content: dict[str, Any] = json_format.MessageToDict(listed)
    for model in content.setdefault("models", []):
        model["load"] = _named(asdict(load.models.get(model["name"], ModelLoad())))
    of_server = {name: value for name, value in vars(load).items() if name != "models"}
    return content | {"uptimeSeconds": round(uptime, 3)} | _named(of_server)


def _named(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with names in lowerCamelCase, as all JSON of this port has them."""
    return {_camel_case(name): value for name, value in fields.items()}


def _camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def _pages(*, describes: bool) -> dict[str, tuple[bytes, str, Mapping[str, str]]]:
    """The files of the status page, which are open: all data needs the caller's key; and the description of the RPCs.

    Returns:
        Content, type and headers by the path. The files are read once.
    """
    pages: dict[str, tuple[bytes, str, Mapping[str, str]]] = {}
    for file in files(__package__).joinpath("page").iterdir():
        if kind := _TYPES.get(PurePath(file.name).suffix):
            path = "/" if file.name == _INDEX else f"/page/{file.name}"
            pages[path] = file.read_bytes(), kind, _SECURITY_HEADERS
    if describes:
        description = files(__package__).joinpath("openapi.json").read_bytes()
        pages["/openapi.json"] = description, "application/json", {}
    return pages


def _always(body: bytes, kind: str, headers: Mapping[str, str]) -> Callable[[Request], Any]:
    async def page(_request: Request) -> Response:
        return Response(body, headers={**headers, "content-type": kind})

    return page


def _unrouted(request: Request, error: Exception) -> Response:
    """Tell that nothing lies at a path, or that the method is wrong there."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allow = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        problem = f"must be {allow.replace(', ', ' or ')} for this path"
        return _told(wrong("method", problem, error.status_code, {"allow": allow}))
    shown = quote(request.url.path[:64], safe="/.:-_~")
    return _told(refused(UnknownMethodError(f"there is no {shown} here")))


def _failed(_request: Request, error: Exception) -> Response:
    """Tell of a bug, whose details the caller must not see."""
    _log.error("an HTTP request failed", exc_info=error)
    return _told(RefusedError(internal(), headers={"connection": "close"}))


def _told(error: RefusedError) -> Response:
    return Response(error.body, error.http_status, error.headers)
