"""Calls that this process forwards, as the HTTP port does: whose they are.

They come over a unix socket that the server made for them, and show a secret that this process alone knows. What any
other call says of its caller is ignored.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import grpc

from translane_server.api.callers import CallerOf, caller_of_peer

Context = grpc.aio.ServicerContext[Any, Any]
PeerOf = Callable[[Context], str]

# The metadata of a forwarded call. The name is percent-encoded.
SECRET = "translane-forwarded-secret"  # noqa: S105  the key, and not the secret
PEER = "translane-forwarded-peer"
CERTIFICATE_NAME = "translane-forwarded-certificate-name"

# What a caller at a unix socket is named by its connection.
_UNIX = caller_of_peer("unix:")

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
        """Return gRPC's name of the other end: of the caller's connection if the call is forwarded."""
        return self._said(context).get(PEER) or context.peer()

    def naming(self, own: CallerOf) -> CallerOf:
        """Return the function that names the caller of a call.

        A forwarded call that `own` names by its connection alone is named by the certificate of the caller's
        connection, or else by its address.
        """

        def named(context: Context) -> str:
            name = own(context)
            return self._caller(context) if name == _UNIX else name

        return named

    def _caller(self, context: Context) -> str:
        said = self._said(context)
        name = unquote(said.get(CERTIFICATE_NAME, ""))[:_LONGEST_NAME]
        return name or caller_of_peer(said.get(PEER) or context.peer())

    def _said(self, context: Context) -> dict[str, str]:
        """The metadata of a forwarded call; nothing if the call is not forwarded."""
        if not context.peer().startswith("unix:"):
            return {}
        said = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        return said if hmac.compare_digest(said.get(SECRET, "").encode(), self._secret) else {}
