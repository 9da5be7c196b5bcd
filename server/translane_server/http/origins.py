"""Which web pages of other origins may call (CORS): https://fetch.spec.whatwg.org/#http-cors-protocol."""

from __future__ import annotations

from collections.abc import Sequence

Headers = list[tuple[bytes, bytes]]

ANY_ORIGIN = "*"

_METHODS = b"GET, POST"
# The headers that a page may send: those of Connect and W3C's trace context, and the key.
_SENT = b"authorization, content-type, connect-protocol-version, connect-timeout-ms, traceparent, tracestate"
_READ = b"retry-after"
_REMEMBERED = b"7200"  # seconds


class Origins:
    """The origins whose pages may call.

    Args:
        origins: such as `https://example.org`; `*` is every origin.
    """

    def __init__(self, origins: Sequence[str]) -> None:
        self._every = ANY_ORIGIN in origins
        self._origins = {origin.encode() for origin in origins}

    def headers(self, origin: bytes | None) -> Headers:
        """Return the headers with which a page of `origin` may read an answer."""
        if not self._origins:
            return []
        vary = [] if self._every else [(b"vary", b"Origin")]
        if origin is None or not (self._every or origin in self._origins):
            return vary
        allowed = ANY_ORIGIN.encode() if self._every else origin
        return [(b"access-control-allow-origin", allowed), (b"access-control-expose-headers", _READ), *vary]

    def preflight(self, origin: bytes | None) -> Headers:
        """Return the headers of the answer to a browser that asks whether a page of `origin` may call."""
        headers = self.headers(origin)
        if not any(name == b"access-control-allow-origin" for name, _ in headers):
            return headers
        return [
            *headers,
            (b"access-control-allow-methods", _METHODS),
            (b"access-control-allow-headers", _SENT),
            (b"access-control-max-age", _REMEMBERED),
        ]
