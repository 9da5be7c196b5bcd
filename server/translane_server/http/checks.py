"""What of an HTTP request is checked before its body is received: its content type, and the headers that count."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from translane_server.core.errors import FieldViolation, InvalidRequestError, MessageTooLargeError, RequestError
from translane_server.http.pages import JSON_TYPE

Scope = Mapping[str, Any]

_UNARY_TYPES = (JSON_TYPE, "application/proto")
_STREAM_TYPES = (JSON_TYPE, "application/connect+json", "application/connect+proto")

# The headers that name a compression, and the compressions.
COMPRESSED = (b"content-encoding", b"connect-content-encoding")
_ENCODINGS = (b"identity", b"gzip")

# Largest headers of a call that are read or forwarded, counted as gRPC counts metadata [bytes]. The gRPC port takes
# 16 KiB, with what the HTTP port adds, and refuses more without a reason.
_CALL_HEADER_BYTES = 8 * 1024
_BYTES_OF_A_HEADER = 32

# Longest number of a body's size [digits].
_DIGITS = 18


class RefusedError(Exception):
    """A request is answered with `error`, and with a status of HTTP that fits better than the error's own."""

    def __init__(self, status: HTTPStatus, error: RequestError, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.error = error
        self.headers = dict(headers or {})


def checked_type(scope: Scope, *, streams: bool) -> str:
    """The content type of a call.

    Raises:
        RefusedError: the method does not take it, or the compression is unknown.
    """
    given = (header(scope, b"content-type") or b"").decode("latin-1")
    kind, _, parameters = given.partition(";")
    kind = kind.strip().lower()
    taken = _STREAM_TYPES if streams else _UNARY_TYPES
    charset = parameters.strip().lower().replace('"', "")
    if kind not in taken or charset not in ("", "charset=utf-8"):
        wanted = "application/json" if not streams else "application/json or application/connect+json"
        problem = FieldViolation("content-type", f"must be {wanted}, in UTF-8")
        raise _unsupported(problem, {"accept-post": ", ".join(taken)})
    for name in COMPRESSED:
        if header(scope, name) not in (None, b"", *_ENCODINGS):
            raise _unsupported(FieldViolation(name.decode(), "must be gzip or identity"), {})
    return kind


def checked_headers(scope: Scope, names: set[bytes]) -> list[tuple[str, str]]:
    """The headers of a request that have these names.

    Raises:
        InvalidRequestError: a value is not printable ASCII.
        RefusedError: the headers are too large.
    """
    headers = []
    size = 0
    for name, value in scope["headers"]:
        if name in names:
            size += len(name) + len(value) + _BYTES_OF_A_HEADER
            if size > _CALL_HEADER_BYTES:
                problem = FieldViolation(name.decode(), f"is too large: headers may have {_CALL_HEADER_BYTES} bytes")
                raise RefusedError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, InvalidRequestError(problem))
            if not all(32 <= byte < 127 for byte in value):
                raise InvalidRequestError(FieldViolation(name.decode(), "must be printable ASCII"))
            headers.append((name.decode(), value.decode()))
    return headers


def declared_size(scope: Scope) -> int | None:
    """The size of the body, if the request names it [bytes].

    Raises:
        MessageTooLargeError: the number has too many digits.
    """
    size = header(scope, b"content-length")
    if size is not None and len(size) > _DIGITS:
        raise MessageTooLargeError("the body is too large")
    return int(size) if size else None


def peer_of(scope: Scope) -> str:
    """Return gRPC's name of the other end of a connection (https://github.com/grpc/grpc/blob/master/doc/naming.md)."""
    host, port = scope["client"] or ("", 0)
    if ":" in host:
        return f"ipv6:%5B{quote(host, safe=':')}%5D:{port}"
    return f"ipv4:{host}:{port}"


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of this name; None if there is none."""
    value: bytes | None = next((value for each, value in scope["headers"] if each == name), None)
    return value


def _unsupported(problem: FieldViolation, headers: Mapping[str, str]) -> RefusedError:
    return RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, InvalidRequestError(problem), headers)


def wrong_method(allowed: str) -> RefusedError:
    """The refusal of a method that is none of `allowed`."""
    error = InvalidRequestError(FieldViolation("method", f"must be {allowed.replace(',', ' or')} for this path"))
    return RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, error, {"allow": allowed})


def certificate_name(scope: Scope) -> str:
    """The name of the caller's certificate, percent-encoded: its first alternative name, or its common name.

    Empty if the connection has no such certificate.
    """
    connection = scope.get("state", {}).get("connection")
    certificate = connection.certificate if connection else {}
    for _, name in certificate.get("subjectAltName", ()):
        return quote(name)
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return quote(value)
    return ""
