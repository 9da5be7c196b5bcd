"""Things that take seconds to make, made once: by whichever process of a test session needs them first, and kept.

What is kept is for later sessions of the same code on the same machine. It lies in a generation, a folder whose name is
a digest of all that has a say in what is made: the code and the data below `_INPUTS`, the installed packages, Python,
and the processor.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.metadata
import inspect
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_ENVIRONMENT = "TESTS_STORE"
_INPUTS = ("export", "server", "protos", "tests/helpers", "models")
_LEFT_OUT = ("__pycache__", ".pyc")
_KEPT = 3  # generations, some 60 MB each
_CHANGED = "changed"  # marks a generation whose code was edited while it was being made
_AGAIN = "+"  # after the name of a generation whose namesake is marked so, and still in use


def stored(key: object, make: Callable[[Path], object]) -> Path:
    """Return the folder of `key`, whose `repr` tells it from others; not to be written to.

    Where it is not there yet, `make` makes it at the path it is given. Who else asks for it waits. What `make` reads is
    below `_INPUTS`, in the file that `make` is defined in, or in `repr(key)`.
    """
    generation = _generation()
    code = Path(inspect.getfile(make)).read_bytes()
    folder = generation / hashlib.sha256(repr(key).encode() + code).hexdigest()[:16]
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            make(unfinished)
            unfinished.rename(folder)
            if generation.name.rstrip(_AGAIN) != digest():
                (generation / _CHANGED).touch()
    return folder


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[None]:
    """While entered, this process and those that it starts share the store in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_old(folder)
        fcntl.flock(lock, fcntl.LOCK_SH)  # as long as this session runs, no other one removes anything
        generation = folder / digest()
        while (generation / _CHANGED).exists():
            generation = generation.with_name(f"{generation.name}{_AGAIN}")
        generation.mkdir(exist_ok=True)
        os.utime(generation)
        os.environ[_ENVIRONMENT] = str(generation)
        try:
            yield
        finally:
            del os.environ[_ENVIRONMENT]


def is_open() -> bool:
    """Whether this process has a store that another one opened, or it itself."""
    return _ENVIRONMENT in os.environ


def digest() -> str:
    """Return the name of the generation of the code as it is now."""
    found = hashlib.sha256(_surroundings())
    for top in _INPUTS:
        for path in sorted((ROOT / top).rglob("*")):
            if path.is_file() and not any(part.endswith(_LEFT_OUT) for part in path.parts):
                found.update(f"{path.relative_to(ROOT)} {path.stat().st_size} ".encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


@cache
def _surroundings() -> bytes:
    """Whatever is not code of ours: packages, Python, and the processor with what it can do."""
    packages = sorted(f"{each.name} {each.version}" for each in importlib.metadata.distributions())
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        packages += sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    threads = os.environ.get("OMP_NUM_THREADS", "")  # sums are added up in another order on more of them
    return "\n".join((*packages, threads, platform.python_version(), platform.platform())).encode()


def _remove_old(folder: Path) -> None:
    """Remove the oldest generations, and such as were made of more than one state of the code."""
    generations = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: -path.stat().st_mtime)
    sound = [path for path in generations if not (path / _CHANGED).exists()]
    for path in generations:
        if path not in sound[:_KEPT]:
            shutil.rmtree(path, ignore_errors=True)


@cache
def _generation() -> Path:
    """The session's generation, or one of this process alone where there is no session."""
    if is_open():
        return Path(os.environ[_ENVIRONMENT])
    folder = Path(tempfile.mkdtemp(prefix="translane-store-")) / digest()
    folder.mkdir()
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    return folder
