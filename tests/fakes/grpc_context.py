"""gRPC's context of a call, as far as Ray Serve and its proxy use it."""

from collections.abc import Iterable
from typing import Any

import grpc

from helpers.failures import Failure, parsed


class GrpcContext:
    """A context without a connection. Its code is a number, as that of gRPC's own is.

    Args:
        metadata: what the caller sent.
        remaining: time until the caller's deadline; None without one.
    """

    def __init__(self, *metadata: tuple[str, Any], remaining: float | None = None) -> None:
        self._metadata = metadata
        self._remaining = remaining
        self.status = 0
        self.text = ""
        self.trailers: tuple[tuple[str, Any], ...] = ()

    def invocation_metadata(self) -> tuple[tuple[str, Any], ...]:
        return self._metadata

    def time_remaining(self) -> float | None:
        return self._remaining

    def peer(self) -> str:
        return "ipv4:192.0.2.7:4321"

    def auth_context(self) -> dict[str, Any]:
        return {}

    def peer_identities(self) -> None:
        pass

    def peer_identity_key(self) -> None:
        pass

    def code(self) -> int:
        return self.status

    def set_code(self, code: grpc.StatusCode) -> None:
        self.status = code.value[0]

    def details(self) -> str:
        return self.text

    def set_details(self, details: str) -> None:
        self.text = details

    def trailing_metadata(self) -> tuple[tuple[str, Any], ...]:
        return self.trailers

    def set_trailing_metadata(self, trailers: Iterable[tuple[str, Any]]) -> None:
        self.trailers = tuple(trailers)

    @property
    def failure(self) -> Failure:
        """What the status says."""
        code = next(code for code in grpc.StatusCode if code.value[0] == self.status)
        return parsed(code, dict(self.trailers).get("grpc-status-details-bin", b""), self.text)
