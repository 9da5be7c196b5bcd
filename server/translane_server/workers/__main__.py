"""The process of a replica, or the process from which replicas fork.

The arguments are ``serve`` and the file descriptor of the replica's connection; or ``fork`` and that of the socket over
which the server sends connections; or ``wait`` and that of a socket that brings one of these words and a descriptor.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from translane_server.runtime.graph_backend import GraphBackend
    from translane_server.runtime.sessions import AllThreads, Sessions
    from translane_server.workers.messages import WorkerSetup
    from translane_server.workers.worker_process import Activity

_log = logging.getLogger(__name__)

# The server's process has priority: it needs little CPU time, and earlier requests make larger batches.
_NICENESS = 10
_LONGEST_WORD = 5  # bytes: "serve"


def main() -> int:
    """Decode until the server closes the connection, and return the exit code."""
    for each in (signal.SIGTERM, signal.SIGINT):  # the server drains, and then closes the connection
        signal.signal(each, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored signal is inherited, and would hide how children end
    os.nice(_NICENESS)
    # numpy reads this when it is loaded. Without it, OpenBLAS would start a thread for each CPU, but only a process of
    # one thread forks safely.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    gc.disable()  # what is imported stays: to look for garbage in it takes a tenth of the time
    how, number = sys.argv[-2], int(sys.argv[-1])
    if how == "wait":
        try:
            with _silence():
                import translane_server.runtime.ort
                import translane_server.workers.worker_process  # noqa: F401 - what takes time
        except Exception:  # noqa: BLE001 - a replica that starts later says what is wrong
            return 1
        with socket.socket(fileno=number) as control:
            word, descriptors, _, _ = socket.recv_fds(control, _LONGEST_WORD, 1)
        if not word:  # the server has ended
            return 0
        how, number = word.decode(), descriptors[0]
    from translane_server.workers.worker_process import ForkingProcess, serve

    gc.enable()
    with socket.socket(fileno=number) as connection:
        if how == "fork":
            return ForkingProcess(connection, _load, _open, _is_still_there).run()
        return serve(connection, lambda setup: _open(setup, _load(setup)))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Write nothing to standard error. Without memory, OpenBLAS writes to it, and ends the process while it loads."""
    error, kept, nowhere = sys.stderr.fileno(), os.dup(sys.stderr.fileno()), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, error)
    try:
        yield
    finally:
        os.dup2(kept, error)
        os.close(kept)
        os.close(nowhere)


def _load(setup: WorkerSetup) -> Sessions:
    """Load the model, which several replicas may share.

    Raises:
        StartupError: the model or ONNX Runtime does not load, or a file is not the one that the server has checked.
    """
    from translane_server.core.errors import StartupError
    from translane_server.observation.logs import configure_logging

    model = setup.model
    configure_logging(model.log_format, model.log_level, always={**model.log_always, "model": model.name})
    with _lack_of_memory(), model.bundle.unchanged(model.bundle.manifest.model_files):
        try:
            from translane_server.runtime.sessions import Sessions
        except ImportError as error:
            raise StartupError(f"onnxruntime does not load: {error}; is it installed once, for this machine?") from None
        return Sessions(model.bundle, device=model.device, threads=model.threads)


def _is_still_there(sessions: Sessions) -> bool:
    """Whether the loaded model could be loaded again; the log says why not. Replicas fork from it in any case."""
    from translane_server.core.errors import BundleError

    try:
        with sessions.bundle.unchanged(sessions.bundle.manifest.model_files):
            return True
    except BundleError as error:
        _log.error("replicas go on with what was loaded, which cannot be loaded again: %s", error)
        return False


def _open(setup: WorkerSetup, sessions: Sessions, activity: Activity | None = None) -> GraphBackend:
    """Make and warm up the backend of one replica, which may look at the `activity` of others.

    Raises:
        StartupError: the model does not run, or there is not enough memory for the rows.
    """
    from translane_server.runtime.graph_backend import RowSizes

    model = setup.model
    backend: GraphBackend
    sizes = RowSizes(rows=setup.rows, source_capacity=model.source_capacity, target_capacity=model.target_capacity)
    with _lack_of_memory():
        if sessions.cuda:
            from translane_server.runtime.cuda.backend import CudaBackend

            backend = CudaBackend(sessions, **sizes)
        else:
            from translane_server.runtime.ort import OrtBackend

            all_threads = _all_threads(setup, activity) if activity else None
            backend = OrtBackend(sessions, all_threads=all_threads, **sizes)
        backend.warm_up()
    return backend


def _all_threads(setup: WorkerSetup, activity: Activity) -> AllThreads | None:
    """Load the graphs once more, on more threads. None if the setup wants none, or they do not load any more.

    The replica decodes without them, only slower. So it starts again although the bundle's folder has changed.
    """
    from translane_server.core.errors import StartupError
    from translane_server.runtime.sessions import AllThreads, Sessions

    model = setup.model
    if setup.lone_threads <= model.threads:
        return None
    try:
        with _lack_of_memory(), model.bundle.unchanged(model.bundle.manifest.model_files):
            sessions = Sessions(model.bundle, device=model.device, threads=setup.lone_threads, plain_steps_only=True)
    except StartupError as error:
        _log.warning("replica %d runs on one thread, also while it is alone: %s", setup.number, error)
        return None
    return AllThreads(sessions, activity.is_alone)


@contextlib.contextmanager
def _lack_of_memory() -> Iterator[None]:
    """Make a StartupError of any error that means a lack of memory. Packages raise many kinds of them."""
    from translane_server.core.errors import StartupError, is_about_memory

    try:
        yield
    except StartupError:
        raise
    except Exception as error:
        if not is_about_memory(error):
            raise
        raise StartupError("there is not enough memory for the model and its rows") from None


if __name__ == "__main__":
    sys.exit(main())
