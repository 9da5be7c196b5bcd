"""Authorities and certificates for tests, made anew each time."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import trustme


@dataclass(frozen=True)
class CertificateFiles:
    """A certificate and its key, as files."""

    cert: Path
    key: Path


class Authority:
    """An authority, with its own certificate and those that it issues as files in a folder."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._authority = trustme.CA()
        self._folder = folder
        self.pem = self._authority.cert_pem.bytes()
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.pem)

    def issue(self, *names: str, expired: bool = False) -> trustme.LeafCert:
        """A certificate for host names or IP addresses."""
        return self._authority.issue_cert(*names, not_after=datetime(2021, 1, 1) if expired else None)

    def files(self, *names: str, stem: str = "own") -> CertificateFiles:
        """A new certificate, as files that replace others of the same stem."""
        issued = self.issue(*names)
        files = CertificateFiles(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        files.cert.write_bytes(issued.cert_chain_pems[0].bytes())
        files.key.write_bytes(issued.private_key_pem.bytes())
        return files

    def server_credentials(
        self, *names: str, clients: Authority | None = None, expired: bool = False
    ) -> grpc.ServerCredentials:
        """Credentials of a server with a new certificate, and with `clients` only for clients of that authority."""
        issued = self.issue(*names, expired=expired)
        pair = issued.private_key_pem.bytes(), issued.cert_chain_pems[0].bytes()
        root = None if clients is None else clients.pem
        return grpc.ssl_server_credentials([pair], root, require_client_auth=clients is not None)


class ServerFiles:
    """A server's certificate, its key and the authority of its callers, as files that are replaced whole."""

    def __init__(self, folder: Path, authority: trustme.CA) -> None:
        self.cert, self.key, self.ca = (folder / name for name in ("server.crt", "server.key", "callers.crt"))
        self.write(authority)

    def write(self, authority: trustme.CA, callers: trustme.CA | None = None, **options: Any) -> bytes:
        """Write a new certificate for this machine, and return it as DER."""
        issued = authority.issue_cert("localhost", "127.0.0.1", **options)
        replace(self.cert, b"".join(part.bytes() for part in issued.cert_chain_pems))
        replace(self.key, issued.private_key_pem.bytes())
        replace(self.ca, (callers or authority).cert_pem.bytes())
        return ssl.PEM_cert_to_DER_cert(issued.cert_chain_pems[0].bytes().decode())


def replace(path: Path, content: bytes) -> None:
    """Put a whole file in the place of another."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)
