"""Calls that the HTTP port forwards: whose they are.

They come over a unix socket that the server made for them, and show a secret that this process alone knows. What any
other call says of its caller is ignored.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import grpc

from translane_server.rpc.callers import caller_of_peer

Context = grpc.aio.ServicerContext[Any, Any]
PeerOf = Callable[[Context], str]

# The metadata of a forwarded call. The name is percent-encoded.
SECRET = "translane-forwarded-secret"  # noqa: S105  the key, and not the secret
PEER = "translane-forwarded-peer"
CERTIFICATE_NAME = "translane-forwarded-certificate-name"

# Longest name of a caller that a certificate gives [characters].
_LONGEST_NAME = 100


def peer_of_connection(context: Context) -> str:
    """Return gRPC's name of the other end of a call's connection."""
    return context.peer()


class Forwarding:
    """Tells whose a call is that may be forwarded.

    Args:
        secret: what a forwarded call shows.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    def peer(self, context: Context) -> str:
        """Return gRPC's name of the other end: of the HTTP connection if the call is forwarded."""
        return self._said(context).get(PEER) or context.peer()

    def address(self, context: Context) -> str:
        """Name a caller by its address."""
        return caller_of_peer(self.peer(context))

    def certificate_or_address(self, context: Context) -> str:
        """Name a caller by the certificate of its HTTP connection, or else by its address."""
        said = self._said(context)
        return unquote(said.get(CERTIFICATE_NAME, ""))[:_LONGEST_NAME] or caller_of_peer(
            said.get(PEER) or context.peer()
        )

    def _said(self, context: Context) -> dict[str, str]:
        """The metadata of a forwarded call; nothing if the call is not forwarded."""
        if not context.peer().startswith("unix:"):
            return {}
        said = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        return said if hmac.compare_digest(said.get(SECRET, "").encode(), self._secret) else {}
