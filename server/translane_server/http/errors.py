"""Errors over HTTP: a google.rpc.Status as protobuf's JSON, with the status and the headers that HTTP has for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus

from google.rpc import code_pb2, error_details_pb2
from google.rpc.status_pb2 import Status

from translane_server.api.status import status_of
from translane_server.core.errors import FieldViolation, InvalidRequestError, MessageTimeoutError, MessageTooLargeError
from translane_server.http.json_messages import write_json

JSON_TYPE = "application/json"

# By the code (https://github.com/googleapis/googleapis/blob/master/google/rpc/code.proto). Others are the server's own.
_STATUSES: Mapping[int, int] = {
    code_pb2.INVALID_ARGUMENT: HTTPStatus.BAD_REQUEST,
    code_pb2.FAILED_PRECONDITION: HTTPStatus.BAD_REQUEST,
    code_pb2.UNAUTHENTICATED: HTTPStatus.UNAUTHORIZED,
    code_pb2.NOT_FOUND: HTTPStatus.NOT_FOUND,
    code_pb2.UNIMPLEMENTED: HTTPStatus.NOT_FOUND,
    code_pb2.RESOURCE_EXHAUSTED: HTTPStatus.TOO_MANY_REQUESTS,
    code_pb2.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
    code_pb2.DEADLINE_EXCEEDED: HTTPStatus.GATEWAY_TIMEOUT,
}

# Where HTTP has a better status for a reason than for its code.
_STATUSES_OF_REASONS: Mapping[str, int] = {
    MessageTooLargeError.reason: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    MessageTimeoutError.reason: HTTPStatus.REQUEST_TIMEOUT,
}


class RefusedError(Exception):
    """A request gets an error: a status as JSON in the `body`.

    `http_status` is HTTP's status, where there is a better one than that of `status`.
    """

    def __init__(
        self, status: Status, http_status: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(status.message)
        self.http_status = http_status or _STATUSES.get(status.code, HTTPStatus.INTERNAL_SERVER_ERROR)
        self.headers = {"content-type": JSON_TYPE, **(headers or {})}
        self.body = write_json(status)
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        for detail in status.details:
            if detail.Unpack(info):
                self.http_status = _STATUSES_OF_REASONS.get(info.reason, self.http_status)
            elif detail.Unpack(retry):
                self.headers["retry-after"] = str(max(1, math.ceil(retry.retry_delay.ToNanoseconds() / 1e9)))
        if status.code == code_pb2.UNAUTHENTICATED:
            self.headers["www-authenticate"] = "Bearer"


def wrong(field: str, description: str, http_status: int, headers: Mapping[str, str] | None = None) -> RefusedError:
    """Return the refusal of a request whose header, or other part, is wrong."""
    return RefusedError(status_of(InvalidRequestError(FieldViolation(field, description))), http_status, headers)
