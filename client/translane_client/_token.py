"""The token that tells a server who calls."""

from __future__ import annotations

import re

from translane_client._followed_file import FollowedFile
from translane_client._tls import AnyPath

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # RFC 6750, section 2.1
_MOST_CHARACTERS = 4096

Metadata = tuple[tuple[str, str], ...]


class Token:
    """A bearer token, itself or in a file that may be replaced while the client runs.

    Raises:
        ValueError: both are given, or the file cannot be read, or the token cannot be one; the message begins with the
            setting, and does not show the token.
    """

    def __init__(self, token: str | None, token_file: AnyPath | None) -> None:
        if token is not None and token_file is not None:
            raise ValueError("token, token_file: they exclude each other")
        self._file = None if token_file is None else FollowedFile(token_file, "token_file")
        self._metadata: Metadata = ()
        if self._file:
            self._metadata = _metadata(self._file.content.decode("ascii", "replace"), f"token_file: {self._file.path}")
        elif token is not None:
            self._metadata = _metadata(token, "token: it")

    def metadata(self) -> Metadata | None:
        """What a call carries to say who calls; None where there is no token.

        A call reads the file where the file has changed. Where it then holds no token, because somebody is writing it,
        the token before stays. The token travels as metadata of the call, because gRPC's own call credentials start a
        thread for each call.
        """
        if self._file and self._file.has_changed():
            try:
                self._file.refresh()
                self._metadata = _metadata(self._file.content.decode("ascii", "replace"), "token_file")
            except ValueError:
                pass
        return self._metadata or None


def _metadata(token: str, subject: str) -> Metadata:
    token = token.strip()
    if not _TOKEN.fullmatch(token) or len(token) > _MOST_CHARACTERS:
        raise ValueError(f"{subject} holds no token: a token has letters, digits and -._~+/= only, on one line")
    return (("authorization", f"Bearer {token}"),)
