"""The HTTP port: the calls of the gRPC port as JSON, and a page that translates."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from importlib.resources import files
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from translane.v1 import translation_pb2 as pb
from translane_server.access.certificates import Certificates
from translane_server.api.answering import Answering, Handler
from translane_server.api.call import REQUEST_ID, Call, Method
from translane_server.api.health import HealthService
from translane_server.api.service import SERVICE_NAME, TranslationService
from translane_server.api.status import internal, status_of
from translane_server.core.errors import UnknownMethodError
from translane_server.http.calls import BYTES_OF_JSON, DocumentRpc, Rpc, Rpcs, refusal
from translane_server.http.errors import RefusedError, wrong
from translane_server.http.server import Bounds, HttpServer
from translane_server.models.registry import Registry
from translane_server.observation.metrics import Metrics, ModelMetrics
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.language_id import can_identify

_log = logging.getLogger(__name__)

_METHODS = pb.DESCRIPTOR.services_by_name["TranslationService"].methods_by_name

# What a page of another origin may send and read, and for how long a browser remembers it [seconds].
_SENT = ("authorization", "content-type", "request-timeout", "traceparent", "tracestate", REQUEST_ID)
_READ = ("retry-after", REQUEST_ID)
_REMEMBERED = 7200

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}

_PAGES = {"index.html": "/", "docs.html": "/docs"}

# The page runs its own scripts alone, talks to its own server alone, and is in no frame. A script that makes
# HTML of text fails (https://w3c.github.io/webappsec-csp/, https://w3c.github.io/trusted-types/dist/spec/).
_POLICY = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


def http_port(
    settings: ServerSettings,
    metrics: Metrics,
    answering: Answering,
    service: TranslationService,
    models: Registry,
    health: HealthService,
    connections: int,
    certificates: Certificates | None = None,
) -> HttpServer:
    """Return the port, which listens. The models' pool of tokenizers reads and writes large JSON, too.

    Raises:
        OSError: the server cannot listen on the port.
    """
    assert settings.http_port is not None
    limits = (settings.max_message_bytes, settings.max_request_texts)
    rpcs = Rpcs(answering, lambda: models.pool, *limits, settings.caller_header)
    started = time.monotonic()

    def rpc(name: str, handler: Handler, kind: type[Rpc] = Rpc) -> Rpc:
        described = _METHODS[name]
        streams = described.server_streaming
        form = "server_stream" if streams else "unary"
        method = Method(metrics, form, SERVICE_NAME, name, writes_many=streams, protocol="http")
        return kind(rpcs, method, handler, GetMessageClass(described.input_type))

    async def status(request: pb.ListModelsRequest, call: Call) -> bytes:
        listed = await service.ListModels(request, call)
        report = status_report(listed, metrics, time.monotonic() - started)
        return json.dumps(report).encode()

    documents = rpc("TranslateDocument", service.TranslateDocument, DocumentRpc)

    async def healthz(_request: Request) -> Response:
        state = health.of_server()
        is_ready = state == "SERVING"
        return JSONResponse({"status": state}, HTTPStatus.OK if is_ready else HTTPStatus.SERVICE_UNAVAILABLE)

    origins = Middleware(
        CORSMiddleware,
        allow_origins=settings.http_origins,
        allow_methods=["GET", "POST"],
        allow_headers=_SENT,
        expose_headers=_READ,
        max_age=_REMEMBERED,
    )
    application = Starlette(
        routes=[
            Route("/v1/translate", rpc("Translate", service.Translate), methods=["POST"]),
            Route("/v1/stream", rpc("TranslateStream", service.TranslateStream), methods=["POST"]),
            Route("/v1/documents", documents, methods=["POST"]),
            Route("/v1/score", rpc("Score", service.Score), methods=["POST"]),
            Route("/v1/models", rpc("ListModels", service.ListModels), methods=["GET"]),
            Route("/status.json", rpc("ListModels", status), methods=["GET"]),
            Route("/healthz", healthz),
            *_files(describes=settings.reflection),
        ],
        middleware=[origins] if settings.http_origins else [],
        exception_handlers={HTTPException: _unrouted, Exception: _failed},
    )
    application.router.redirect_slashes = False
    bounds = Bounds(
        connections,
        patience=settings.message_timeout,
        idle=settings.max_connection_idle,
        age=settings.max_connection_age,
        body_bytes=BYTES_OF_JSON * settings.max_message_bytes,
    )
    tls = certificates.ssl_context() if certificates else None
    return HttpServer(application, settings.host, settings.http_port, bounds, tls)


def status_report(listed: pb.ListModelsResponse, metrics: Metrics, uptime: float) -> dict[str, Any]:
    """Return the answer of ListModels in protobuf's JSON, with figures of the server and of each model.

    Those that only grow give rates. `uptime` is the time since the server started [seconds].
    """
    content: dict[str, Any] = json_format.MessageToDict(listed)
    for model in content.setdefault("models", []):
        name = model["name"]
        model["load"] = _load(metrics.models.get(name) or ModelMetrics(name, {}))
    return content | {
        "openCalls": metrics.open_calls(),
        "openCallsLimit": metrics.open_calls_limit,
        "refused": sum(int(sample.value) for family in metrics.rejected.collect() for sample in family.samples),
        "uptimeSeconds": round(uptime, 3),
        "identifiesLanguages": can_identify(),
    }


def _load(metrics: ModelMetrics) -> dict[str, float]:
    """How busy a model is. Limits are 0 while it is not loaded."""
    decoder = metrics.decoder
    return {
        "rowsBusy": decoder.active_rows if decoder else 0,
        "rowsLimit": decoder.rows if decoder else 0,
        "sentencesWaiting": decoder.waiting if decoder else 0,
        "sentencesWaitingLimit": decoder.waiting_limit if decoder else 0,
        "memoryBytes": metrics.memory,
        "requests": metrics.ok.count,
        "requestSeconds": metrics.ok.sum,
        "sentences": metrics.queue_duration_seconds.count,
        "sourceTokens": metrics.source_tokens.value,
        "generatedTokens": metrics.generated_tokens.value,
    }


def _files(*, describes: bool) -> Iterator[Route]:
    """The description of the RPCs, and the files of the page. They are open: all data needs the caller's key."""
    folder = files(__package__)
    for file in folder.joinpath("page").iterdir():
        if (kind := _TYPES.get(PurePath(file.name).suffix)) and (describes or file.name != "docs.html"):
            path, content = _PAGES.get(file.name, f"/page/{file.name}"), file.read_bytes()
            if not describes:
                content = content.replace(b'<a href="docs">API</a> ', b"")
            yield _file(path, content, _POLICY | {"content-type": kind})
    if describes:
        description = folder.joinpath("openapi.json").read_bytes()
        yield _file("/openapi.json", description, {"content-type": "application/json"})


def _file(path: str, body: bytes, headers: Mapping[str, str]) -> Route:
    async def file(_request: Request) -> Response:
        return Response(body, headers=headers)

    return Route(path, file)


# Errors are told by coroutines, because Starlette runs other functions on threads.
async def _unrouted(request: Request, error: Exception) -> Response:
    """Tell that nothing lies at a path, or that the method is wrong there."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allow = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
        problem = f"must be {allow.replace(', ', ' or ')} for this path"
        return refusal(wrong("method", problem, error.status_code, {"allow": allow}))
    shown = quote(request.url.path[:64], safe="/.:-_~")
    return refusal(RefusedError(status_of(UnknownMethodError(f"there is no {shown} here"))))


async def _failed(_request: Request, error: Exception) -> Response:
    """Tell of a bug, whose details the caller must not see."""
    _log.error("an HTTP request failed", exc_info=error)
    return refusal(RefusedError(internal(), headers={"connection": "close"}))
