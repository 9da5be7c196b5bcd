"""Where models are: the folder or the URL of a model, and the name under which it is served.

A URL is that of a folder with the files of a bundle. After it may come the digest that pins the bundle:
``https://example.org/models/zh-en@sha256:0123…`` is the sha256 of the manifest, which has that of every other file.

A URL may hold secrets: a password before the host, or a signature in the query. ``str()`` and ``repr()`` leave both
out.
"""

from __future__ import annotations

import hashlib
import ipaddress
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

from translane_server.bundle.manifest import LONGEST_MODEL_NAME, MODEL_NAME
from translane_server.settings.loader import UNQUOTED

FIREFOX_NAME = re.compile(r"firefox:([A-Za-z]{2,3}(?:-[A-Za-z]{4})?)-([A-Za-z]{2,3}(?:-[A-Za-z]{4})?)", re.ASCII)
"""A model of Firefox by its languages: firefox:de-en."""

FIREFOX_LIST = "https://firefox.settings.services.mozilla.com/v1/buckets/main/collections/translations-models/records"
"""Where Mozilla's public list of Firefox's models is."""

_MOST_CHARACTERS = 4_000
# A name of the Hub, with or without a revision.
_HUB_NAME = re.compile(r"([\w-][\w.-]*/[\w-][\w.-]*)(?:@([\w./-]+))?", re.ASCII)

BUNDLED_MODEL = "zh-en"
"""The name of the model that comes with a clone."""

_BUNDLED_DIGEST = "89ab9ceaddcfb2d0b436f00460f9de7f89b679785b0cc773776328066c548f93"
BUNDLED_MODEL_URL = (
    f"https://github.com/translane/translane/releases/download/{BUNDLED_MODEL}-{_BUNDLED_DIGEST[:8]}"
    f"@sha256:{_BUNDLED_DIGEST}"
)
"""Where the files of the bundled model are. The release workflow puts them there."""
_DIGEST = re.compile("@sha256:([^/?#@]*)$")
# What follows the scheme of stores that have names in the place of hosts. Names of buckets:
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
_STORES = {
    "s3": re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?"),
    "hf": re.compile(r"[\w.-]+/[\w.-]+(@[\w.%-]+)?(/.*)?", re.ASCII),
}


@dataclass(frozen=True)
class ModelUrl:
    """The URL of a bundle. `parse` makes one."""

    scheme: str  # https, http, s3 or hf
    host: str  # the host, with the port if there is one; the bucket of s3; the owner of hf
    path: str  # the folder, as the URL spells it; without a slash at its end
    query: str = field(default="", repr=False)  # what every request ends with, such as a signature
    user: str = field(default="", repr=False)  # name and password for the host, as the URL spells them
    digest: str = ""  # sha256 of the manifest; "" for whatever the URL leads to

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
        if found and not re.fullmatch("[0-9a-f]{64}", digest):
            raise ValueError("the digest of a model's URL is @sha256: and 64 hexadecimal digits")
        try:
            parts = urlsplit(text[: found.start()] if found else text)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise ValueError("the URL of a model has no host, or a wrong port") from None
        user, _, address = parts.netloc.rpartition("@")
        url = cls(parts.scheme, address, parts.path.rstrip("/"), parts.query, user, digest)
        _check(url, host, parts.fragment)
        return url

    @property
    def key(self) -> str:
        """Identifies what the URL leads to, whatever the digest and the user: hexadecimal digits."""
        return hashlib.sha256(f"{self.scheme}://{self.host}{self.path}?{self.query}".encode()).hexdigest()

    def __str__(self) -> str:
        query = "?…" if self.query else ""
        digest = f"@sha256:{self.digest}" if self.digest else ""
        return f"{self.scheme}://{self.host}{self.path}{query}{digest}"


@dataclass(frozen=True)
class ModelPlace:
    """The folder of a model, and the model's name. Without a name, the model has the name of its manifest.

    ``str()`` is what the setting `model` reads.
    """

    folder: Path
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.folder}" if self.name else str(self.folder)


@dataclass(frozen=True)
class RemotePlace:
    """The URL of a model, and the model's name. Without a name, the model has the name of its manifest.

    ``str()`` is what the setting `model` reads, without what may be secret.
    """

    url: ModelUrl
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name}={self.url}" if self.name else str(self.url)


def is_model_name(text: str) -> bool:
    """Whether a model may have this name: letters, digits, `.`, `_` and `-`, 100 characters at most."""
    return len(text) <= LONGEST_MODEL_NAME and re.fullmatch(MODEL_NAME, text) is not None


def is_bundled(folder: Path) -> bool:
    """Whether what a folder is called is the name of the bundled model, and there is no such folder."""
    return str(folder) == BUNDLED_MODEL and not folder.exists()


def is_firefox(folder: Path) -> bool:
    """Whether what a folder is called is the name of a model of Firefox, and there is no such folder."""
    return bool(FIREFOX_NAME.fullmatch(str(folder))) and not folder.exists()


def hub_name(folder: Path) -> tuple[str, str | None] | None:
    """Return the name and the revision of a model of the Hugging Face Hub; None for any other name, and for a folder.

    What is no folder, and has the form of a name of the Hub, is that.
    """
    named = _HUB_NAME.fullmatch(str(folder))
    return (named[1], named[2]) if named and not folder.exists() else None


def is_folder(place: ModelPlace | RemotePlace) -> TypeGuard[ModelPlace]:
    """Whether a place is a folder, and neither a URL nor the name of a model."""
    if isinstance(place, RemotePlace):
        return False
    return not (is_bundled(place.folder) or is_firefox(place.folder) or hub_name(place.folder))


def place_of(text: str, name: str = "") -> ModelPlace | RemotePlace:
    """Read a folder or a URL, of any scheme. ValueError: it is not the URL of a model."""
    is_url = re.match("[A-Za-z][A-Za-z0-9+.-]*://", text)
    return RemotePlace(ModelUrl.parse(text), name) if is_url else ModelPlace(Path(text), name)


def read_places(value: Any) -> Any:
    """Read FOLDER, URL, NAME=FOLDER and NAME=URL. A single value is a list of one; an empty one is none."""
    values = [value] if isinstance(value, str | Path) else value
    if not isinstance(values, list | tuple):
        return values
    return tuple([_read_place(each) if isinstance(each, str | Path) else each for each in values if each != ""])


def open_url(text: str) -> str:
    """Refuse what is no URL of a model, or has a secret in it."""
    url = ModelUrl.parse(text)
    if url.user or url.query:
        raise ValueError("this URL has no password and no query")
    return text


def read_folder(value: Any) -> Any:
    """Refuse a URL where only a folder may be, before any message about the folder quotes the URL's password."""
    if isinstance(value, str) and "://" in value:  # also NAME=URL
        raise PydanticCustomError(UNQUOTED, "a folder is needed, not a URL")
    return value


def is_exposed(address: str) -> bool:
    """Whether others may read and change what comes from an address: http, from another machine."""
    return urlsplit(address).scheme == "http" and not is_local(address)


def is_local(address: str) -> bool:
    """Whether the host of an address is this machine."""
    return is_loopback(urlsplit(address).hostname or "")


def is_loopback(host: str) -> bool:
    """Whether a name or an IP address is that of this machine alone."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def _read_place(text: str | Path) -> ModelPlace | RemotePlace:
    if isinstance(text, Path):
        return ModelPlace(text)
    name = ""
    if named := re.match(f"({MODEL_NAME})=", text):
        text, name = text[named.end() :], named[1]
    try:
        if name and not is_model_name(name):
            raise ValueError(f"a model's name has at most {LONGEST_MODEL_NAME} characters")
        return place_of(text, name)
    except ValueError as error:  # whose input may hold the password of a URL
        raise PydanticCustomError(UNQUOTED, "{problem}", {"problem": str(error)}) from None


def _check(url: ModelUrl, host: str, fragment: str) -> None:
    if url.scheme not in ("https", "http", *_STORES):
        raise ValueError("the URL of a model begins with https://, http://, s3:// or hf://; without //, it is a folder")
    if not host:
        raise ValueError("the URL of a model has no host")
    if fragment:
        raise ValueError("the URL of a model has no part after #")
    if url.scheme in _STORES:
        if url.query or url.user or not _STORES[url.scheme].fullmatch(url.host + url.path):
            form = {"s3": "s3://BUCKET/FOLDER", "hf": "hf://OWNER/NAME@REVISION/FOLDER"}[url.scheme]
            raise ValueError(f"the URL of such a model is {form}, and its keys are in the environment")
    elif is_exposed(f"{url.scheme}://{url.host}"):
        if url.user:
            raise ValueError("a password in the URL of a model needs https://, because http:// shows it to others")
        if not url.digest:
            raise ValueError(
                "http:// needs a digest (@sha256:…), because others can change what comes; or take https://"
            )
