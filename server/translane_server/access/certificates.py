"""The certificates of the ports: they are checked before they are used, and read again when their files change."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import grpc

from translane_server.core.errors import CertificateError
from translane_server.core.file_changes import FileChanges
from translane_server.core.files import read_regular
from translane_server.settings.server_settings import ServerSettings

_log = logging.getLogger(__name__)

# Largest file: a chain of certificates has some kilobytes, and all authorities of a system have some 200 [bytes].
_MOST_BYTES = 1 << 20

# The numbers of OpenSSL for a certificate whose time has not come, or has gone (X509_STORE_CTX_get_error).
_NOT_YET_VALID, _EXPIRED = 9, 10

# Keys that the HTTP ports would take, but gRPC's TLS refuses to all callers: as they stand in a certificate, which
# says the algorithm of its key, and for ECDSA the curve (RFC 8410, section 3; RFC 5480, section 2.1.1). A signature of
# the authority has the same algorithm, so the first two end with the length of the key, and the zero before it.
_NO_KEYS_OF_GRPC = {
    "Ed25519": bytes.fromhex("300506032b6570032100"),
    "Ed448": bytes.fromhex("300506032b6571033a00"),
    "ECDSA with P-521": bytes.fromhex("06072a8648ce3d020106052b81040023"),
}

_HTTP = ("http/1.1",)  # what the HTTP ports speak, as ALPN has it


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, and the authorities of callers, as they were read."""

    context: ssl.SSLContext  # for ports of HTTP
    configuration: grpc.ServerCertificateConfiguration  # for ports of gRPC
    names: tuple[str, ...]  # and addresses, that the certificate is for; empty if it is not valid now
    expires: str  # when, as OpenSSL writes it; empty if it is not valid now
    problem: str  # why callers will refuse the certificate now, although it can be used; empty if they will not


class Certificates:
    """The certificate of a server, with its key, and the authorities of its callers.

    Every port takes at least TLS 1.2. New connections use new files after `refresh`, and no connection ends. The files
    are PEM. The server's certificate comes first, and then those that lead to its authority. The key is not encrypted.

    Raises:
        CertificateError: a file cannot be read, or the files do not fit together.
    """

    def __init__(self, cert: Path, key: Path, client_ca: Path | None = None) -> None:
        self._cert, self._key, self._client_ca = cert, key, client_ca
        self._paths = [path for path in (cert, key, client_ca) if path]
        self._changes = FileChanges(self._paths)
        self._read()

    def grpc_credentials(self) -> grpc.ServerCredentials:
        """Return credentials for a port of gRPC. The port takes the newest certificate for each new connection."""
        handed = self.current.configuration

        def newest() -> Any:  # called on gRPC's threads; None keeps what the port has
            nonlocal handed
            configuration = self.current.configuration
            if configuration is handed:
                return None
            handed = configuration
            return configuration

        return grpc.dynamic_ssl_server_credentials(
            handed, newest, require_client_authentication=self._client_ca is not None
        )

    def ssl_context(self) -> ssl.SSLContext:
        """Return a context for an HTTP port. The port takes the newest certificate for each new connection."""
        context = _NewestContext(ssl.PROTOCOL_TLS_SERVER)
        context.newest = lambda: self.current.context
        return context

    def refresh(self) -> None:
        """Read the files again if they have changed. Wrong files are logged, and the certificate before goes on."""
        self._changes.refresh(self._read, "the certificate before goes on")

    def _read(self) -> None:
        """Read, check and use the files. Raises CertificateError, which names the file that is wrong."""
        contents = [_content(path) for path in self._paths]
        cert, key, *authorities = contents
        caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _trust(caller, self._cert, cert)
        _check_key_of(self._cert, cert)
        context = self._context()
        names, expires, problem = _seen_by(caller, context)
        if self._client_ca:
            _trust(context, self._client_ca, authorities[0])
            context.verify_mode = ssl.CERT_REQUIRED
        # OpenSSL has read the paths by itself, so it may have seen other files.
        if contents != [_content(path) for path in self._paths]:
            raise CertificateError(f"certificate {self._cert}: its files have changed while they were read")
        if problem:
            _log.warning("certificate %s: %s", self._cert, problem)
        else:
            _log.info("certificate %s: valid until %s", self._cert, expires)
        configuration = grpc.ssl_server_certificate_configuration([(key, cert)], *authorities)
        self.current = Identity(context, configuration, names, expires, problem)

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # A ticket would let a caller come back whose authority has been removed meanwhile.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.set_alpn_protocols(_HTTP)

        def refuse() -> NoReturn:
            raise CertificateError(f"key {self._key}: it is encrypted; the server has no passphrase for it")

        try:
            context.load_cert_chain(self._cert, self._key, password=refuse)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise CertificateError(f"key {self._key}: it is not the key of the certificate {self._cert}") from None
            if error.reason and error.reason.endswith("TOO_SMALL"):
                raise CertificateError(f"certificate {self._cert}: its key is too short to be safe") from None
            raise CertificateError(f"key {self._key}: it is no private key in PEM") from None
        except OSError as error:
            raise CertificateError(f"certificate {self._cert}: it cannot be read: {error.strerror}") from None
        return context


class _NewestContext(ssl.SSLContext):
    """Makes each connection of asyncio with another context: the newest one.

    A context keeps the sessions of its connections. To change only the context of a connection that has begun would
    let a caller go on with a session whose authority has been removed meanwhile.
    """

    newest: Callable[[], ssl.SSLContext]

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        return self.newest().wrap_bio(*arguments, **named)


def certificates_of(settings: ServerSettings) -> Certificates | None:
    """Return the certificates of the ports; None without TLS. Raises as `Certificates`."""
    cert, key = settings.tls_cert, settings.tls_key
    return Certificates(cert, key, settings.tls_client_ca) if cert and key else None


def _content(path: Path) -> bytes:
    try:
        return read_regular(path, _MOST_BYTES)
    except OSError as error:
        raise CertificateError(f"certificate file {path}: it cannot be read: {error.strerror}") from None


def _trust(context: ssl.SSLContext, path: Path, content: bytes) -> None:
    """Let `context` trust the certificates in the content of a file."""
    try:
        context.load_verify_locations(cadata=content.decode("ascii", "ignore"))
    except (ssl.SSLError, ValueError):
        raise CertificateError(f"certificate {path}: it has no certificate in PEM") from None


def _check_key_of(path: Path, content: bytes) -> None:
    pem = content.decode("ascii", "ignore")
    begin, end = ssl.PEM_HEADER, ssl.PEM_FOOTER
    first = f"{begin}{pem.partition(begin)[2].partition(end)[0]}{end}"
    try:
        der = ssl.PEM_cert_to_DER_cert(first)
    except ValueError:
        raise CertificateError(f"certificate {path}: it has no certificate in PEM") from None
    for name, written in _NO_KEYS_OF_GRPC.items():
        if written in der:
            raise CertificateError(
                f"certificate {path}: its key is {name}, which gRPC does not take; use RSA, or ECDSA"
                " with P-256 or P-384"
            )


def _seen_by(caller: ssl.SSLContext, context: ssl.SSLContext) -> tuple[tuple[str, ...], str, str]:
    """Let a caller who trusts the certificate of `context` connect to it, in memory.

    Returns the certificate's names, when it expires, and why the caller refuses it.
    """
    caller.check_hostname = False
    caller.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    server_end = context.wrap_bio(to_server, to_caller, server_side=True)
    caller_end = caller.wrap_bio(to_caller, to_server)
    try:
        while not _is_done(caller_end.do_handshake):
            _is_done(server_end.do_handshake)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == _EXPIRED:
            return (), "", "it has expired, so callers refuse it"
        if error.verify_code == _NOT_YET_VALID:
            return (), "", "it is not valid yet, so callers refuse it"
        return (), "", f"callers refuse it: {error.verify_message}"
    except ssl.SSLError as error:
        return (), "", f"callers refuse it: {error.reason}"
    seen: dict[str, Any] = caller_end.getpeercert() or {}
    names = tuple(str(name) for _, name in seen.get("subjectAltName", ()))
    return names, str(seen.get("notAfter", "")), "" if names else "it names no server, so callers refuse it"


def _is_done(step: Callable[[], None]) -> bool:
    """Whether a handshake has ended; otherwise it waits for the other end."""
    try:
        step()
    except ssl.SSLWantReadError:
        return False
    return True
