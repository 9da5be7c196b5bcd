"""Models of Firefox by their languages, such as firefox:de-en, from Mozilla's public list of them.

The list is a collection of Remote Settings: an object whose `data` has a record for each file, with its languages, its
version, and size, sha256 and place of the file. Of the versions the highest counts. The server of the list says where
the files are. A mirror, or a folder, has the list as a .json file, and the files beside it.

https://remote-settings.readthedocs.io, https://firefox-source-docs.mozilla.org/toolkit/components/translations
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal
from urllib.parse import quote, urljoin

from pydantic import BaseModel, Field, ValidationError

from translane_server.bundle.bundle import file_entry
from translane_server.core.errors import BundleError
from translane_server.core.files import open_regular, parse_json, read_regular, written_whole
from translane_server.models.download import ATTEMPTS, MOST_MANIFEST_BYTES, DownloadError, Link, download
from translane_server.settings.model_sources import FIREFOX_LIST, FIREFOX_NAME, is_exposed

_TITLE = "Firefox's models"
_MOST_BYTES = 1 << 30  # of a file
_NUMBER = re.compile(r"\d{1,9}|[a-z]+")
_Fetch = Callable[[str, int, BinaryIO], None]
"""Writes the file at a place of the list, of so many bytes, into a file."""


class _Attachment(BaseModel):
    hash: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(ge=1, le=_MOST_BYTES)
    filename: str = Field(pattern="^[A-Za-z0-9][A-Za-z0-9_.-]{0,200}$")
    location: str = Field(pattern=r"^\w[\w-]*(/?\.?[\w-]+)*$", max_length=1_000)  # leads to no parent


class _Record(BaseModel):
    """A file of a model. What is attached is read for the model that is asked for alone."""

    file_type: Literal["model", "vocab", "srcvocab", "trgvocab", "lex"] = Field(alias="fileType")
    source: str = Field(alias="fromLang")
    target: str = Field(alias="toLang")
    version: str = Field(max_length=100)
    last_modified: int = 0
    attachment: Any = None


@dataclass(frozen=True)
class FirefoxModel:
    """A model of the list, as `look_up` finds it. `version` is Mozilla's."""

    source: str
    target: str
    version: str
    files: Sequence[_Attachment]
    fetch: _Fetch

    @property
    def state(self) -> str:
        """Changes with the files."""
        return " ".join(sorted(file.hash for file in self.files))

    def folder(self, cache: Path) -> Path:
        """The folder of the files within `cache`, once they are fetched."""
        return cache / f"{self.source}-{self.target}-{hashlib.sha256(self.state.encode()).hexdigest()[:16]}"

    def fetched(self, cache: Path) -> Path:
        """Return `folder` with all files. Those that are not there yet are fetched. Several programs may do so at once.

        Raises:
            BundleError: a file cannot be fetched, or is not the one that the list says.
        """
        folder = self.folder(cache)
        for file in self.files:
            try:
                self._fetch(file, folder / file.filename)
            except (DownloadError, OSError) as error:
                raise BundleError(f"firefox:{self.source}-{self.target}: {file.filename}: {_said(error)}") from None
        return folder

    def _fetch(self, file: _Attachment, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file() and file_entry(path).sha256 == file.hash:
            return
        print(f"translane: downloading {file.filename}, {file.size / 1e6:.1f} MB", file=sys.stderr)
        with written_whole(path) as new:
            self.fetch(file.location, file.size, new)
            new.flush()
            digest = file_entry(Path(new.name)).sha256
            if digest != file.hash:
                raise DownloadError(f"its sha256 there is {digest}, and the list has {file.hash}")


def look_up(name: str, address: str | None, cache: Path) -> FirefoxModel:
    """Return the model firefox:SOURCE-TARGET of the list at an address. The list stays in `cache` for times without it.

    That is the last list that was right about this model: a newer one may be right about others alone.

    Without an address, the list is that of TRANSLANE_FIREFOX_MODELS in the environment, or else Mozilla's.

    Raises:
        BundleError: the list cannot be read, or has no such model.
    """
    address = address or os.environ.get("TRANSLANE_FIREFOX_MODELS") or FIREFOX_LIST
    kept = cache / f"list-{hashlib.sha256(f'{address} {name.lower()}'.encode()).hexdigest()[:16]}.json"
    try:
        attempts = 2 if kept.is_file() else ATTEMPTS
        content, fetch = _list_at(address, attempts) if "://" in address else _list_in(Path(address))
        model = _newest(content, name, fetch)
    except (DownloadError, OSError) as error:
        try:
            content = read_regular(kept, MOST_MANIFEST_BYTES)
            model = _newest(content, name, _refuse)
        except (DownloadError, OSError):
            raise BundleError(f"{name}: the list of Firefox's models cannot be read: {_said(error)}") from None
        said = f"the list of Firefox's models cannot be read: {_said(error)}; the last one holds"
        print(f"translane: {said}", file=sys.stderr)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        if not kept.is_file() or read_regular(kept) != content:
            with written_whole(kept) as new:
                new.write(content)
    except OSError as error:
        print(f"translane: the list of Firefox's models is not kept in {cache}: {error.strerror}", file=sys.stderr)
    return model


def _said(error: Exception) -> str:
    return str(error.strerror if isinstance(error, OSError) else error)


def _refuse(_location: str, _size: int, _file: BinaryIO) -> None:
    """Nothing can be fetched while the list cannot be read."""
    raise DownloadError("it is not there yet, and the list of Firefox's models cannot be read")


def _newest(content: bytes, name: str, fetch: _Fetch) -> FirefoxModel:
    """Return a model of a list in its highest version.

    Raises:
        DownloadError: it is no list, or what it says of the model is wrong. Wrong records of other models do no harm.
        BundleError: it has no such model.
    """
    named = FIREFOX_NAME.fullmatch(name)
    assert named
    try:
        records = [record for each in parse_json(content)["data"] if (record := _record(each))]
    except (ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"it is none ({type(error).__name__})") from None
    if not records:
        raise DownloadError("it has no models")
    versions: dict[str, dict[str, _Record]] = {}
    for record in sorted(records, key=lambda each: each.last_modified):
        if [record.source.lower(), record.target.lower()] == [named[1].lower(), named[2].lower()]:
            versions.setdefault(record.version, {})[record.file_type] = record
    whole = [
        version
        for version, files in versions.items()
        if "model" in files and ("vocab" in files or {"srcvocab", "trgvocab"} <= files.keys())
    ]
    if not whole:
        pairs = {f"{each.source}-{each.target}" for each in records if each.file_type == "model"}
        raise BundleError(f"{name}: the list of Firefox's models has no such one among its {len(pairs)} pairs")
    newest = list(versions[max(whole, key=_order)].values())
    try:
        files = [_Attachment.model_validate(record.attachment) for record in newest]
    except ValidationError:
        raise DownloadError(f"its records of {name} are wrong") from None
    if len({file.filename for file in files}) < len(files):
        raise DownloadError(f"two files of {name} have one name there")
    first = newest[0]
    return FirefoxModel(first.source, first.target, first.version, files, fetch)


def _record(value: Any) -> _Record | None:
    """The record of a file that is read; None for others, and for what is none."""
    try:
        return _Record.model_validate(value)
    except ValidationError:
        return None


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """What versions are compared by: 1.10 comes after 1.9, and 2.0a1 before 2.0."""
    parts = _NUMBER.findall(version)
    numbers = [int(part) for part in parts if part.isdigit()]
    return tuple(numbers[: 2 if len(parts) > len(numbers) else None]), len(parts) == len(numbers)


def _list_in(folder: Path) -> tuple[bytes, _Fetch]:
    path = folder / "records.json" if folder.is_dir() else folder

    def fetch(location: str, size: int, file: BinaryIO) -> None:
        with open_regular(path.parent / location) as found:
            if (there := os.fstat(found.fileno()).st_size) != size:
                raise DownloadError(f"it has {there:,} bytes there, and the list has {size:,}")
            shutil.copyfileobj(found, file)

    return read_regular(path, MOST_MANIFEST_BYTES), fetch


def _list_at(address: str, attempts: int) -> tuple[bytes, _Fetch]:
    def read(url: str) -> bytes:
        if is_exposed(url):
            raise DownloadError("it is at http:// of another machine, where others can change it; take https://")
        content = BytesIO()
        download(_TITLE, lambda: Link(url, {}, is_pinned=False), content, None, threading.Event(), attempts=attempts)
        return content.getvalue()

    def fetch(location: str, size: int, file: BinaryIO) -> None:
        url = urljoin(base, quote(location))
        download(_TITLE, lambda: Link(url, {}, is_pinned=True), file, size, threading.Event())

    found = read(address)
    base = address
    if not address.endswith(".json"):
        root = re.match(r"https?://[^/]+/v\d+/", address)
        try:
            root_said = parse_json(read(root[0] if root else address))
            base = str(root_said["capabilities"]["attachments"]["base_url"]).rstrip("/") + "/"
        except (ValueError, KeyError, TypeError):
            raise DownloadError("its server does not say where the files are") from None
        if not re.match("https?://", base):
            raise DownloadError("its server does not say where the files are")
    return found, fetch
