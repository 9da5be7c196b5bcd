"""Fetches the bundle of a URL into the model cache."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from translane_server.bundle import MANIFEST, file_entry, parse_manifest
from translane_server.errors import BundleError
from translane_server.manifest import FileEntry, Manifest
from translane_server.model_urls import ModelUrl
from translane_server.printable import listed
from translane_server.store.cache import ModelCache
from translane_server.store.downloads import Bounds, Patience, download
from translane_server.store.links import links_of
from translane_server.store.locks import Hold
from translane_server.store.problems import DownloadError
from translane_server.store.transfers import Link
from translane_server.whole_files import flush_folder

MOST_MANIFEST_BYTES = 1 << 24
MOST_FILES = 1_000

_PART = "part"  # the file that arrives; beside the folder of the files that have arrived
_FILES = "files"

_log = logging.getLogger(__name__)


class Fetch:
    """Fetches the bundle of a URL.

    Args:
        url: the URL.
        cache: keeps the bundle.
        stop: is set when nobody wants the bundle any more.
        patience: how long downloads may take.
    """

    def __init__(self, url: ModelUrl, cache: ModelCache, stop: threading.Event, patience: Patience) -> None:
        self._url = url
        self._cache = cache
        self._stop = stop
        self._patience = patience

    def run(self, *, mends: bool = False) -> Hold:
        """Return the bundle in the cache. A bundle that is there is not asked for again.

        Args:
            mends: whether the files of the bundle in the cache are looked at, too. Broken ones are downloaded again.

        Raises:
            BundleError: the bundle cannot be fetched, or it is not the one that the digests say.
        """
        with self._errors():
            if self._url.digest and not mends and (hold := self._cache.hold(self._url.digest)):
                return hold
            with self._about(MANIFEST):
                links = links_of(self._url)
            content = self._manifest(links)
            digest = hashlib.sha256(content).hexdigest()
            if self._url.digest and digest != self._url.digest:
                raise BundleError(f"model bundle {self._url}: the sha256 of {MANIFEST} there is {digest}")
            manifest = parse_manifest(content, str(self._url))
            _check_files(manifest, self._url)
            hold = None if mends else self._cache.hold(digest)
            if hold is None:
                with self._cache.locked(self._stop):
                    hold = None if mends else self._cache.hold(digest)
                    hold = hold or self._fill(digest, content, manifest, links)
            if not self._url.digest:
                self._point(hold)
            return hold

    def is_broken(self, digest: str) -> bool:
        """Look at all files of the cached bundle; return whether any of them is missing or is another file.

        Raises:
            BundleError: the cache cannot be used. That says nothing about the files.
        """
        folder = self._cache.bundle(digest)
        with self._errors():
            broken = [MANIFEST]
            if content := self._cache.manifest(digest):
                broken = _broken(folder, parse_manifest(content, str(folder)))
        if broken:
            names = listed(broken)
            _log.warning("model cache %s: the bundle sha256:%s has broken files: %s", self._cache.folder, digest, names)
        return bool(broken)

    def _manifest(self, links: Callable[[str], Link]) -> bytes:
        content = BytesIO()
        self._download(MANIFEST, partial(links, MANIFEST), content, Bounds(None, MOST_MANIFEST_BYTES))
        return content.getvalue()

    def _download(self, name: str, link: Callable[[], Link], file: BinaryIO, bounds: Bounds) -> None:
        with self._about(name):
            download(f"model bundle {self._url}: {name}", link, file, bounds, self._stop, self._patience)

    def _fill(self, digest: str, content: bytes, manifest: Manifest, links: Callable[[str], Link]) -> Hold:
        """Download what a bundle lacks, and put it at its place.

        Others may hold a bundle that is there already. So it stays there, and each broken file is replaced at once, by
        a renaming.
        """
        cache, begin = self._cache, time.monotonic()
        work, bundle = cache.unfinished(digest), cache.bundle(digest)
        work.mkdir(exist_ok=True)
        if is_there := bundle.is_dir():
            files, lacking = bundle, _broken(bundle, manifest)
            for name in lacking:
                cache.forget(manifest.files[name])
        else:
            files = work / _FILES
            files.mkdir(exist_ok=True)
            lacking = [name for name, entry in sorted(manifest.files.items()) if not self._has(files / name, entry)]
        size = sum({manifest.files[name].sha256: manifest.files[name].size for name in lacking}.values())
        cache.make_room(size + len(content), digest)
        _log.info("model bundle %s: downloading %d files of %d bytes", self._url, len(lacking), size)
        for name in lacking:
            self._get(name, manifest.files[name], files / name, work, partial(links, name))
        if cache.manifest(digest) is None:
            _write_manifest(files / MANIFEST, content)
        if not is_there:
            files.rename(bundle)
        flush_folder(bundle.parent)
        shutil.rmtree(work, ignore_errors=True)
        hold = cache.hold(digest)
        assert hold is not None, "nobody else removes a bundle while the lock is held"
        seconds = time.monotonic() - begin
        _log.info("model bundle %s: downloaded sha256:%s in %.1f s", self._url, digest, seconds)
        return hold

    def _point(self, hold: Hold) -> None:
        """Remember that the URL leads to this bundle."""
        try:
            if self._cache.link(self._url.key).resolve() != hold.folder.resolve():
                with self._cache.locked(self._stop):
                    self._cache.point(self._url.key, hold.folder.name)
        except BaseException:
            hold.release()
            raise

    def _has(self, target: Path, entry: FileEntry) -> bool:
        """Whether a file of a new bundle is at its place, or is in the cache and put there."""
        if target.is_file() and target.stat().st_size == entry.size:
            return True
        return self._cache.take(entry, target)

    def _get(self, name: str, entry: FileEntry, target: Path, work: Path, link: Callable[[], Link]) -> None:
        """Download a file of the bundle. A part that a killed server left is used if the whole is right with it."""
        if self._cache.take(entry, target):  # the bundle has the same file under two names
            return
        part = work / f"{_PART}-{entry.sha256}"
        for _ in range(2):
            part.touch()
            with part.open("r+b") as file:
                begins_anew = file.seek(0, os.SEEK_END) == 0
                self._download(name, link, file, Bounds(entry.size, entry.size))
                file.flush()
                os.fsync(file.fileno())
            found = file_entry(part)
            if found == entry:
                part.replace(target)
                self._cache.give(entry, target)
                return
            part.unlink()
            if begins_anew:
                break
        raise BundleError(
            f"model bundle {self._url}: {name} is not the file that was exported: its sha256 there is {found.sha256},"
            f" and {MANIFEST} lists {entry.sha256}"
        )

    @contextmanager
    def _about(self, name: str) -> Iterator[None]:
        try:
            yield
        except DownloadError as error:
            raise BundleError(f"model bundle {self._url}: {name}: {error}") from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            with self._cache.errors():
                yield
        except DownloadError as error:
            raise BundleError(f"model bundle {self._url}: {error}") from None


def _check_files(manifest: Manifest, url: ModelUrl) -> None:
    """Refuse names that are no files of their own, and sizes that contradict each other.

    That no name leaves the bundle is checked with the manifest.
    """
    if len(manifest.files) > MOST_FILES:
        raise BundleError(f"model bundle {url}: {len(manifest.files):,} files, at most {MOST_FILES:,} are accepted")
    sizes: dict[str, int] = {}  # by sha256
    for name, entry in manifest.files.items():
        path = PurePosixPath(name)
        within = any(str(parent) in manifest.files or str(parent) == MANIFEST for parent in path.parents)
        if within or str(path) != name or name in (".", MANIFEST):
            raise BundleError(f"model bundle {url}: {MANIFEST} lists {name!r}, which is no file of its own")
        if sizes.setdefault(entry.sha256, entry.size) != entry.size:
            raise BundleError(f"model bundle {url}: {MANIFEST} lists {name!r} and the same file with another size")


def _broken(folder: Path, manifest: Manifest) -> list[str]:
    """The files that `folder` lacks, or has with another content. Raises OSError where a file cannot be read."""
    return [name for name, entry in sorted(manifest.files.items()) if not _is(folder / name, entry)]


def _is(path: Path, entry: FileEntry) -> bool:
    try:
        return path.stat().st_size == entry.size and file_entry(path) == entry
    except FileNotFoundError:
        return False


def _write_manifest(path: Path, content: bytes) -> None:
    """Write a manifest into the file that is there, if there is one: those who hold the bundle have locked this file.

    A part of a manifest has another digest, so nobody takes it for the whole.
    """
    with path.open("r+b" if path.exists() else "xb") as file:
        file.write(content)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())
