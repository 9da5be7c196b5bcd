"""The folder of downloaded bundles. Several servers of a machine may use it at once.

::

    bundles/DIGEST/       a whole bundle, named after the sha256 of its manifest
    exported/NAME/        a bundle of a checkpoint that was exported here: see `checkpoints`
    exported/NAME.lock    is locked while the bundle is exported, into a folder .NAME.LETTERS
    firefox/NAME/         files of one of Firefox's models; beside them their lists: see `firefox`
    holds/NAME            is locked by whoever uses what has this name; its time is that of the last use
    urls/KEY              a link to the bundle that a URL without a digest led to last
    unfinished/DIGEST/    a bundle that is being downloaded, or that a killed server left
    unfinished/removed-*  what is being removed, or what a killed server left of it
    lock                  is locked by the only process that changes the folder

Locks are those of the kernel (flock), so a process that is killed holds nothing.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from translane_server.bundle.bundle import MANIFEST, file_entry
from translane_server.core.errors import BundleError
from translane_server.core.files import flush_folder
from translane_server.models.download import GIVEN_UP, DownloadError
from translane_server.settings.server_settings import ServerSettings

_TICK = 0.05  # from one look at a lock to the next [seconds]

_log = logging.getLogger(__name__)


def model_cache(folder: Path | None = None) -> Path:
    """Return the folder of the model cache: the one of the settings, or else one within the user's folder of caches.

    https://specifications.freedesktop.org/basedir-spec/ has the variable of the environment that names the latter.

    Raises:
        BundleError: the user has no home to have it in.
    """
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    folder = folder or (base if base.is_absolute() else Path("~/.cache")) / "translane" / "models"
    try:
        return folder.expanduser().absolute()
    except RuntimeError:
        raise BundleError(f"model cache {folder}: the user has no home; --model-cache names a folder") from None


class Hold:
    """What stays in the cache until `release`, or until nobody has this object any more."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._close = weakref.finalize(self, os.close, descriptor)

    def release(self) -> None:
        """Hold it no longer."""
        self._close()


class ModelCache:
    """The folder of downloaded bundles, which is made if it is missing. Raises BundleError if it cannot be made."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self.exported, self.firefox = folder / "exported", folder / "firefox"
        self._bundles, self._holds, self._urls, self._unfinished = (
            self.folder / name for name in ("bundles", "holds", "urls", "unfinished")
        )
        with self.errors():
            for each in (self._bundles, self._holds, self._urls, self._unfinished):
                each.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Raise what the file system raises as a BundleError."""
        try:
            yield
        except OSError as error:
            raise BundleError(
                f"model cache {self.folder}: it cannot be used: {error.strerror or type(error).__name__}"
            ) from None

    def bundle(self, digest: str) -> Path:
        """The folder of a bundle, which may be missing. `digest` is that of its manifest."""
        return self._bundles / digest

    def link(self, key: str) -> Path:
        """The link to the bundle that a URL led to last, which may be missing."""
        return self._urls / key

    def hold(self, digest: str) -> Hold | None:
        """Keep a bundle from being removed, and count it as used now; None if it is not there.

        A bundle whose manifest is not that of the digest is not there. Other files are checked when they are loaded.
        """
        try:
            hold = self._held(self.bundle(digest))
            return hold if file_entry(hold.folder / MANIFEST).sha256 == digest else None
        except FileNotFoundError:
            return None

    def keep(self, folder: Path) -> Hold | None:
        """Keep a folder of `exported` or `firefox`, which may be missing yet, and count it as used now.

        None: others have filled the cache, and it is only read, so nothing is removed.
        """
        try:
            return self._held(folder, os.O_CREAT)
        except OSError:
            return None

    def _held(self, folder: Path, flags: int = 0) -> Hold:
        """Wait until nobody removes a folder, hold it, and count it as used now."""
        descriptor = os.open(self._holds / folder.name, os.O_RDONLY | os.O_CLOEXEC | flags, 0o666)
        hold = Hold(folder, descriptor)
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        with suppress(OSError):  # a folder that others have filled, and that is only read
            os.utime(descriptor)
        return hold

    @contextmanager
    def locked(self, stop: threading.Event) -> Iterator[None]:
        """Wait until no other process changes the folder, and keep others from changing it.

        Raises DownloadError if `stop` is set meanwhile.
        """
        with (self.folder / "lock").open("a") as file:
            if not _try_lock(file.fileno()):
                _log.info("model cache %s: another process downloads a bundle; waiting", self.folder)
                while not _try_lock(file.fileno()):
                    if stop.wait(_TICK):
                        raise DownloadError(GIVEN_UP)
            yield

    def begin(self, digest: str, size: int) -> Path:
        """Make room for a bundle of `size` bytes, and return the folder for its files. The lock is held.

        What killed servers left of other bundles is removed. Raises BundleError if there is not enough room.
        """
        new = self._unfinished / digest
        new.mkdir(exist_ok=True)
        self._make_room(size - _size(new), digest)
        return new

    def trim(self) -> None:
        """Remove what nobody uses of what is too much, unless another process changes the folder now.

        What is in use may be too much.
        """
        with suppress(BundleError), self.errors(), (self.folder / "lock").open("a") as file:
            if _try_lock(file.fileno()):
                self._make_room(0)

    def _make_room(self, size: int, digest: str = "") -> None:
        """Remove leftovers, then what nobody holds, what was not used for longest first, until `size` bytes are free.

        What the bundle `digest` has so far is no leftover, and what it replaces does not count. The lock is held.

        Raises:
            BundleError: there is not enough room.
        """
        self._remove_leftovers(digest)
        used, beside = _size(self._unfinished), self.bundle(digest)
        exported = [path for kind in (self.exported, self.firefox) for path in kind.glob("[!.]*") if path.is_dir()]
        sizes = {path: _size(path) for path in (*self._bundles.iterdir(), *exported) if path != beside}
        used_at = {path.name: path.stat().st_mtime for path in self._holds.iterdir()}
        unused = sorted(sizes, key=lambda path: used_at.get(path.name) or path.stat().st_mtime)
        while (free := self._free(used + sum(sizes.values()))) < size:
            if not unused:
                raise BundleError(
                    f"model cache {self.folder}: {size:,} bytes are needed, and {max(free, 0):,} are free on the disk"
                    f" and within --model-cache-bytes ({self._most_bytes:,}), beside the models in use"
                )
            if self._remove_unused(unused[0]):
                _log.info("model cache %s: removed %s", self.folder, unused[0].relative_to(self.folder))
                del sizes[unused[0]]
            del unused[0]

    def _remove_leftovers(self, digest: str) -> None:
        """Remove what killed downloads of other bundles, removals and exports left. What cannot be removed stays."""
        for leftover in self._unfinished.iterdir():
            if leftover.name != digest:
                with suppress(OSError):
                    _remove(leftover)
        for staging in self.exported.glob(".*.*"):
            lock = self.exported / f"{staging.name[1:].rpartition('.')[0]}.lock"
            # For this kind of lock NFS wants a file that is open for writing. Without the file it is no export's.
            with suppress(OSError), lock.open("r+b") as file:
                if _try_lock(file.fileno()):
                    _remove(staging)

    def finish(self, digest: str) -> Hold:
        """Put a bundle whose files are all there in the place of a broken one or of none, and hold it.

        The lock is held. Who has opened files of the broken bundle keeps them.
        """
        bundle, broken = self.bundle(digest), self._removed(digest)
        (self._holds / digest).touch()
        if bundle.exists():
            bundle.rename(broken)
        (self._unfinished / digest).rename(bundle)
        flush_folder(self._bundles)
        _remove(broken)
        hold = self.hold(digest)
        assert hold is not None, "nobody else removes a bundle while the lock is held"
        return hold

    def point(self, key: str, digest: str) -> None:
        """Let the URL with this key lead to a bundle. The lock is held."""
        new = self._unfinished / "link"
        new.unlink(missing_ok=True)
        new.symlink_to(os.path.relpath(self.bundle(digest), self._urls))
        new.replace(self.link(key))

    def _free(self, used: int) -> int:
        """How many bytes may be written, if the bundles have `used` bytes."""
        return min(self._most_bytes - used, shutil.disk_usage(self.folder).free)

    def _removed(self, name: str) -> Path:
        """Where to move what is to be removed. Something of this name may be left that could not be removed."""
        return self._unfinished / f"removed-{name}-{token_hex(4)}"

    def _remove_unused(self, path: Path) -> bool:
        # For this kind of lock NFS wants a file that is open for writing.
        with (self._holds / path.name).open("a") as file:
            if not _try_lock(file.fileno()):
                return False
            gone = path.rename(self._removed(path.name))
        _remove(gone)
        return True


def cache_of(settings: ServerSettings) -> ModelCache:
    """The model cache of the settings. Raises BundleError if it cannot be used."""
    return ModelCache(model_cache(settings.model_cache), settings.model_cache_bytes)


def _try_lock(descriptor: int) -> bool:
    """Lock a file for this process alone, until it is closed; return whether nobody else holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in (path, *path.rglob("*")) if each.is_file())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
