"""Calls that this process forwards, as the HTTP port does: whose they are.

They come over a unix socket that the server made for them, and show a secret that this process alone knows. What any
other call says of its caller is ignored.
"""

from __future__ import annotations

import hmac
from urllib.parse import unquote

from translane_server.api.call import Metadata

# The metadata of a forwarded call. The name is percent-encoded.
SECRET = "translane-forwarded-secret"  # noqa: S105  the key, and not the secret
PEER = "translane-forwarded-peer"
CERTIFICATE_NAME = "translane-forwarded-certificate-name"


def forwarded(metadata: Metadata, peer: str, secret: str) -> tuple[str, str]:
    """Return the other end of the connection that a call came by first, and the name in its certificate, or nothing.

    Args:
        metadata: what the call says.
        peer: gRPC's name of the other end. It is the result, if the call is not forwarded.
        secret: what a forwarded call shows.
    """
    if not peer.startswith("unix:"):
        return peer, ""
    said = {key: value for key, value in metadata if isinstance(value, str)}
    if not hmac.compare_digest(said.get(SECRET, "").encode(), secret.encode()):
        return peer, ""
    return said.get(PEER) or peer, unquote(said.get(CERTIFICATE_NAME, ""))
