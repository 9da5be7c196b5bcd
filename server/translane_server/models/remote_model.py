"""Models whose bundles are at URLs: where the newest version is in the cache, and how it gets there."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import SEEK_END, BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from translane.progress import Progress
from translane_server.bundle.bundle import MANIFEST, file_entry, load_bundle, parse_manifest
from translane_server.bundle.manifest import FileEntry, Manifest
from translane_server.core.errors import BundleError
from translane_server.core.files import flush
from translane_server.models.cache import Hold, ModelCache, cache_of
from translane_server.models.download import ATTEMPTS, DownloadError, Link, download, links_of
from translane_server.settings.model_sources import ModelUrl, RemotePlace
from translane_server.settings.server_settings import ServerSettings

_MOST_FILES = 1_000

_log = logging.getLogger(__name__)


class RemoteModel:
    """A model at a URL. Its methods block, but for `close`, and any thread may call them.

    A URL with a digest has one version. A URL without a digest is asked for its version by each `refresh`.
    `attempts` are those of its manifest.
    """

    def __init__(self, url: ModelUrl, cache: ModelCache, attempts: int = ATTEMPTS) -> None:
        # the newest version, once it is in the cache. Without a digest this is a link, which moves
        self.folder = cache.bundle(url.digest) if url.digest else cache.link(url.key)
        self._url = url
        self._cache = cache
        self._attempts = attempts
        self._stop = threading.Event()
        self._link: Callable[[str], Link] | None = None  # gives the address of a file
        self._newest: Hold | None = None
        self._turn = threading.Lock()

    def refresh(self, *, or_keep: bool = False) -> str:
        """Have the newest version in the cache, where it stays at least until the next refresh.

        A version that is there is not downloaded again. With `or_keep`, the version of the last download stays if no
        newer one can be fetched, and the log has the reason. Returns the sha256 of its manifest.

        Raises:
            BundleError: the version cannot be fetched, or is not the one that the digests say. What was in the cache
                is still there.
        """
        try:
            hold = self._fetch()
        except BundleError as error:
            with self._errors():
                kept = self._cache.hold(self.folder.resolve().name) if or_keep else None
            if kept is None:
                raise
            _log.warning("%s; the version of the last download goes on", error)
            hold = kept
        self._keep(hold)
        return hold.folder.name

    def hold(self, folder: Path) -> Hold:
        """Keep a version in the cache until the hold is released.

        Raises:
            BundleError: its manifest is not that of its digest any more. Digests of other files are in the manifest.
        """
        with self._errors():
            if hold := self._cache.hold(folder.resolve().name):
                return hold
        raise BundleError(f"model bundle {folder}: {MANIFEST} is not the one that was downloaded")

    def mend(self) -> bool:
        """Download the newest version again if it is broken; return whether it was. Raises BundleError."""
        if self._newest is None:
            return False
        try:
            load_bundle(self._newest.folder)
        except BundleError as error:
            _log.warning("%s; it is downloaded again", error)
            self._keep(self._fetch(again=True))
            return True
        return False

    def close(self) -> None:
        """Give up a download that runs, start no other one, and let the newest version be removed."""
        self._stop.set()
        self._keep(None)

    def _keep(self, hold: Hold | None) -> None:
        with self._turn:
            old, self._newest = self._newest, hold
        if old:
            old.release()

    def _fetch(self, *, again: bool = False) -> Hold:
        """Return the version of the URL, from the cache if it is there, unless it is wanted `again`."""
        url, cache = self._url, self._cache
        with self._errors():
            if url.digest and not again and (hold := cache.hold(url.digest)):
                return hold
            file = BytesIO()
            self._download(MANIFEST, file, attempts=self._attempts)
            content = file.getvalue()
            digest = hashlib.sha256(content).hexdigest()
            if url.digest and digest != url.digest:
                raise BundleError(f"model bundle {url}: the sha256 of {MANIFEST} there is {digest}")
            manifest = parse_manifest(content, str(url))
            _check_files(manifest, url)
            hold = None if again else cache.hold(digest)
            if hold is None:
                with cache.locked(self._stop):
                    hold = None if again else cache.hold(digest)  # another process may have brought it
                    hold = hold or self._fill(digest, content, manifest)
            if not url.digest and self.folder.resolve() != hold.folder.resolve():
                with cache.locked(self._stop):
                    cache.point(url.key, digest)
            return hold

    def _fill(self, digest: str, content: bytes, manifest: Manifest) -> Hold:
        """Download a bundle, and put it at its place. The lock is held."""
        begin, size = time.monotonic(), sum(entry.size for entry in manifest.files.values())
        folder = self._cache.begin(digest, size + len(content))
        _log.info("model bundle %s: downloading %d files of %d bytes", self._url, len(manifest.files), size)
        progress = Progress(
            "bytes", total=size, stream=sys.stderr, say=lambda line: _log.info("model bundle %s: %s", self._url, line)
        )
        for name, entry in sorted(manifest.files.items()):
            self._get(name, entry, folder / name, progress)
        progress.close()
        (folder / MANIFEST).write_bytes(content)
        flush(folder / MANIFEST)
        hold = self._cache.finish(digest)
        seconds = time.monotonic() - begin
        _log.info("model bundle %s: downloaded sha256:%s in %.1f s", self._url, digest, seconds)
        return hold

    def _get(self, name: str, entry: FileEntry, target: Path, progress: Progress) -> None:
        """Download a file of the bundle. A part that a killed server left is used if the whole is right with it."""
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        before = progress.count

        def tell() -> None:
            progress.add(before + target.stat().st_size - progress.count)

        for _ in range(2):
            with target.open("r+b") as file:
                is_new = file.seek(0, SEEK_END) == 0
                self._download(name, file, entry.size, tell)
            flush(target)
            found = file_entry(target)
            if found == entry:
                tell()
                return
            os.truncate(target, 0)
            if is_new:
                break
        raise BundleError(
            f"model bundle {self._url}: {name} is not the file that was exported: its sha256 there is {found.sha256},"
            f" and {MANIFEST} lists {entry.sha256}"
        )

    def _download(
        self,
        name: str,
        file: BinaryIO,
        size: int | None = None,
        tell: Callable[[], None] = lambda: None,
        attempts: int = ATTEMPTS,
    ) -> None:
        title = f"model bundle {self._url}: {name}"
        with self._errors(f"{name}: "):
            self._link = self._link or links_of(self._url)
            download(title, partial(self._link, name), file, size, self._stop, tell, attempts)

    @contextmanager
    def _errors(self, about: str = "") -> Iterator[None]:
        try:
            with self._cache.errors():
                yield
        except DownloadError as error:
            raise BundleError(f"model bundle {self._url}: {about}{error}") from None


def remote_models(settings: ServerSettings) -> dict[RemotePlace, RemoteModel]:
    """Return the models of `settings` that are at URLs. None of them is fetched yet.

    Raises BundleError if the model cache cannot be used.
    """
    places = [place for place in settings.model or () if isinstance(place, RemotePlace)]
    if not places:
        return {}
    cache = cache_of(settings)
    models = {url: RemoteModel(url, cache) for url in {place.url for place in places}}
    return {place: models[place.url] for place in places}


def _check_files(manifest: Manifest, url: ModelUrl) -> None:
    """Refuse names that are no files of their own. That no name leaves the bundle is checked with the manifest."""
    if len(manifest.files) > _MOST_FILES:
        raise BundleError(f"model bundle {url}: {len(manifest.files):,} files, at most {_MOST_FILES:,} are accepted")
    for name in manifest.files:
        path = PurePosixPath(name)
        within = any(str(parent) in manifest.files or str(parent) == MANIFEST for parent in path.parents)
        if within or str(path) != name or name in (".", MANIFEST):
            raise BundleError(f"model bundle {url}: {MANIFEST} lists {name!r}, which is no file of its own")
