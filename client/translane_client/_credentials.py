"""What tells the two sides of a connection who the other is: certificates, a key, a token.

Each may be a file that others replace while a client uses it, as those do who rotate keys and certificates. What is
wrong with a setting or its file is a ValueError, whose message begins with the setting.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from contextlib import suppress
from pathlib import Path

import grpc

AnyPath = str | os.PathLike[str]
Metadata = tuple[tuple[str, str], ...]

_MOST_BYTES = 1 << 20
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_MOST_CHARACTERS = 4096


class FollowedFile:
    """A small file as it was when it was read."""

    def __init__(self, path: AnyPath, setting: str) -> None:
        self.path = Path(path)
        try:
            if not stat.S_ISREG(self.path.stat().st_mode):  # reading a pipe could take forever
                raise ValueError(f"{setting}: {self.path} is not a file")
            with self.path.open("rb") as file:
                self._stamp = _stamp_of(os.fstat(file.fileno()))
                self.content = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise ValueError(f"{setting}: {self.path} cannot be read: {error.strerror or error}") from None
        if len(self.content) > _MOST_BYTES:
            raise ValueError(f"{setting}: {self.path} is longer than {_MOST_BYTES} bytes")

    def has_changed(self) -> bool:
        """Whether another file is there now; one that is away has not changed."""
        try:
            return _stamp_of(self.path.stat()) != self._stamp
        except OSError:
            return False


def _stamp_of(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


class TlsFiles:
    """Makes gRPC's credentials for TLS of the files as they are now; ConnectionOptions describes them."""

    def __init__(self, ca: AnyPath | None, cert: AnyPath | None, key: AnyPath | None) -> None:
        if (cert is None) != (key is None):
            raise ValueError("cert, key: a client certificate needs both")
        self._paths = {"ca": ca, "cert": cert, "key": key}
        self._files = self._read()
        self._generation = 0

    def generation(self) -> int:
        """How often the files were replaced by others that are sound: the credentials of a lower number are outdated.

        Files that are replaced one after the other do not fit together for a moment. They are looked at again the next
        time, and the credentials stay until then what they were.
        """
        if any(file.has_changed() for file in self._files.values()):
            try:
                self._files = self._read()
            except ValueError:
                return self._generation
            self._generation += 1
        return self._generation

    def credentials(self) -> grpc.ChannelCredentials:
        content = {name: file.content for name, file in self._files.items()}
        return grpc.ssl_channel_credentials(content.get("ca"), content.get("key"), content.get("cert"))

    def _read(self) -> dict[str, FollowedFile]:
        """The files, if they hold what they should. gRPC says it only when it connects, and not which file is wrong."""
        files = {name: FollowedFile(path, name) for name, path in self._paths.items() if path is not None}
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca := files.get("ca"):
            try:
                context.load_verify_locations(cadata=ca.content.decode("ascii", "ignore"))
            except (ssl.SSLError, ValueError):
                raise ValueError(f"ca: {ca.path} holds no sound certificate in PEM") from None
        if "cert" in files:
            _check_pair(context, files["cert"], files["key"])
        return files


def _check_pair(context: ssl.SSLContext, cert: FollowedFile, key: FollowedFile) -> None:
    if b"ENCRYPTED" in key.content:
        raise ValueError(f"key: {key.path} is encrypted; a key without a password is needed")
    try:
        context.load_cert_chain(cert.path, key.path, password=b"")  # without a password OpenSSL would ask the terminal
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"cert, key: {key.path} is not the key of {cert.path}") from None
        unsound = f"{cert.path} holds no sound certificate, or {key.path} no sound key"
        raise ValueError(f"cert, key: {unsound}, in PEM") from None
    except OSError as error:  # the file went after it was read
        raise ValueError(f"cert, key: {error.strerror or error}") from None


class Token:
    """A bearer token, itself or in a file that may be replaced while the client runs. No message shows it."""

    def __init__(self, token: str | None, token_file: AnyPath | None) -> None:
        if token is not None and token_file is not None:
            raise ValueError("token, token_file: they exclude each other")
        self._file: FollowedFile | None = None
        self._metadata: Metadata | None = None
        if token is not None:
            self._metadata = _metadata(token, "token: it")
        elif token_file is not None:
            self._read(token_file)

    def metadata(self) -> Metadata | None:
        """What a call carries to say who calls; None where there is no token.

        A call reads the file where the file has changed. Where it then holds no token, because somebody is writing it,
        the token before stays. The token travels as metadata of the call, because gRPC's own call credentials start a
        thread for each call.
        """
        if self._file and self._file.has_changed():
            with suppress(ValueError):
                self._read(self._file.path)
        return self._metadata

    def _read(self, path: AnyPath) -> None:
        self._file = file = FollowedFile(path, "token_file")
        self._metadata = _metadata(file.content.decode("ascii", "replace"), f"token_file: {file.path}")


def _metadata(token: str, subject: str) -> Metadata:
    token = token.strip()
    if not _TOKEN.fullmatch(token) or len(token) > _MOST_CHARACTERS:
        raise ValueError(f"{subject} holds no token: a token has letters, digits and -._~+/= only, on one line")
    return (("authorization", f"Bearer {token}"),)
