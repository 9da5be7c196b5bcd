"""Loads versions of a model: finds the highest one, checks its bundle, and starts it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from translane_server.bundle.choice import choose_bundle
from translane_server.core.errors import BundleError, StartupError
from translane_server.models.checked_model import CheckedModel, answer_cache, make_dispatcher
from translane_server.models.folders import fingerprint, manifest_names, pinned, versions
from translane_server.models.limits import limits_of
from translane_server.models.loaded_model import LoadedModel
from translane_server.models.remote_model import RemoteModel
from translane_server.observation.logs import data
from translane_server.observation.model_metrics import ModelMetrics
from translane_server.settings.server_settings import ServerSettings
from translane_server.text.stored_glossaries import StoredGlossaries
from translane_server.text.tokenizer import load_tokenizer
from translane_server.translation.tokenizer_pool import TokenizerPool

_log = logging.getLogger(__name__)


class ModelLoader:
    """Loads the versions of one model.

    Args:
        name: the name under which the model is served.
        folder: the model's folder; see `folders`.
        settings: the settings of this model.
        metrics: the metrics of this model.
        cpus: returns the number of CPUs of this model.
        pool: turns texts into tokens, and tokens into texts.
        named_by_manifest: whether `name` is the name in the manifest. A version with another name is then refused.
        stored: returns the glossaries of the server.
        remote: brings new versions from a URL into the folder; None if other people bring them.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: ServerSettings,
        metrics: ModelMetrics,
        cpus: Callable[[], int],
        pool: TokenizerPool,
        *,
        named_by_manifest: bool = False,
        stored: Callable[[], StoredGlossaries] = StoredGlossaries,
        remote: RemoteModel | None = None,
    ) -> None:
        self._name = name
        self._stored = stored
        self._folder = folder
        self._settings = settings
        self._metrics = metrics
        self._cpus = cpus
        self._pool = pool
        self._named_by_manifest = named_by_manifest
        self._remote = remote
        self._checked: CheckedModel | None = None  # the first version, until it is loaded

    def check(self) -> CheckedModel:
        """Check the files of the highest version, or of the next one if it is bad. The next `load` takes that version.

        Raises:
            StartupError: no version is valid; the message is about the highest one.
        """
        refused: list[StartupError] = []
        for version in versions(self._folder):
            try:
                self._checked = self._check(version)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                return self._checked
        raise refused[0]

    async def load(self, running: str = "") -> LoadedModel | None:
        """Load the highest version that is valid and starts.

        Args:
            running: fingerprint of the version that is loaded. Versions below it are not tried.

        Returns:
            The started model; or None if the highest version is the one that is loaded.

        Raises:
            StartupError: no version can be loaded, or none above the one that is loaded. The message is about the
                highest version.
        """
        await self._refresh(keeps_running=bool(running))
        refused: list[StartupError] = []
        for version in await asyncio.to_thread(versions, self._folder):
            try:
                if running and await asyncio.to_thread(_fingerprint, version) == running:
                    break
                loaded = await self._load(version)
            except StartupError as error:
                refused.append(error)
            else:
                self._tell(refused)
                return loaded
        if refused:
            raise refused[0]
        return None

    async def _refresh(self, *, keeps_running: bool) -> None:
        """Bring the newest version of a URL into the folder.

        Raises:
            BundleError: that fails, and a version runs, or there is none to load.
        """
        if self._remote is None or self._checked is not None:
            return
        try:
            await asyncio.to_thread(self._remote.refresh, or_keep=not keeps_running)
        except asyncio.CancelledError:
            self._remote.close()  # the server stops, and the thread must not go on
            raise

    async def _load(self, version: Path) -> LoadedModel:
        checked, self._checked = self._checked, None
        if checked is None or checked.fingerprint != await asyncio.to_thread(_fingerprint, version):
            checked = await asyncio.to_thread(self._check, version)
        hold = await asyncio.to_thread(self._remote.hold, checked.bundle.folder) if self._remote else None
        release = hold.release if hold else lambda: None
        try:
            return await self._start(checked, release)
        except BaseException:
            release()
            raise

    async def _start(self, checked: CheckedModel, release: Callable[[], None]) -> LoadedModel:
        dispatcher, pids = make_dispatcher(self._name, self._settings, checked, self._metrics, self._cpus())
        loaded = LoadedModel(
            self._name,
            checked.bundle.manifest,
            checked.tokenizer,
            checked.device,
            checked.limits,
            dispatcher,
            self._metrics,
            self._pool,
            fingerprint=checked.fingerprint,
            pids=pids,
            stored=self._stored,
            answers=answer_cache(self._settings, self._metrics, self._stored),
            release=release,
        )
        await loaded.start()
        return loaded

    def _check(self, version: Path) -> CheckedModel:
        try:
            return self._check_files(version)
        except BundleError:
            if self._remote is None or not self._remote.mend():
                raise
        return self._check_files(version)

    def _check_files(self, version: Path) -> CheckedModel:
        # The manifest may be replaced while the files are checked. Then the fingerprint is that of the older manifest,
        # and the next reload finds a difference.
        folder = pinned(version)
        found = fingerprint(folder)
        if self._remote:
            self._remote.hold(folder).release()
        bundle, device = choose_bundle(folder, self._settings.device)
        manifest = bundle.manifest
        with bundle.unchanged(manifest.tokenizer.files):
            tokenizer = load_tokenizer(bundle)
        if self._named_by_manifest and self._name not in manifest_names(folder):
            raise BundleError(f"model bundle {version}: its name is {manifest.name}, and {self._name} is served")
        return CheckedModel(bundle, device, tokenizer, limits_of(self._settings, manifest), found)

    def _tell(self, refused: list[StartupError]) -> None:
        for error in refused:
            _log.warning("a version is refused, and a lower one taken: %s", error, extra=data(model=self._name))


def _fingerprint(version: Path) -> str:
    return fingerprint(pinned(version))
