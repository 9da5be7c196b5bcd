"""How a client reaches its servers: their addresses, TLS and the token that says who calls."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict, Unpack, cast

import grpc

from translane_client._addresses import are_local, are_several, servers_of, target_of
from translane_client._credentials import AnyPath, Metadata, TlsFiles, Token


class ConnectionOptions(TypedDict, total=False):
    """How a client and its servers trust each other. Each may be left out, or None.

    The files of `ca`, `cert`, `key` and `token_file` may be replaced while the client runs. The client takes a new
    token for the next call, and new certificates for the next connection, which the next call makes.
    """

    tls: bool | None
    """True: TLS, also without `ca` and `cert`. False: plain text is meant, even with a token, as within a mesh that
    encrypts. None: TLS where `ca` or `cert` is set, and otherwise plain text."""
    ca: AnyPath | None
    """File of the certificates that the client trusts, as PEM. None: those that gRPC brings, of public authorities."""
    cert: AnyPath | None
    """File of the client's own certificate, as PEM, for mutual TLS. It needs `key`."""
    key: AnyPath | None
    """File of the private key of `cert`, as PEM, without a password."""
    server_name: str | None
    """Name that the servers have in their certificates. None: the host of the address, or of the first address."""
    token: str | None
    """Key that the server knows the caller by. Over plain text, it travels to this machine only."""
    token_file: AnyPath | None
    """File of the key, in place of `token`."""
    credentials: grpc.ChannelCredentials | None
    """Credentials of gRPC's own making, in place of `tls`, `ca`, `cert` and `key`."""


class Connection:
    """Opens channels to the servers, and gives each call what says who calls; for `Client` and for load generators.

    Args:
        address: HOST:PORT, several of them, or a target of gRPC's.
        options: TLS and the caller's token, such as `ca="ca.pem"`; ConnectionOptions describes them.

    Raises:
        ValueError: a setting is wrong, or settings contradict each other. The message begins with their names, if it
            is not about the address.
    """

    def __init__(self, address: str | Iterable[str], **options: Unpack[ConnectionOptions]) -> None:
        if unknown := options.keys() - ConnectionOptions.__optional_keys__:
            raise TypeError(f"unknown option {min(unknown)!r}")
        self.servers = servers_of(address)
        self.name = ", ".join(self.servers)  # the servers, for messages
        self.has_several = are_several(self.servers)
        files = {name: cast(AnyPath | None, options.get(name)) for name in ("ca", "cert", "key")}
        given = [name for name, file in files.items() if file is not None]
        tls, credentials, token_file = options.get("tls"), options.get("credentials"), options.get("token_file")
        if given and tls is False:
            raise ValueError(f"tls, {', '.join(given)}: without TLS there are no certificates")
        if credentials is not None and (given or tls is not None):
            raise ValueError(f"credentials, {', '.join(given or ['tls'])}: credentials stand alone")
        self._credentials = credentials
        self._tls = TlsFiles(**files) if tls or given else None
        self._server_name = options.get("server_name") or None
        self._token = Token(options.get("token"), token_file)
        if self._token.metadata() and not self.is_secure and tls is None and not are_local(self.servers):
            raise ValueError(
                f"{'token' if token_file is None else 'token_file'}: a token over plain text can be read on its way to"
                f" {self.name}; tls=True encrypts it, and tls=False says that the network does"
            )

    @property
    def is_secure(self) -> bool:
        """Whether calls travel encrypted, or as the given credentials say."""
        return self._tls is not None or self._credentials is not None

    def channel(self, grpc_module: Any, options: Iterable[tuple[str, Any]]) -> Any:
        """A new channel of grpc or grpc.aio to the servers. Unavailable: no host name is known."""
        target, of_target = target_of(self.servers, self._server_name)
        options = [*options, *of_target]
        if are_local(self.servers):
            options.append(("grpc.enable_http_proxy", 0))  # the proxy of http_proxy would read the token
        credentials = self._tls.credentials() if self._tls else self._credentials
        if credentials is None:
            return grpc_module.insecure_channel(target, options=options)
        return grpc_module.secure_channel(target, credentials, options=options)

    def generation(self) -> int:
        """How often the files of TLS were replaced: a channel that was opened at a lower number is outdated."""
        return self._tls.generation() if self._tls else 0

    def metadata(self) -> Metadata | None:
        return self._token.metadata()
