"""Models by their names: the bundled one, one of the Hugging Face Hub, or a folder of PyTorch weights.

The server has no exporter: `translane export` runs as a process of its own, once for each checkpoint. The bundles are
kept in the model cache, by the revision of the checkpoint and the version of the exporter.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from translane_server.bundle.bundle import MANIFEST
from translane_server.bundle.manifest import SCHEMA_VERSION
from translane_server.core.errors import BundleError
from translane_server.core.files import MOST_DESCRIPTION_BYTES, read_regular
from translane_server.models.cache import Hold, ModelCache, cache_of
from translane_server.models.firefox import FirefoxModel, look_up
from translane_server.models.remote_model import RemoteModel, remote_models
from translane_server.settings.model_sources import (
    BUNDLED_MODEL,
    BUNDLED_MODEL_URL,
    ModelPlace,
    ModelUrl,
    RemotePlace,
    hub_name,
    is_bundled,
    is_firefox,
    is_model_name,
)
from translane_server.settings.server_settings import ServerSettings

# A folder with one of these may be a checkpoint: of Hugging Face, `translane train`, fairseq, OpenNMT-py or Marian.
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "*.pt", "*.npz", "model*.intgemm*.bin")
# What no export reads: weights of other frameworks, and whatever lies in folders.
_NEEDLESS = ["*.h5", "*.msgpack", "*.ot", "*.onnx", "*.gguf", "*.tflite", "*.png", "*.jpg", "*/*"]
_PICKLES = ["*.bin", "*.pt", "*.pth"]
_INSTALL = (
    "pip install 'translane[export]' (without a GPU, PyTorch's smaller packages do: "
    "--extra-index-url https://download.pytorch.org/whl/cpu)"
)


_held: dict[str, Hold | None] = {}
"""What this process keeps in the model cache, until it ends."""


def with_bundles(settings: ServerSettings) -> ServerSettings:
    """Return the settings with a bundle, or the URL of one, in the place of each name and each checkpoint of `model`.

    A folder without weights of PyTorch stays.

    Raises:
        BundleError: the Hub has no such model or does not answer, PyTorch is missing, or the export has failed.
    """
    new: list[Path] = []
    places = tuple(_with_bundle(each, settings, new) for each in settings.model or ())
    if not places:
        return settings
    settings = settings.model_copy(update={"model": places})
    if new:
        with ExitStack() as held:
            for model in remote_models(settings).values():
                with suppress(BundleError):  # it is not there yet
                    held.callback(model.hold(model.folder).release)
            cache_of(settings).trim()
    return settings


def _with_bundle(
    place: ModelPlace | RemotePlace, settings: ServerSettings, new: list[Path]
) -> ModelPlace | RemotePlace:
    """The place of the bundle of a place. A bundle that is exported for it is added to `new`."""
    if isinstance(place, RemotePlace):
        return place
    if is_bundled(place.folder):
        return _bundled(settings, place.name)
    title = str(place.folder)
    exported = partial(_exported, settings, new, title)
    if named := hub_name(place.folder):
        name, asked = named
        commit, files = _look_up(name, asked)
        if MANIFEST in files:
            return RemotePlace(ModelUrl.parse(f"hf://{name}@{commit}"), place.name)
        download = partial(_download, name, asked, commit, files)
        bundle = exported(name.partition("/")[2], f"{name}@{commit}", download)
    elif is_firefox(place.folder):
        cache = cache_of(settings)
        model = look_up(title, settings.firefox_models, cache.firefox)
        languages = ("--source-language", model.source, "--target-language", model.target)
        bundle = exported(f"{model.source}-{model.target}", model.state, partial(_fetched, model, cache), languages)
    elif (place.folder / MANIFEST).exists() or not any(any(place.folder.glob(pattern)) for pattern in _WEIGHTS):
        return place
    else:
        folder = place.folder.resolve()
        bundle = exported(folder.name, _state_of(folder), lambda: folder)
    return ModelPlace(bundle, place.name)


def _fetched(model: FirefoxModel, cache: ModelCache) -> Path:
    _held[model.state] = cache.keep(model.folder(cache.firefox))
    return model.fetched(cache.firefox)


def _bundled(settings: ServerSettings, name: str) -> ModelPlace | RemotePlace:
    """The place of the bundled model: in a clone, or else in the model cache, where its release is downloaded to."""
    for clone in _clones():
        folder = clone / "models" / BUNDLED_MODEL
        if _is_bundled_model(folder):
            return ModelPlace(folder.resolve(), name)
    url = ModelUrl.parse(settings.bundled_model)
    try:
        # Whoever tries Translane out is told at once that nothing comes.
        RemoteModel(url, cache_of(settings), attempts=1).refresh(or_keep=True)
    except BundleError as error:
        advice = "run this within a clone of Translane, or give the folder of a model, such as CLONE/models/zh-en"
        raise BundleError(
            f"{BUNDLED_MODEL} is in no clone here: {advice}. Its release does not come: {error}"
        ) from None
    return RemotePlace(url, name)


def _clones() -> Iterator[Path]:
    """Folders that may be a clone: what the package was installed from, the current folder, and those above it."""
    if clone := _installed_from():
        yield clone
    with suppress(FileNotFoundError):  # the current folder is removed
        here = Path.cwd()
        # Where anybody may write, as in /tmp, somebody may put a clone, and change it after it was looked at.
        yield from (folder for folder in (here, *here.parents) if not folder.stat().st_mode & stat.S_IWOTH)


def _installed_from() -> Path | None:
    """The clone that the package was installed from, if it was: https://peps.python.org/pep-0610/."""
    record = json.loads(importlib.metadata.distribution("translane").read_text("direct_url.json") or "{}")
    url = urlsplit(record.get("url", ""))
    return Path(unquote(url.path)) if url.scheme == "file" else None


def _is_bundled_model(folder: Path) -> bool:
    """Whether the bundled model is in a folder. Others may have put something else where the clone was."""
    try:
        manifest = read_regular(folder / MANIFEST, MOST_DESCRIPTION_BYTES)
        return hashlib.sha256(manifest).hexdigest() == ModelUrl.parse(BUNDLED_MODEL_URL).digest
    except (OSError, ValueError):
        return False


def _state_of(folder: Path) -> str:
    """What changes with the files of a folder."""
    files = [(path.name, path.stat()) for path in sorted(folder.iterdir()) if path.is_file()]
    state = [str(folder), *(f"{name} {status.st_size} {status.st_mtime_ns}" for name, status in files)]
    return hashlib.sha256("\n".join(state).encode()).hexdigest()


def _look_up(name: str, revision: str | None) -> tuple[str, list[str]]:
    """Return the commit of a model of the Hub, and its files. Offline, they are those of the Hub's cache."""
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    try:
        found = HfApi().model_info(name, revision=revision)
        return str(found.sha), [each.rfilename for each in found.siblings or ()]
    except (HfHubHTTPError, HFValidationError) as error:
        raise BundleError(f"{name}: {_cause(error)}; there is no such folder either") from None
    except (HTTPError, OSError) as error:  # the Hub does not answer, or HF_HUB_OFFLINE says not to ask
        try:
            ignored = _NEEDLESS + _PICKLES
            folder = Path(snapshot_download(name, revision=revision, ignore_patterns=ignored, local_files_only=True))
        except (HTTPError, OSError):
            problem = (
                f"neither a folder nor in the cache of the Hugging Face Hub, which cannot be asked: {_cause(error)}"
            )
            raise BundleError(f"{name} is {problem}") from None
        return folder.name, [path.name for path in folder.iterdir()]


def _download(name: str, revision: str | None, commit: str, files: list[str]) -> Path:
    """Return a folder with the files of a commit. Where there are safetensors, no pickle is read.

    The Hub's cache keeps what a revision leads to. So what is asked for is found there without the Hub, too.
    """
    from httpx2 import HTTPError
    from huggingface_hub import snapshot_download

    is_safe = any(each.endswith(".safetensors") for each in files)
    try:
        folder = Path(snapshot_download(name, revision=revision, ignore_patterns=_NEEDLESS + _PICKLES * is_safe))
    except (HTTPError, OSError) as error:
        raise BundleError(f"{name} cannot be downloaded: {_cause(error)}") from None
    if folder.name != commit:
        raise BundleError(f"{name} has got a new commit while it was downloaded; start again")
    return folder


def _cause(error: Exception) -> str:
    """The first sentence of an error of the Hub, without the address, which may be that of a mirror with a password."""
    status: Any = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403, 404):
        return f"the Hugging Face Hub knows no such model or revision, or HF_TOKEN may not read it (status {status})"
    return f"the answer of the Hugging Face Hub is {status}" if status else type(error).__name__


def _exported(
    settings: ServerSettings,
    new: list[Path],
    title: str,
    name: str,
    state: str,
    folder: Callable[[], Path],
    arguments: Sequence[str] = (),
) -> Path:
    """Return the bundle of a checkpoint, which is made and added to `new` if it is not there yet.

    The `title` is what the user calls the checkpoint, the `name` what its model is called. The `state` changes with the
    files, whose `folder` may have to be downloaded. The `arguments` are further ones of the export.
    """
    cache = cache_of(settings)
    # Without a precision, the exporter takes the checkpoint's own: int8 of a student of Firefox's, else fp32.
    precision = ["--precision", "fp16"] if settings.device == "cuda" else []
    version = importlib.metadata.version("translane")
    made_of = f"{state} {' '.join(precision) or 'own precision'} {version} {SCHEMA_VERSION}"
    name = name if is_model_name(name) else ""
    bundle = cache.exported / f"{name}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}".lstrip("-")
    _held[str(bundle)] = cache.keep(bundle)
    if (bundle / MANIFEST).exists():
        return bundle
    if find_spec("torch") is None:
        problem = f"is no bundle, and PyTorch, which `translane export` makes one with, is not installed: {_INSTALL}"
        raise BundleError(f"{title} {problem}")
    with cache.errors():
        cache.exported.mkdir(exist_ok=True)
        lock = bundle.with_name(f"{bundle.name}.lock").open("w")
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be at work on it
        if not (bundle / MANIFEST).exists():
            files = folder()
            print(f"translane: exporting {title} to {bundle}, once", file=sys.stderr)
            command = [sys.executable, "-m", "translane", "export", str(files), "-o", str(bundle)]
            command += [*precision, *(["--name", name] if name else []), *arguments]
            # The lock is held until the export ends, even if this process is killed.
            if code := _run(command, lock.fileno()):
                raise BundleError(f"{title} cannot be exported: {' '.join(command[1:])} ends with {code}")
            new.append(bundle)
    return bundle


def _run(command: list[str], held: int) -> int:
    """Run a program, which keeps a file open and is ended with this one. Return its exit code.

    What it prints is no output of this one, so it goes to standard error. Settings of exports in the environment are
    not meant for it: the name of its bundle has those of its arguments alone.
    """
    given = os.environ.items()  # noqa: TID251  for a program
    own = {name: value for name, value in given if not name.startswith("TRANSLANE_EXPORT_")}
    with _interruptible(), subprocess.Popen(command, pass_fds=[held], stdout=2, env=own) as process:  # noqa: S603  this program's own
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """While entered, SIGTERM raises KeyboardInterrupt."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
