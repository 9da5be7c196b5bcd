"""Turns a gRPC error into a TranslaneError."""

from __future__ import annotations

import re
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from translane.errors import TranslaneError, error_of
from translane_client.connection import Connection

DOMAIN = "translane"

# A part of gRPC's own description of what TLS refuses → the cause that the message names. It stays so until somebody
# changes a file or a setting.
_TLS_CAUSES = {
    "certificate has expired": "its TLS certificate has expired",
    "certificate is not yet valid": "its TLS certificate is not valid yet",
    "hostname verification": "its TLS certificate is for another name",
    "certificate_verify_failed": "its TLS certificate is not signed by an authority that the client trusts",
    "wrong_version_number": "it does not speak TLS",
    "security handshaker": "the certificates or the key cannot be used",
    "handshake failed": "the TLS handshake failed",
    "ssl_error": "the TLS handshake failed",
}

# The same for lost and refused connections; the first part that fits counts.
_CAUSES = {
    "connection refused": "connection refused",
    "tcp handshaker shutdown": "the connection timed out",
    "dns resolution failed": "the host name is not known",
    "domain name not found": "the host name is not known",
    **_TLS_CAUSES,
    "ping timeout": "it gives no sign of life",
    "keepalive": "it gives no sign of life",
    "before receiving settings": "nobody answers there",
    "timed out": "the connection timed out",
    "timeout": "the connection timed out",
    "no route to host": "no route to the host",
    "network is unreachable": "the network is unreachable",
    "no such file or directory": "there is no such socket",
    "http/2": "it does not speak gRPC",
    "socket closed": "the connection was lost",
    "connection reset": "the connection was lost",
    "recvmsg": "the connection was lost",
    "broken pipe": "the connection was lost",
    "cancelling all calls": "the connection was lost",
    "goaway": "the connection was lost",
}


# What gRPC says where a proxy ends a call in the middle of an answer, because the server behind the proxy is gone.
_BROKEN_OFF = re.compile(r"received rst_stream with error code [02]\b", re.IGNORECASE)


def exception_from(error: grpc.RpcError, *, connection: Connection, offset: int = 0) -> TranslaneError:
    """The TranslaneError for `error`.

    A call that the server cancelled without an ErrorInfo becomes Unavailable, and so does a call that a proxy breaks
    off. The caller has to know whether the client itself cancelled the call.

    `connection` is for messages that no server wrote. `offset` is the index of the request's first item in the caller's
    list, in which the message counts "texts[i]" and "inputs[i]".
    """
    call: Any = error  # gRPC's errors are calls as well, though their types do not say so
    code: grpc.StatusCode = call.code() or grpc.StatusCode.UNKNOWN
    info = error_details_pb2.ErrorInfo()
    bad_request = error_details_pb2.BadRequest()
    retry = error_details_pb2.RetryInfo()
    for detail in _details(call):
        for known in (info, bad_request, retry):
            detail.Unpack(known)

    ours = info.domain == DOMAIN
    retry_after = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9 if retry.HasField("retry_delay") else None
    if code is grpc.StatusCode.CANCELLED and not ours:  # not the service's own error: the server is shutting down
        code = grpc.StatusCode.UNAVAILABLE
        message = "the server cancelled the call; it may be shutting down"
    elif code is grpc.StatusCode.INTERNAL and not ours and _BROKEN_OFF.search(call.details() or ""):
        code = grpc.StatusCode.UNAVAILABLE
        message = f"{connection.name} broke off its answer; a server behind it may be gone"
    else:
        message = call.details() if ours and call.details() else _message(code, call.details() or "", connection)
    return error_of(
        code,
        message,
        reason=info.reason if ours else "",
        violations=[(each.field, each.description) for each in bad_request.field_violations],
        retry_after=retry_after,
        offset=offset if ours else 0,
    )


def is_hopeless(error: grpc.RpcError) -> bool:
    """Whether another attempt would fail alike.

    It would take as long for nothing where no connection came about in time, as at an address where nobody answers. It
    would be refused again where TLS refuses a certificate.
    """
    call: Any = error
    details = (call.details() or "").lower()
    timed_out = "timed out" in details or "tcp handshaker shutdown" in details
    refused = any(part in details for part in _TLS_CAUSES)
    return call.code() is grpc.StatusCode.UNAVAILABLE and _is_about_connecting(details) and (timed_out or refused)


def _is_about_connecting(details: str) -> bool:
    """Whether no connection was made; the second wording is that of calls that are spread over servers."""
    return "failed to connect" in details or "connections to all backends failing" in details


def _details(call: Any) -> list[Any]:
    """The google.protobuf.Any details of a sound google.rpc.Status in the trailing metadata; else none."""
    try:
        status: status_pb2.Status | None = rpc_status.from_call(call)
    except (ValueError, DecodeError):  # the status contradicts the call's, or is no status at all
        return []
    return list(status.details) if status else []


def _message(code: grpc.StatusCode, details: str, connection: Connection) -> str:
    """A sentence for an error that did not come from Translane, but from gRPC or a proxy."""
    if code is grpc.StatusCode.UNAVAILABLE:
        return f"cannot reach {connection.name}: {_cause(details, connection)}"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"no answer from {connection.name} before the deadline"
    return f"{connection.name} answered {code.name}" + (f": {details}" if details else "")


def _cause(details: str, connection: Connection) -> str:
    lowered = details.lower()
    if _is_about_connecting(lowered) and "socket closed" in lowered:  # all that gRPC says where only one side has TLS
        what = "a certificate of the client" if connection.is_secure else "TLS"
        return f"it closed the connection at once; does it want {what}?"
    return next((cause for part, cause in _CAUSES.items() if part in lowered), details or "no reason given")
