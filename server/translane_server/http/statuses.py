"""Turns a google.rpc.Status into Connect's error: https://connectrpc.com/docs/protocol/#error-end-stream."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import grpc
from connectrpc.code import Code
from connectrpc.errors import ConnectError, ErrorDetail
from google.protobuf import any_pb2, json_format
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status
from protobuf.wkt import Any as ConnectAny
from protobuf.wkt import Struct

# HTTP's statuses for Connect's codes: https://connectrpc.com/docs/protocol/#http-to-error-code.
HTTP_STATUSES: Mapping[str, int] = {
    "canceled": 499,
    "unknown": 500,
    "invalid_argument": 400,
    "deadline_exceeded": 504,
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "resource_exhausted": 429,
    "failed_precondition": 400,
    "aborted": 409,
    "out_of_range": 400,
    "unimplemented": 501,
    "internal": 500,
    "unavailable": 503,
    "data_loss": 500,
    "unauthenticated": 401,
}

_TYPES = "type.googleapis.com/"


class ReadableDetail(ErrorDetail):
    """A detail of an error, which its JSON has both in binary and as an object to read.

    connectrpc knows the types of its own protobuf library alone. So the object is given to it as a Struct.
    """

    def __init__(self, detail: any_pb2.Any) -> None:
        super().__init__(ConnectAny(type_url=detail.type_url, value=detail.value))
        shown = _shown(detail)
        self._shown = Struct.from_json(json.dumps(shown)) if shown is not None else None

    def value(self, *_: Any) -> Any:
        return self._shown


def connect_error(status: status_pb2.Status) -> ConnectError:
    """Return the error that tells a caller of `status`."""
    return ConnectError(Code(_name(status)), status.message, [ReadableDetail(detail) for detail in status.details])


def status_of_call(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    """Return the status with which a call of the gRPC service failed."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # has what it needs
    if status is not None:
        return status
    number: int = error.code().value[0]
    return status_pb2.Status(code=number, message=error.details() or "")


def http_status_of(status: status_pb2.Status) -> int:
    """Return HTTP's status for `status`."""
    return HTTP_STATUSES[_name(status)]


def body_of(status: status_pb2.Status) -> bytes:
    """Return the JSON of an error, as connectrpc writes it."""
    error: dict[str, Any] = {"code": _name(status), "message": status.message}
    if status.details:
        error["details"] = [_detail(detail) for detail in status.details]
    return json.dumps(error, ensure_ascii=False).encode()


def headers_of(status: status_pb2.Status) -> dict[str, str]:
    """Return the headers of an answer that tells of `status`: when to try again, and how to authenticate."""
    headers = {}
    for detail in status.details:
        retry = error_details_pb2.RetryInfo()
        if detail.Unpack(retry):
            seconds = retry.retry_delay.ToNanoseconds() / 1e9
            headers["retry-after"] = str(max(1, math.ceil(seconds)))
    if status.code == code_pb2.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    return headers


def _name(status: status_pb2.Status) -> str:
    """Connect's name of a code."""
    try:
        name: str = code_pb2.Code.Name(status.code).lower()
    except ValueError:
        return "unknown"
    return {"cancelled": "canceled", "ok": "unknown"}.get(name, name)


def _detail(detail: any_pb2.Any) -> dict[str, Any]:
    binary = base64.b64encode(detail.value).decode().rstrip("=")
    written = {"type": detail.type_url.removeprefix(_TYPES), "value": binary}
    shown = _shown(detail)
    return written | ({"debug": shown} if shown is not None else {})


def _shown(detail: any_pb2.Any) -> dict[str, Any] | None:
    """A detail as an object to read; None if its type is unknown."""
    try:
        shown: dict[str, Any] = json_format.MessageToDict(detail)
    except (TypeError, ValueError):
        return None
    del shown["@type"]
    return shown
