"""Errors over HTTP: a google.rpc.Status as protobuf's JSON, with the status and the headers that HTTP has for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format
from google.rpc import code_pb2, error_details_pb2
from google.rpc.status_pb2 import Status

from translane_server.api.status import status_of
from translane_server.core.errors import FieldViolation, InvalidRequestError, RequestError

JSON_TYPE = "application/json"

# By the code (https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto).
_STATUSES: Mapping[int, int] = {
    code_pb2.CANCELLED: 499,
    code_pb2.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    code_pb2.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
    code_pb2.NOT_FOUND: HTTPStatus.NOT_FOUND,
    code_pb2.ALREADY_EXISTS: HTTPStatus.CONFLICT,
    code_pb2.PERMISSION_DENIED: HTTPStatus.FORBIDDEN,
    code_pb2.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    code_pb2.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    code_pb2.ABORTED: HTTPStatus.CONFLICT,
    code_pb2.OUT_OF_RANGE: HTTPStatus.BAD_REQUEST,
    code_pb2.UNIMPLEMENTED: HTTPStatus.NOT_IMPLEMENTED,
    code_pb2.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    code_pb2.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
}

# Where HTTP has a better status for a reason than for its code.
_STATUSES_OF_REASONS: Mapping[str, int] = {
    "METHOD_NOT_FOUND": HTTPStatus.NOT_FOUND,
    "MESSAGE_TOO_LARGE": HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    "MESSAGE_TIMEOUT": HTTPStatus.REQUEST_TIMEOUT,
}


class RefusedError(Exception):
    """A request gets an error.

    Attributes:
        status: what the caller is told.
        http_status: HTTP's status.
        headers: HTTP's headers.
    """

    def __init__(
        self, status: Status, http_status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status.message)
        self.status = status
        self.http_status = http_status or _http_status_of(status)
        self.headers = {"content-type": JSON_TYPE, **_headers_of(status), **(headers or {})}

    @property
    def body(self) -> bytes:
        """The status as JSON."""
        return json.dumps(json_of(self.status), ensure_ascii=False).encode()


def refused(
    error: RequestError, http_status: int | None = None, headers: Mapping[str, str] | None = None
) -> RefusedError:
    """Return the refusal that tells of `error`, with HTTP's status for it, or with a better one."""
    return RefusedError(status_of(error), http_status, headers)


def wrong(field: str, description: str, http_status: int, headers: Mapping[str, str] | None = None) -> RefusedError:
    """Return the refusal of a request whose header, or other part, is wrong."""
    return refused(InvalidRequestError(FieldViolation(field, description)), http_status, headers)


def json_of(status: Status) -> dict[str, Any]:
    """Return `status` by protobuf's mapping, where each detail names its type as `@type`."""
    tree: dict[str, Any] = json_format.MessageToDict(status)
    return tree


def _http_status_of(status: Status) -> int:
    info = error_details_pb2.ErrorInfo()
    for detail in status.details:
        if detail.Unpack(info) and info.reason in _STATUSES_OF_REASONS:
            return _STATUSES_OF_REASONS[info.reason]
    return _STATUSES.get(status.code, HTTPStatus.INTERNAL_SERVER_ERROR)


def _headers_of(status: Status) -> dict[str, str]:
    """When to try again, and how to authenticate."""
    headers = {}
    retry = error_details_pb2.RetryInfo()
    for detail in status.details:
        if detail.Unpack(retry):
            headers["retry-after"] = str(max(1, math.ceil(retry.retry_delay.ToNanoseconds() / 1e9)))
    if status.code == code_pb2.UNAUTHENTICATED:
        headers["www-authenticate"] = "Bearer"
    return headers
