"""Where the servers are: addresses as a caller writes them, and the target that gRPC makes of them."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence

DEFAULT_PORT = 50051

# The names of gRPC's resolvers: https://grpc.github.io/grpc/core/md_doc_naming.html
_TARGET = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds):")
_LOCAL_TARGET = re.compile(r"unix(-abstract)?:")
_WITHOUT_PORT = re.compile(r"[\w.-]+|\[[0-9a-fA-F:]+\]")

_ROUND_ROBIN = '{"loadBalancingConfig":[{"round_robin":{}}]}'
# gRPC's own is 30 s, in which a caller's attempts are used up before it hears of a server's new address.
_BETWEEN_RESOLUTIONS = 2_000  # [ms]


def servers_of(address: str | Iterable[str]) -> tuple[str, ...]:
    """The servers' addresses, each with the default port where it is a bare host name or IP address.

    ValueError: an address is neither HOST:PORT nor a target of gRPC's own, such as `dns:///HOST:PORT` or `unix:/PATH`.
    """
    if isinstance(address, str) and not _TARGET.match(address):
        address = address.split(",")
    parts = [address] if isinstance(address, str) else list(address)
    if not parts:
        raise ValueError("HOST:PORT is needed, not an empty list of addresses")
    if len(parts) > 1 and (target := next(filter(_TARGET.match, map(str.strip, parts)), None)):
        raise ValueError(f"{target!r} names all servers by itself, and cannot be one of several addresses")
    servers = tuple(dict.fromkeys(map(_with_port, parts)))
    for server in servers:
        if not _TARGET.match(server):
            _host_and_port(server)
    return servers


def _with_port(address: str) -> str:
    bare = address.strip()
    if not bare or ("://" in bare and not _TARGET.match(bare)):
        raise ValueError(f"HOST:PORT is needed, not {address!r}")
    if ":" in bare and _ip(bare):  # an IPv6 address, whose last part is no port
        return f"[{bare}]:{DEFAULT_PORT}"
    return f"{bare}:{DEFAULT_PORT}" if _WITHOUT_PORT.fullmatch(bare) else bare


def are_local(servers: Iterable[str]) -> bool:
    """Whether all servers are on this machine, so that nobody on a network reads what is sent to them."""
    return all(_is_local(server) for server in servers)


def _is_local(server: str) -> bool:
    if _TARGET.match(server):
        return bool(_LOCAL_TARGET.match(server))
    ip = _ip(_host(server))
    return ip.is_loopback if ip else _host(server).lower() == "localhost"


def target_of(servers: Sequence[str], server_name: str | None) -> tuple[str, list[tuple[str, str | int]]]:
    """The target for all of `servers`, and the options of its channel.

    The name of one server stands for all of its addresses, and gRPC looks the name up again when a connection ends.
    Several servers are their IP addresses, because gRPC looks up one name only; their host names are looked up here,
    once, and a name that is not known is left out. Unavailable: no host name is known.

    All servers are called by `server_name`, which they have in their certificates; None: by the first server's.
    """
    options = list[tuple[str, str | int]]()
    if are_several(servers):
        options += [("grpc.service_config", _ROUND_ROBIN)]
        options += [("grpc.dns_min_time_between_resolutions_ms", _BETWEEN_RESOLUTIONS)]
    if len(servers) > 1 or server_name:
        options += [("grpc.default_authority", server_name or servers[0])]
    return servers[0] if len(servers) == 1 else _ip_target(servers), options


def are_several(servers: Sequence[str]) -> bool:
    """Whether there may be several servers. `localhost` is one, although it has two addresses on many machines."""
    return len(servers) > 1 or not (
        _is_local(servers[0]) or (not _TARGET.match(servers[0]) and _ip(_host(servers[0])) is not None)
    )


def _ip_target(servers: Sequence[str]) -> str:
    addresses = dict.fromkeys(address for server in servers for address in _ip_addresses(server))
    if not addresses:
        from translane.errors import Unavailable  # late: it needs gRPC, which a command's help does without

        raise Unavailable(f"cannot reach {', '.join(servers)}: the host names are not known")
    if all(ip.version == 4 for ip, _ in addresses):
        return "ipv4:" + ",".join(f"{ip}:{port}" for ip, port in addresses)
    # A target has addresses of one kind; an IPv6 address can stand for an IPv4 address (RFC 4291, section 2.5.5.2).
    return "ipv6:" + ",".join(f"[{ip if ip.version == 6 else f'::ffff:{ip}'}]:{port}" for ip, port in addresses)


def _ip_addresses(server: str) -> list[tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]]:
    host, port = _host_and_port(server)
    if ip := _ip(host):
        return [(ip, port)]
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # UnicodeError: it can be no host name
        return []
    return [(ip, port) for *_, place in found if (ip := _ip(str(place[0])))]


def _host_and_port(server: str) -> tuple[str, int]:
    port = server.rpartition(":")[2]
    if not _host(server) or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"HOST:PORT is needed, not {server!r}")
    return _host(server), int(port)


def _host(server: str) -> str:
    return server.rpartition(":")[0].removeprefix("[").removesuffix("]")


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None
