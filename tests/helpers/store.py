"""A store for things that take seconds to make. The first process of a test session that needs a thing makes it.

Later sessions of the same code on the same machine use the thing again. Things lie in a generation. A generation is a
folder whose name is a digest of everything that changes the things: the code that makes them (see `_code`), the bundled
model, the installed packages, Python, and the processor.
"""

import ast
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
_DATA = "models"
_MAKERS = "helpers.store import stored"  # a helper that says so makes things
_TOPS = ("protos", "client", "server", "batch", "export", "tests")  # folders of packages
_KEPT = 3  # generations, some 60 MB each
_CHANGED = "changed"  # marks a generation whose code was edited while it was being made
_AGAIN = "+"  # ends the name of a generation if a generation with the same digest is marked and still in use


def stored(key: object, make: Callable[[Path], object]) -> Path:
    """Return the folder of `key`, which must not be written to. Different keys have a different `repr`.

    If the folder is missing, `make` makes it at the given path. Other processes that need the folder wait. `make` may
    depend on what `digest` covers, on the file that defines `make`, and on `repr(key)`.
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
    """While entered, this process and its child processes share the store in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove_old(folder)
        fcntl.flock(lock, fcntl.LOCK_SH)  # while this session runs, no other session removes anything
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
    """Whether this process or a parent process has opened a store."""
    return _ENVIRONMENT in os.environ


def digest() -> str:
    """Return the name of the generation of the code as it is now."""
    found = hashlib.sha256(_surroundings())
    data = {path: path.read_bytes() for path in (ROOT / _DATA).rglob("*") if path.is_file()}
    for path, content in sorted({**_code(), **data}.items()):
        found.update(f"{path.relative_to(ROOT)} {len(content)} ".encode())
        found.update(content)
    return found.hexdigest()[:16]


def _code() -> dict[Path, bytes]:
    """Return the code that makes things: the exporter, helpers that make things, and every module that they import.

    Of the server these are some 80 modules of 280: a change of the others leaves the things as they are.
    """
    left = [path for path in (ROOT / "tests" / "helpers").glob("*.py") if _MAKERS in path.read_text(encoding="utf-8")]
    left += (ROOT / "export").rglob("*.py")
    code: dict[Path, bytes] = {}
    while left:
        path = left.pop()
        if path not in code:
            code[path] = path.read_bytes()
            left += [file for name in _imports(code[path]) if (file := _file_of(name))]
    return code


@cache
def _imports(source: bytes) -> frozenset[str]:
    """Return the modules that a module imports anywhere, with their packages, and names that may be modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, "imports are absolute"
            names.update(f"{node.module}.{each.name}" for each in node.names)
    parts = [name.split(".") for name in names]
    return frozenset(".".join(each[:end]) for each in parts for end in range(1, len(each) + 1))


@cache
def _file_of(name: str) -> Path | None:
    """Return the file of a module of the project."""
    places = [ROOT / top / name.replace(".", "/") for top in _TOPS]
    files = [file for place in places for file in (place / "__init__.py", place.with_suffix(".py"))]
    return next(filter(Path.is_file, files), None)


@cache
def _surroundings() -> bytes:
    """Return everything besides the project's code: packages, Python, and the processor with its features."""
    packages = sorted(f"{each.name} {each.version}" for each in importlib.metadata.distributions())
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        packages += sorted({line for line in lines if line.startswith(("model name", "flags", "Features"))})
    threads = os.environ.get("OMP_NUM_THREADS", "")  # the number of threads changes the order of sums
    return "\n".join((*packages, threads, platform.python_version(), platform.platform())).encode()


def _remove_old(folder: Path) -> None:
    """Remove the oldest generations, and generations whose code changed while they were made."""
    generations = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: -path.stat().st_mtime)
    sound = [path for path in generations if not (path / _CHANGED).exists()]
    for path in generations:
        if path not in sound[:_KEPT]:
            shutil.rmtree(path, ignore_errors=True)


@cache
def _generation() -> Path:
    """Return the session's generation. Without a session, return a generation for this process alone."""
    if is_open():
        return Path(os.environ[_ENVIRONMENT])
    folder = Path(tempfile.mkdtemp(prefix="translane-store-")) / digest()
    folder.mkdir()
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)
    return folder
