"""Forks replicas from a process that has loaded the model.

The replicas share the weights: they are loaded once, and are once in memory and in the common cache of the CPUs. Each
replica has its own rows. Only a process with one thread forks safely, so these replicas run ONNX Runtime on their main
thread alone. A replica that is lost is forked anew, without loading the model again. A replica may load the graphs once
more after the fork, to run them on more threads while the others have no work.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Generic, TypeVar

from translane_server.core.errors import StartupError
from translane_server.engine.loop import ServerGoneError
from translane_server.runtime.backend import Backend
from translane_server.workers.messages import CODE, PID, WorkerSetup, receive_connection, report_line
from translane_server.workers.worker_process import (
    Activity,
    SharedActivity,
    SocketLink,
    receive_setup,
    run_replica,
)

_log = logging.getLogger(__name__)
_Model = TypeVar("_Model")

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_FAILED = 1  # the exit code of a replica that was not forked


def serve_forked(
    control: socket.socket,
    load: Callable[[WorkerSetup], _Model],
    open_backend: Callable[[WorkerSetup, _Model, Activity], Backend],
    is_still_there: Callable[[_Model], bool] = lambda _model: True,
) -> int:
    """Fork a replica for each connection that the server sends, until the server closes `control`.

    Args:
        control: the socket to the server; `messages` tells what is sent over it.
        load: loads the model, which the replicas share, with the setup of the first replica.
        open_backend: makes the backend of one replica.
        is_still_there: whether the model could be loaded again. It is asked before a later fork, and tells people if
            not: then it is not asked any more.

    Returns:
        The exit code for this process.
    """
    return _ForkingProcess(control, load, open_backend, is_still_there).run()


class _ForkingProcess(Generic[_Model]):
    def __init__(
        self,
        control: socket.socket,
        load: Callable[[WorkerSetup], _Model],
        open_backend: Callable[[WorkerSetup, _Model, Activity], Backend],
        is_still_there: Callable[[_Model], bool],
    ) -> None:
        self._control = control
        self._load = load
        self._open_backend = open_backend
        self._is_still_there = is_still_there
        self._asks = True  # whether the model could still be loaded again, as far as is known
        self._first: WorkerSetup | None = None  # the setup with which the model was loaded
        self._model: _Model
        self._activity = SharedActivity()
        self._numbers: dict[int, tuple[int, Activity]] = {}  # process id -> number of the connection, and the replica's
        self._parent = os.getpid()

    def run(self) -> int:
        # A signal handler alone would not end the wait for the server. It writes to this pipe as well.
        self._ended, writing = os.pipe()
        os.set_blocking(self._ended, False)
        os.set_blocking(writing, False)
        self._to_close = [self._ended, writing]
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        events = select.poll()
        events.register(self._control, select.POLLIN)
        events.register(self._ended, select.POLLIN)
        try:
            while True:
                ready = [number for number, _ in events.poll()]
                if self._ended in ready:
                    self._reap()
                if self._control.fileno() in ready:
                    asked = receive_connection(self._control)
                    if asked is None:
                        return 0  # the kernel ends the replicas with this process
                    number, connection = asked
                    with connection:
                        self._serve(number, connection)
        finally:
            self._restore_signals()

    def _serve(self, number: int, connection: socket.socket) -> None:
        server = SocketLink(connection)
        try:
            setup = self._shared(receive_setup(server))
            pid = os.fork()
        except ServerGoneError:
            self._tell(number, CODE, 0)
        except StartupError as error:
            self._refuse(server, number, error)
        except OSError as error:
            refusal = StartupError(f"replica {number} cannot be started: {error.strerror}")
            self._refuse(server, number, refusal)
        else:
            if pid == 0:
                self._become(server, setup)
            self._numbers[pid] = number, self._activity.of(setup.number)
            self._tell(number, PID, pid)

    def _shared(self, setup: WorkerSetup) -> WorkerSetup:
        """Load the model if this is the first setup. Later setups share its large parts.

        Raises:
            StartupError: the model does not load.
        """
        if self._first is None:
            self._model = self._load(setup)
            self._first = setup
            gc.collect()
            gc.freeze()  # a later collection would write to these objects, and so copy shared memory
        elif self._asks:
            self._asks = self._is_still_there(self._model)
        return replace(setup, model=self._first.model, vocabulary=self._first.vocabulary)

    def _become(self, server: SocketLink, setup: WorkerSetup) -> None:
        """Run a replica, and end the process. Does not return."""
        code = 1
        try:
            self._restore_signals()
            self._control.close()
            _end_with(self._parent)
            activity = self._activity.of(setup.number)
            code = run_replica(server, setup, lambda setup: self._open_backend(setup, self._model, activity), activity)
        except BaseException:  # noqa: BLE001 no error may continue in the code of the parent
            _log.exception("replica %d failed", setup.number)
        finally:
            os._exit(code)

    def _refuse(self, server: SocketLink, number: int, error: StartupError) -> None:
        with contextlib.suppress(ServerGoneError):
            server.send(error)
        self._tell(number, CODE, _FAILED)

    def _reap(self) -> None:
        """Report the replicas that have ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._ended, 4096)
        while self._numbers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            if ended := self._numbers.pop(pid, None):
                number, activity = ended
                activity.set(False)
                self._tell(number, CODE, os.waitstatus_to_exitcode(status))

    def _tell(self, number: int, what: str, value: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server has gone
            self._control.sendall(report_line(number, what, value))

    def _restore_signals(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in self._to_close:
            os.close(descriptor)
        self._to_close = []


def _end_with(parent: int) -> None:
    """Kill this process when `parent` ends: without it, nobody would report the end of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
