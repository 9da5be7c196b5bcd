"""Errors of gRPC as those of Connect."""

import json

import grpc
import pytest
from connectrpc._protocol import ConnectWireError
from connectrpc.code import Code
from google.protobuf.any_pb2 import Any
from google.rpc import status_pb2

from translane_server.api.status import internal, status_of
from translane_server.core.errors import FieldViolation, InvalidRequestError, QueueFullError, RequestError
from translane_server.http.statuses import HTTP_STATUSES, body_of, connect_error, headers_of, http_status_of

ERRORS = [InvalidRequestError(FieldViolation("texts[3]", "is “wrong”")), QueueFullError("full", retry_after=1.2)]


@pytest.mark.parametrize("error", ERRORS)
def test_an_error_of_the_port_has_the_form_of_connects(error: RequestError):
    status = status_of(error)
    wire = ConnectWireError.from_exception(connect_error(status))
    assert json.loads(body_of(status)) == json.loads(wire.to_json_bytes())
    assert http_status_of(status) == wire.to_http_status().code


def test_every_code_of_connect_has_its_status():
    for code in Code:
        assert HTTP_STATUSES[code.value] == ConnectWireError(code, "", []).to_http_status().code
    for number, _ in (code.value for code in grpc.StatusCode):
        assert http_status_of(status_pb2.Status(code=number)) in HTTP_STATUSES.values()
    assert http_status_of(status_pb2.Status(code=99)) == 500


def test_a_detail_is_there_to_read():
    first, second = json.loads(body_of(status_of(ERRORS[0])))["details"]
    assert first["debug"] == {"reason": "INVALID_FIELD", "domain": "translane"}
    assert second["debug"] == {"fieldViolations": [{"field": "texts[3]", "description": "is “wrong”"}]}


def test_a_detail_of_an_unknown_type_has_its_bytes_alone():
    status = status_pb2.Status(code=3, details=[Any(type_url="type.googleapis.com/un.Known", value=b"\x01\x02")])
    assert json.loads(body_of(status))["details"] == [{"type": "un.Known", "value": "AQI"}]
    assert ConnectWireError.from_exception(connect_error(status)).to_dict()["details"][0]["value"] == "AQI"


def test_headers_say_when_to_try_again_and_how_to_authenticate():
    assert headers_of(status_of(QueueFullError("full", retry_after=1.2))) == {"retry-after": "2"}
    assert headers_of(status_of(QueueFullError("full", retry_after=0.01))) == {"retry-after": "1"}
    assert headers_of(status_pb2.Status(code=16)) == {"www-authenticate": "Bearer"}
    assert headers_of(internal()) == {}
