"""gRPC's context of a call, as far as Ray Serve and its proxy use it."""

from typing import Any

import grpc

from helpers.reliability.failures import parsed


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

    def invocation_metadata(self):
        return self._metadata

    def time_remaining(self):
        return self._remaining

    def peer(self):
        return "ipv4:192.0.2.7:4321"

    def auth_context(self):
        return {}

    def peer_identities(self):
        return None

    def peer_identity_key(self):
        return None

    def code(self):
        return self.status

    def set_code(self, code):
        self.status = code.value[0]

    def details(self):
        return self.text

    def set_details(self, details):
        self.text = details

    def trailing_metadata(self):
        return self.trailers

    def set_trailing_metadata(self, trailers):
        self.trailers = tuple(trailers)

    @property
    def failure(self):
        """What the status says."""
        code = next(code for code in grpc.StatusCode if code.value[0] == self.status)
        return parsed(code, dict(self.trailers).get("grpc-status-details-bin", b""), self.text)
