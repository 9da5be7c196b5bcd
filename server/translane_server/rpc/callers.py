"""Who calls: the name under which the calls of one caller share their limits."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote

import grpc

Context = grpc.aio.ServicerContext[Any, Any]
CallerOf = Callable[[Context], str]
PeerOf = Callable[[Context], str]

# With these the HTTP port tells whose call it forwards, and shows that it may.
FORWARDED_PEER = "translane-forwarded-peer"
FORWARDED_SECRET = "translane-forwarded-secret"  # noqa: S105  the key, and not the secret

# Longest name of a caller that a header gives [characters].
_LONGEST_NAME = 100

# IPv6 networks give each customer a /64 or more (RFC 6177), so an address alone does not stand for a caller.
_IPV6_PREFIX = 64

# Connections whose callers are remembered.
_REMEMBERED = 4096


def peer_of_connection(context: Context) -> str:
    """Return gRPC's name of the other end of a call's connection."""
    return context.peer()


def peer_naming(secret: str) -> PeerOf:
    """Return the function that names the other end of a call, as gRPC does.

    The other end of a forwarded call is the other end of the HTTP connection. A call is forwarded if it comes over a
    unix socket and shows `secret`. What any other call says is ignored.
    """
    expected = secret.encode()

    def peer_of(context: Context) -> str:
        peer = context.peer()
        if not peer.startswith("unix:"):
            return peer
        said = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        shown = said.get(FORWARDED_SECRET, "").encode()
        return said.get(FORWARDED_PEER, peer) if hmac.compare_digest(shown, expected) else peer

    return peer_of


def caller_naming(header: str = "", peer_of: PeerOf = peer_of_connection) -> CallerOf:
    """Return the function that names the caller of a call.

    Args:
        header: the metadata key whose value names the caller; empty if the address does. A key that any client can set
            is no limit: a proxy in front of the server must set it. A call with a value that is missing, empty or too
            long is named by its address.
        peer_of: names the other end of a call.
    """

    def address(context: Context) -> str:
        return caller_of_peer(peer_of(context))

    if not header:
        return address
    key = header.lower()

    def named(context: Context) -> str:
        for name, value in context.invocation_metadata() or ():
            if name == key:
                text = value if isinstance(value, str) else value.decode("latin-1")
                return text if 0 < len(text) <= _LONGEST_NAME else address(context)
        return address(context)

    return named


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
