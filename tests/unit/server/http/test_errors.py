"""Errors over HTTP."""

import json

import grpc
import pytest
from google.protobuf import json_format
from google.rpc import status_pb2

from translane_server.api.status import CODES, internal, status_of
from translane_server.core.errors import (
    FieldViolation,
    InvalidRequestError,
    MessageTimeoutError,
    MessageTooLargeError,
    QueueFullError,
    UnknownMethodError,
)
from translane_server.http.errors import RefusedError


def test_an_error_is_its_status_by_protobufs_mapping():
    error = InvalidRequestError(FieldViolation("texts[3]", "is “wrong”"))
    told = json.loads(RefusedError(status_of(error)).body)
    assert json_format.ParseDict(told, status_pb2.Status()) == status_of(error)
    assert told["details"] == [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "INVALID_FIELD", "domain": "translane"},
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "texts[3]", "description": "is “wrong”"}],
        },
    ]
    assert "“" in RefusedError(status_of(error)).body.decode()


def test_every_code_has_a_status_of_errors():
    for number, _ in (code.value for code in grpc.StatusCode):
        assert 400 <= RefusedError(status_pb2.Status(code=number)).http_status < 600
    assert RefusedError(status_pb2.Status(code=99)).http_status == 500
    assert {RefusedError(status_pb2.Status(code=code.value[0])).http_status for code in CODES.values()} == {
        *(400, 401, 404, 429, 500, 503, 504)
    }


@pytest.mark.parametrize(
    ("error", "status"),
    [(MessageTooLargeError("large"), 413), (MessageTimeoutError("late"), 408), (UnknownMethodError("no"), 404)],
)
def test_some_reasons_have_a_better_status_than_their_codes(error, status):
    assert RefusedError(status_of(error)).http_status == status


def test_headers_say_when_to_try_again_and_how_to_authenticate():
    assert RefusedError(status_of(QueueFullError("full", retry_after=1.2))).headers["retry-after"] == "2"
    assert RefusedError(status_of(QueueFullError("full", retry_after=0.01))).headers["retry-after"] == "1"
    assert RefusedError(status_pb2.Status(code=16)).headers["www-authenticate"] == "Bearer"
    assert RefusedError(internal()).headers == {"content-type": "application/json"}
