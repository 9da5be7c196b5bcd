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
from translane_server.whole_files import flush, flush_folder

MOST_MANIFEST_BYTES = 1 << 24
MOST_FILES = 1_000

_PART = "part"  # the file that arrives; beside the folder of the files that have arrived
_FILES = "files"
_NEW_MANIFEST = "manifest"

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

    def run(self) -> Hold:
        """Return the bundle in the cache. A bundle that is there is not asked for again.

        Raises:
            BundleError: the bundle cannot be fetched, or it is not the one that the digests say.
        """
        with self._errors():
            if self._url.digest and (hold := self._cache.hold(self._url.digest)):
                return hold
            with self._about(MANIFEST):
                links = links_of(self._url)
            content = self._manifest(links)
            digest = hashlib.sha256(content).hexdigest()
            if self._url.digest and digest != self._url.digest:
                raise BundleError(f"model bundle {self._url}: the sha256 of {MANIFEST} there is {digest}")
            manifest = parse_manifest(content, str(self._url))
            _check_files(manifest, self._url)
            hold = self._cache.hold(digest)
            if hold is None:
                with self._cache.locked(self._stop):
                    hold = self._cache.hold(digest) or self._fill(digest, content, manifest, links)
            if not self._url.digest:
                self._point(hold)
            return hold

    def mend(self, digest: str) -> bool:
        """Look for broken files in the cached bundle; return whether there were any. The next `run` replaces them.

        Raises:
            BundleError: the cache cannot be used.
        """
        folder, work = self._cache.bundle(digest), self._cache.unfinished(digest)
        with self._errors(), self._cache.locked(self._stop):
            try:
                content = (folder / MANIFEST).read_bytes()
            except FileNotFoundError:
                return True  # it is not there any more
            broken: list[str] = [MANIFEST]
            if hashlib.sha256(content).hexdigest() == digest:
                files = parse_manifest(content, str(folder)).files
                broken = [name for name, entry in files.items() if not _is(folder / name, entry)]
                for name in broken:
                    self._cache.forget(files[name])
            if not broken:
                return False
            names = listed(broken)
            _log.warning("model cache %s: the bundle sha256:%s has broken files: %s", self._cache.folder, digest, names)
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            folder.rename(work / _FILES)
            for name in broken:
                (work / _FILES / name).unlink(missing_ok=True)
            return True

    def _manifest(self, links: Callable[[str], Link]) -> bytes:
        content = BytesIO()
        self._download(MANIFEST, partial(links, MANIFEST), content, Bounds(None, MOST_MANIFEST_BYTES))
        return content.getvalue()

    def _download(self, name: str, link: Callable[[], Link], file: BinaryIO, bounds: Bounds) -> None:
        with self._about(name):
            download(f"model bundle {self._url}: {name}", link, file, bounds, self._stop, self._patience)

    def _fill(self, digest: str, content: bytes, manifest: Manifest, links: Callable[[str], Link]) -> Hold:
        """Download what is missing of a bundle, and put it at its place."""
        cache, begin = self._cache, time.monotonic()
        work = cache.unfinished(digest)
        files = work / _FILES
        files.mkdir(parents=True, exist_ok=True)
        missing = {name: entry for name, entry in sorted(manifest.files.items()) if not self._has(files / name, entry)}
        size = sum({entry.sha256: entry.size for entry in missing.values()}.values())
        cache.make_room(size + len(content), digest)
        _log.info("model bundle %s: downloading %d files of %d bytes", self._url, len(missing), size)
        for name, entry in missing.items():
            self._get(name, entry, work, partial(links, name))
        if not (files / MANIFEST).exists():  # else others may hold it, and its bundle was mended
            (work / _NEW_MANIFEST).write_bytes(content)
            flush(work / _NEW_MANIFEST)
            (work / _NEW_MANIFEST).rename(files / MANIFEST)
        shutil.rmtree(cache.bundle(digest), ignore_errors=True)  # a folder without a manifest
        files.rename(cache.bundle(digest))
        flush_folder(cache.bundle(digest).parent)
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
        """Whether a file of the bundle is at its place, or is in the cache and put there."""
        if target.is_file() and target.stat().st_size == entry.size:
            return True
        target.unlink(missing_ok=True)
        return self._cache.take(entry, target)

    def _get(self, name: str, entry: FileEntry, work: Path, link: Callable[[], Link]) -> None:
        """Download a file of the bundle. A part that a killed server left is used if the whole is right with it."""
        target = work / _FILES / name
        if self._has(target, entry):  # the bundle has the same file under two names
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
                part.rename(target)
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


def _is(path: Path, entry: FileEntry) -> bool:
    try:
        return file_entry(path) == entry
    except OSError:
        return False
