"""The folder of downloaded bundles. Several servers of a machine may use it at once.

::

    blobs/DIGEST           a file of a bundle, named after its sha256
    bundles/DIGEST/        a whole bundle, named after the sha256 of its manifest; its files are links to blobs
    urls/KEY               a link to the bundle that a URL without a digest led to last
    unfinished/DIGEST/     a bundle that is being downloaded, or that a killed server left
    lock                   is locked by the only process that changes the folder

Links are hard links: a blob that no bundle has is a file with one name. A bundle appears at its place as a whole, by a
renaming. Whoever uses a bundle holds a shared lock on its manifest (`locks`), and a bundle that anybody holds is never
removed.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from translane_server.bundle import MANIFEST
from translane_server.errors import BundleError
from translane_server.files import MOST_DESCRIPTION_BYTES, read_regular
from translane_server.manifest import FileEntry
from translane_server.store.locks import Hold, locked, try_lock

_log = logging.getLogger(__name__)


class ModelCache:
    """The folder of downloaded bundles.

    Args:
        folder: the setting `model_cache`; is made if it is missing.
        most_bytes: the setting `model_cache_bytes`.

    Raises:
        BundleError: the folder cannot be made.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        try:
            self.folder = folder.expanduser().absolute()
        except RuntimeError:
            raise BundleError(f"model cache {folder}: the user has no home; --model-cache names a folder") from None
        self.most_bytes = most_bytes
        self._blobs, self._bundles, self._urls, self._unfinished = (
            self.folder / name for name in ("blobs", "bundles", "urls", "unfinished")
        )
        with self.errors():
            for each in (self._blobs, self._bundles, self._urls, self._unfinished):
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

    def unfinished(self, digest: str) -> Path:
        """The folder in which a bundle is put together."""
        return self._unfinished / digest

    def link(self, key: str) -> Path:
        """The link to the bundle that a URL led to last, which may be missing."""
        return self._urls / key

    def hold(self, digest: str) -> Hold | None:
        """Keep a bundle from being removed, and count it as used now; None if it is not there.

        A bundle whose manifest is not that of the digest is not there. Other files are checked when they are loaded.
        """
        hold = Hold.of(self.bundle(digest))
        if hold and self.manifest(digest) is None:
            hold.release()
            return None
        return hold

    def manifest(self, digest: str) -> bytes | None:
        """The manifest of a bundle; None if it is not there, or is another one."""
        try:
            content = read_regular(self.bundle(digest) / MANIFEST, MOST_DESCRIPTION_BYTES)
        except FileNotFoundError:
            return None
        return content if hashlib.sha256(content).hexdigest() == digest else None

    def locked(self, stop: threading.Event) -> AbstractContextManager[None]:
        """Wait until no other process changes the folder, and keep others from changing it: see `locks.locked`."""
        return locked(self.folder, stop)

    def take(self, entry: FileEntry, target: Path) -> bool:
        """Put a file that is here already at `target`, in place of what is there; return whether it is here.

        The folder of `target` is made if it is missing. The lock is held.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        blob = self._blobs / entry.sha256
        new = self._new_link()
        try:
            if blob.stat().st_size != entry.size:
                return False
            os.link(blob, new)
        except FileNotFoundError:
            return False
        new.replace(target)
        new.unlink(missing_ok=True)  # two names of one file stay two names
        return True

    def give(self, entry: FileEntry, file: Path) -> None:
        """Keep a file for other bundles, too. Its content is checked already. The lock is held."""
        blob = self._blobs / entry.sha256
        blob.unlink(missing_ok=True)  # one that is not what its name says
        os.link(file, blob)

    def forget(self, entry: FileEntry) -> None:
        """Keep a file that is broken no longer. The lock is held."""
        (self._blobs / entry.sha256).unlink(missing_ok=True)

    def point(self, key: str, digest: str) -> None:
        """Let the URL with this key lead to a bundle. The lock is held."""
        link = self.link(key)
        target = Path(os.path.relpath(self.bundle(digest), link.parent))
        new = self._new_link()
        new.symlink_to(target)
        new.replace(link)

    def make_room(self, size: int, digest: str) -> None:
        """Remove what killed servers left and, as far as `size` bytes need it, bundles that nobody holds.

        Those that were not used for longest go first. The lock is held.

        Args:
            size: number of bytes that will be written.
            digest: the bundle that they are for. What there is of it stays.

        Raises:
            BundleError: there is not enough room.
        """
        for leftover in self._unfinished.iterdir():
            if leftover.name != digest:
                _remove(leftover)
        free = self._room()
        candidates = sorted((each for each in self._bundles.iterdir() if each.name != digest), key=_last_use)
        while free < size and candidates:
            candidate = candidates.pop(0)
            if self._remove_unused(candidate):
                _log.info("model cache %s: removed the bundle sha256:%s", self.folder, candidate.name)
                free = self._room()
        if free < size:
            raise BundleError(
                f"model cache {self.folder}: {size:,} bytes are needed, and {max(free, 0):,} are free on the disk and"
                f" within --model-cache-bytes ({self.most_bytes:,}), beside the models in use"
            )

    def _new_link(self) -> Path:
        """A path without a file, for a link that is then renamed."""
        path = self._unfinished / f"link-{os.getpid()}-{threading.get_ident()}"
        path.unlink(missing_ok=True)
        return path

    def _room(self) -> int:
        """How many bytes may be written. Removes files that no bundle has."""
        used = 0
        for blob in self._blobs.iterdir():
            status = blob.stat()
            if status.st_nlink == 1:
                blob.unlink()
            else:
                used += status.st_size
        for bundle in self._bundles.iterdir():
            with suppress(FileNotFoundError, NotADirectoryError):
                used += (bundle / MANIFEST).stat().st_size
        return min(self.most_bytes - used, shutil.disk_usage(self.folder).free)

    def _remove_unused(self, folder: Path) -> bool:
        try:
            descriptor = os.open(folder / MANIFEST, os.O_RDWR | os.O_CLOEXEC)  # NFS locks files that are open for this
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):  # no bundle, so nobody holds it
            descriptor = -1
        try:
            if descriptor >= 0 and not try_lock(descriptor):
                return False
            gone = self._unfinished / f"removed-{folder.name}"
            _remove(gone)
            folder.rename(gone)
            _remove(gone)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return True


def _last_use(bundle: Path) -> float:
    try:
        return (bundle / MANIFEST).stat().st_mtime
    except OSError:
        return 0.0


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with suppress(FileNotFoundError):
            path.unlink()
