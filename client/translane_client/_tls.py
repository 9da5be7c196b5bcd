"""The certificates and the key of a client, as files that may be replaced while the client runs."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import grpc

from translane_client._followed_file import FollowedFile

AnyPath = str | os.PathLike[str]


class TlsFiles:
    """Makes gRPC's credentials for TLS of the files as they are now.

    Args:
        ca: Certificates of the authorities that the client trusts, as PEM. None: those that gRPC brings.
        cert: The client's own certificate and those that lead to an authority, as PEM. None: no client certificate.
        key: The private key of `cert`, as PEM.

    Raises:
        ValueError: a file cannot be read, or does not hold what it should; the message begins with the setting.
    """

    def __init__(self, ca: AnyPath | None, cert: AnyPath | None, key: AnyPath | None) -> None:
        if (cert is None) != (key is None):
            raise ValueError("cert, key: a client certificate needs both")
        self._paths = (ca, cert, key)
        self._files = (_followed(ca, "ca"), _followed(cert, "cert"), _followed(key, "key"))
        self._generation = 0
        self._check()

    def generation(self) -> int:
        """How often the files were replaced by others that are sound: the credentials of a lower number are outdated.

        Files that are replaced one after the other do not fit together for a moment. They are looked at again the next
        time, and the credentials stay until then what they were.
        """
        if any(file.has_changed() for file in self._files if file):
            try:
                self._files = TlsFiles(*self._paths)._files
            except ValueError:
                return self._generation
            self._generation += 1
        return self._generation

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a channel."""
        ca, cert, key = (None if file is None else file.content for file in self._files)
        return grpc.ssl_channel_credentials(ca, key, cert)

    def _check(self) -> None:
        """ValueError: a file does not hold what it should. gRPC says it only when it connects, and not which file."""
        ca, cert, key = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca:
            try:
                context.load_verify_locations(cadata=ca.content.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError):
                raise ValueError(f"ca: {ca.path} holds no sound certificate in PEM") from None
        if cert and key:
            _check_pair(context, cert, key)


def _followed(path: AnyPath | None, setting: str) -> FollowedFile | None:
    return None if path is None else FollowedFile(path, setting)


def _check_pair(context: ssl.SSLContext, cert: FollowedFile, key: FollowedFile) -> None:
    if b"ENCRYPTED" in key.content:
        raise ValueError(f"key: {key.path} is encrypted; a key without a password is needed")
    try:
        context.load_cert_chain(cert.path, key.path, password=b"")  # without a password OpenSSL would ask the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"cert, key: {key.path} is not the key of {cert.path}") from None
        raise ValueError(f"cert, key: {_unsound(cert.path, key.path)} in PEM") from None
    except OSError as error:  # the file went after it was read
        raise ValueError(f"cert, key: {error.strerror or error}") from None


def _unsound(cert: Path, key: Path) -> str:
    return f"{cert} holds no sound certificate, or {key} no sound key,"
