"""A call on its way through Ray Serve: what the caller asks, and what an engine answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_status import rpc_status

from translane_server.api.status import internal, status_of
from translane_server.core.errors import QueueFullError, RequestError, UnavailableError

# The key in which Serve's proxy says how many seconds a call has until its deadline. A caller who writes the key itself
# can only make its own time shorter: gRPC ends the call at its deadline in any case.
REMAINING = "translane-remaining-seconds"

# How often a call is sent to an engine. A translation has no effects and is always the same, so a call whose engine has
# ended can be sent to another one.
ATTEMPTS = 3

# How long a refused caller should wait before it tries again [seconds].
RETRY_AFTER = 1.0

# Keys of a call's metadata that end at Serve or at gRPC.
_NOT_FORWARDED = frozenset(
    {REMAINING, "application", "request_id", "multiplexed_model_id", "session_id", "user-agent", "content-type", "te"}
)
_NOT_FORWARDED_PREFIXES = ("grpc-", ":")

Metadata = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Call:
    """What a caller asks.

    Attributes:
        message: the request in binary form.
        metadata: the caller's metadata, as far as the service may read it.
        peer: gRPC's name of the caller's end of its connection with the proxy.
        seconds: time until the caller's deadline; None without one.
    """

    message: bytes
    metadata: Metadata
    peer: str
    seconds: float | None

    @classmethod
    def of(cls, request: bytes | Message, context: Any) -> Call:
        """Return the call that Serve's proxy hands to a deployment.

        Args:
            request: the request, in binary form if the proxy has the methods of `proxy`.
            context: Serve's picture of the gRPC context, a `RayServegRPCContext`.
        """
        metadata, seconds = [], None
        for key, value in context.invocation_metadata():
            if key == REMAINING:
                seconds = _seconds(value)
            elif key not in _NOT_FORWARDED and not key.startswith(_NOT_FORWARDED_PREFIXES):
                metadata.append((key, value))
        message = request if isinstance(request, bytes) else request.SerializeToString()
        return cls(message, tuple(metadata), context.peer(), seconds)


@dataclass(frozen=True)
class Answer:
    """What an engine answers: a message, or a status that is not OK.

    Attributes:
        message: the response in binary form; empty if the call has failed.
        code: the status.
        details: what the status says to people.
        trailers: trailing metadata, among it the details of the status in binary form.
    """

    message: bytes = b""
    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    trailers: Metadata = ()

    @classmethod
    def failed(cls, error: RequestError) -> Answer:
        """Return the answer that tells a caller of `error`."""
        return cls.of(status_of(error))

    @classmethod
    def bug(cls) -> Answer:
        """Return the answer that tells a caller of a bug, without its details."""
        return cls.of(internal())

    @classmethod
    def of(cls, status: status_pb2.Status) -> Answer:
        """Return the answer that tells a caller of `status`."""
        plain = rpc_status.to_status(status)
        return cls(b"", plain.code, plain.details, tuple(plain.trailing_metadata or ()))

    def put_on(self, context: Any) -> None:
        """Write the status, unless it is OK, on Serve's picture of the gRPC context."""
        if self.code is not grpc.StatusCode.OK:
            context.set_code(self.code)
            context.set_details(self.details)
            context.set_trailing_metadata(list(self.trailers))

    def SerializeToString(self) -> bytes:  # noqa: N802  Serve calls it, as protobuf has it
        """Return the message, for Serve's proxy."""
        return self.message


def queue_full() -> QueueFullError:
    """Return the error of a call for which Serve has no room."""
    return QueueFullError("as many calls wait as Ray Serve takes", RETRY_AFTER)


def engines_lost() -> UnavailableError:
    """Return the error of a call that was lost with its engine at each attempt."""
    return UnavailableError("each engine that had the call has ended; try again", RETRY_AFTER)


def _seconds(value: Any) -> float | None:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
