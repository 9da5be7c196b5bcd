"""Who calls: the name under which the calls of one caller share their limits."""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Iterable, Mapping
from functools import lru_cache
from urllib.parse import unquote

from translane_server.access.authenticator import Metadata, value_of

# Longest name of a caller [characters].
_LONGEST_NAME = 100

# IPv6 networks give each customer a /64 or more (RFC 6177), so an address alone does not stand for a caller.
_IPV6_PREFIX = 64

# Connections whose callers are remembered.
_REMEMBERED = 4096

# The names of a peer's certificate, as gRPC has them (grpc_security_constants.h).
_CERTIFICATE_NAMES = ("x509_subject_alternative_name", "x509_common_name")


def caller_of(metadata: Metadata, certificate: str, peer: str, header: str = "") -> str:
    """Return the name of the caller of a call: what the header says, or else the certificate, or else the address.

    Args:
        metadata: of the call.
        certificate: the name in the certificate of its connection; empty if there is none.
        peer: gRPC's name of the other end of its connection.
        header: the metadata key whose value names the caller, in lower case; empty if none does. A key that any client
            can set is no limit: a proxy in front of the server must set it.
    """
    if header and (text := value_of(metadata, header)):
        return _bounded(text)
    return _bounded(certificate) if certificate else caller_of_peer(peer)


def name_in_certificate(properties: Mapping[str, Iterable[bytes]]) -> str:
    """Return the first alternative name of a connection's certificate, or its common name; empty if it has neither.

    Args:
        properties: what gRPC knows of the connection.
    """
    for name in _CERTIFICATE_NAMES:
        for value in properties.get(name, ()):
            return value.decode("utf-8", "replace")
    return ""


def _bounded(text: str) -> str:
    """A name of bounded length. A long text is cut, and a digest keeps it apart from others of the same beginning."""
    if len(text) <= _LONGEST_NAME:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{text[: _LONGEST_NAME - len(digest) - 1]}…{digest}"


@lru_cache(_REMEMBERED)
def caller_of_peer(peer: str) -> str:
    """Return the caller at the other end of a connection.

    Args:
        peer: gRPC's name of the other end: `ipv4:ADDRESS:PORT`, `ipv6:%5BADDRESS%5D:PORT` or `unix:…`
            (https://github.com/grpc/grpc/blob/master/doc/naming.md).

    Returns:
        An IPv4 address; the /64 network of an IPv6 address; otherwise the kind of connection, such as `unix`.
    """
    kind, _, rest = peer.partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    host = unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return kind
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, _IPV6_PREFIX), strict=False))
        address = address.ipv4_mapped
    return str(address)
