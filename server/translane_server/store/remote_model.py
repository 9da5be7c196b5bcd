"""Models whose bundles are at URLs: where the newest version is in the cache, and how it gets there."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

from translane_server.bundle import MANIFEST
from translane_server.errors import BundleError
from translane_server.model_places import RemotePlace
from translane_server.model_urls import ModelUrl
from translane_server.settings import ServerSettings
from translane_server.store.cache import ModelCache
from translane_server.store.downloads import Patience
from translane_server.store.fetch import Fetch
from translane_server.store.locks import Hold

# Where bundles are kept without the setting model_cache.
_DEFAULT_CACHE = Path("~/.cache/translane/models")

_log = logging.getLogger(__name__)


class RemoteModel:
    """A model at a URL. Its methods block, but for `close`, and any thread may call them.

    A URL with a digest has one version. A URL without a digest is asked for its version by each `refresh`.

    Args:
        url: the URL of the bundle.
        cache: keeps the bundle.
        patience: how long downloads may take.

    Attributes:
        folder: the newest version, once it is in the cache. Without a digest this is a link, which moves.
    """

    def __init__(self, url: ModelUrl, cache: ModelCache, patience: Patience | None = None) -> None:
        self.folder = cache.bundle(url.digest) if url.digest else cache.link(url.key)
        self._cache = cache
        self._stop = threading.Event()
        self._fetch = Fetch(url, cache, self._stop, patience or Patience())
        self._newest: Hold | None = None
        self._turn = threading.Lock()

    @property
    def is_cached(self) -> bool:
        """Whether any version is in the cache."""
        return (self.folder / MANIFEST).is_file()

    def refresh(self) -> str:
        """Have the newest version in the cache, where it stays at least until the next refresh.

        Returns:
            The sha256 of its manifest.

        Raises:
            BundleError: the version cannot be fetched. What was in the cache is still there.
        """
        return self._keep(self._fetch.run())

    def refresh_or_keep(self) -> str:
        """Refresh. If that fails, and a version is in the cache, log the reason and keep that version.

        Returns:
            The sha256 of the manifest.

        Raises:
            BundleError: there is no version.
        """
        try:
            return self.refresh()
        except BundleError as error:
            hold = self.hold(self.folder) if self.is_cached else None
            if hold is None:
                raise
            _log.warning("%s; the version of the last download goes on", error)
            return self._keep(hold)

    def hold(self, folder: Path) -> Hold | None:
        """Keep a version in the cache until the hold is released; None if it is not there."""
        with self._cache.errors():
            return self._cache.hold(folder.resolve().name)

    def check(self, folder: Path) -> None:
        """Refuse a version whose manifest is not that of its digest. Digests of other files are in the manifest.

        Raises:
            BundleError: it is another one.
        """
        with self._cache.errors():
            if self._cache.manifest(folder.resolve().name) is None:
                raise BundleError(f"model bundle {folder}: {MANIFEST} is not the one that was downloaded")

    def mend(self) -> bool:
        """Look for broken files of the newest version, and download them again; return whether there were any.

        Raises:
            BundleError: they cannot be downloaded.
        """
        newest = self._newest
        if newest is None or not self._fetch.is_broken(newest.folder.name):
            return False
        self._keep(self._fetch.run(mends=True))
        return True

    def close(self) -> None:
        """Give up a download that runs, start no other one, and let the newest version be removed."""
        self._stop.set()
        with self._turn:
            newest, self._newest = self._newest, None
        if newest:
            newest.release()

    def _keep(self, hold: Hold) -> str:
        with self._turn:
            old, self._newest = self._newest, hold
        if old:
            old.release()
        return hold.folder.name


def remote_models(settings: ServerSettings) -> dict[RemotePlace, RemoteModel]:
    """Return the models of `settings` that are at URLs. None of them is fetched yet.

    Raises:
        BundleError: the model cache cannot be used.
    """
    places = [place for place in settings.model or () if isinstance(place, RemotePlace)]
    if not places:
        return {}
    cache = ModelCache(settings.model_cache or _DEFAULT_CACHE, settings.model_cache_bytes)
    models = {url: RemoteModel(url, cache) for url in {place.url for place in places}}
    return {place: models[place.url] for place in places}
