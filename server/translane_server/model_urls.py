"""The URL of a model bundle, and the digest that pins it: ``https://example.org/models/zh-en@sha256:0123…``.

A URL is that of a folder with the files of a bundle. The digest is the sha256 of the bundle's manifest. The manifest
has the sha256 of every other file, so the digest pins the whole bundle.

A URL may hold secrets: a password before the host, or a signature in the query. ``str()`` and ``repr()`` leave both
out.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import re
from dataclasses import dataclass, field
from urllib.parse import quote, unquote, urlsplit

_SCHEMES = ("https", "http", "s3")
_MOST_CHARACTERS = 4_000
_URL = re.compile("[A-Za-z][A-Za-z0-9+.-]*://")
_DIGEST = re.compile("@sha256:([^/?#@]*)$")
_HEX_DIGEST = re.compile("[0-9a-f]{64}")
# Names of buckets: https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_BUCKET = re.compile("[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def is_url(text: str) -> bool:
    """Whether `text` begins like a URL, of any scheme."""
    return _URL.match(text) is not None


def is_exposed(address: str) -> bool:
    """Whether others may read and change what comes from an address: http, from another machine."""
    return urlsplit(address).scheme == "http" and not is_local(address)


def is_local(address: str) -> bool:
    """Whether the host of an address is this machine."""
    return _is_loopback(urlsplit(address).hostname or "")


@dataclass(frozen=True)
class ModelUrl:
    """The URL of a bundle. `parse` makes one.

    Attributes:
        scheme: https, http or s3.
        host: the host, with the port if there is one; the bucket of s3.
        path: the folder, as the URL spells it; without a slash at its end.
        query: what every request ends with, such as a signature.
        user: name and password for the host, as the URL spells them.
        digest: sha256 of the manifest; "" for whatever the URL leads to.
    """

    scheme: str
    host: str
    path: str
    query: str = field(default="", repr=False)
    user: str = field(default="", repr=False)
    digest: str = ""

    @classmethod
    def parse(cls, text: str) -> ModelUrl:
        """Read a URL with or without a digest.

        Raises:
            ValueError: it is not one; the message says what is wrong, and quotes nothing of it.
        """
        if len(text) > _MOST_CHARACTERS or not re.fullmatch("[!-~]+", text):
            raise ValueError(
                f"the URL of a model has at most {_MOST_CHARACTERS:,} characters, all of them visible ASCII"
            )
        found = _DIGEST.search(text)
        digest = found[1].lower() if found else ""
        if found and not _HEX_DIGEST.fullmatch(digest):
            raise ValueError("the digest of a model's URL is @sha256: and 64 hexadecimal digits")
        try:
            parts = urlsplit(text[: found.start()] if found else text)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError("the URL of a model has no host, or a wrong port") from None
        user, _, address = parts.netloc.rpartition("@")
        url = cls(parts.scheme, address, parts.path.rstrip("/"), parts.query, user, digest)
        if problem := _problem(url, host, parts.fragment):
            raise ValueError(problem)
        return url

    @property
    def key(self) -> str:
        """Identifies what the URL leads to, whatever the digest and the user: hexadecimal digits."""
        return hashlib.sha256(f"{self.scheme}://{self.host}{self.path}?{self.query}".encode()).hexdigest()

    @property
    def authorization(self) -> str:
        """The value of the HTTP header Authorization; "" without a user."""
        if not self.user:
            return ""
        return "Basic " + base64.b64encode(unquote(self.user).encode()).decode("ascii")

    def of_file(self, name: str) -> str:
        """The URL of the bundle's file `name`. It has the secrets of the query."""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.host}{self.path}/{quote(name)}{query}"

    def object_key(self, name: str) -> str:
        """The key of the bundle's file `name` in the bucket of an s3 URL."""
        return f"{unquote(self.path)}/{name}".lstrip("/")

    def __str__(self) -> str:
        query = "?…" if self.query else ""
        digest = f"@sha256:{self.digest}" if self.digest else ""
        return f"{self.scheme}://{self.host}{self.path}{query}{digest}"


def _problem(url: ModelUrl, host: str, fragment: str) -> str:
    """What is wrong with a URL; "" if nothing is."""
    if url.scheme not in _SCHEMES:
        return "the URL of a model begins with https://, http:// or s3://; without //, it is a folder"
    if not host:
        return "the URL of a model has no host"
    if fragment:
        return "the URL of a model has no part after #"
    if url.scheme == "s3":
        if url.query or url.user or not _BUCKET.fullmatch(url.host):
            return "the URL of a model in S3 is s3://BUCKET/FOLDER, and its keys are in the environment"
    elif url.scheme == "http" and not _is_loopback(host):
        if url.user:
            return "a password in the URL of a model needs https://, because http:// shows it to others"
        if not url.digest:
            return "http:// needs a digest (@sha256:…), because others can change what comes; or take https://"
    return ""


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
