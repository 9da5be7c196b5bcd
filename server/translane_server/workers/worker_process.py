"""The replica's side: receives the setup, opens the backend, and runs the loop; or forks replicas that do so.

Replicas that are forked from one process share the weights: they are loaded once, and are once in memory and in the
common cache of the CPUs. Each replica has its own rows. Only a process with one thread forks safely, so these replicas
run ONNX Runtime on their main thread alone. A replica that is lost is forked anew, without loading the model again. A
replica may load the graphs once more after the fork, to run them on more threads while the others have no work.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import mmap
import os
import pickle
import select
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, TypeVar

from translane_server.core.errors import StartupError
from translane_server.engine.loop import EngineLoop, ServerGoneError
from translane_server.engine.sequence import EngineInput, EngineOutput
from translane_server.runtime.backend import Backend
from translane_server.workers.messages import (
    CODE,
    PID,
    RECEIVED_AT_ONCE,
    Frames,
    Ready,
    WorkerSetup,
    of_object,
    of_output,
    read_input,
    receive_connection,
    report_line,
)

_MOST_REPLICAS = 1024  # the largest value of the setting `replicas`


class Activity:
    """Whether a replica is at work, and whether others are. Processes that are forked later share it.

    A replica writes its own byte alone, so no lock is needed. What it reads of others may be a moment old.
    """

    def __init__(self, number: int, states: mmap.mmap | None = None) -> None:
        self._number = number
        self._states = states or mmap.mmap(-1, _MOST_REPLICAS)  # a byte of each replica

    def of(self, number: int) -> Activity:
        """The activity of the replica `number`, which this one sees."""
        return Activity(number, self._states)

    def set(self, works: bool) -> None:
        """The replica has work; or it has none, or has ended."""
        self._states[self._number] = int(works)

    def is_alone(self) -> bool:
        """Whether no other replica is at work."""
        states = self._states[:]
        return states.count(True) <= states[self._number]


class SocketLink:
    """The server at the other end of a socket, which the caller closes. Implements `engine.loop.ServerLink`."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        arrivals = select.poll()  # poll costs less than a read without data
        arrivals.register(connection, select.POLLIN)
        self.has_arrivals = partial(arrivals.poll, 0)  # asked after every step
        self._frames = Frames()

    def receive(self) -> list[bytearray]:
        """Wait for bytes; return the bodies of the messages that are complete by now.

        Raises:
            ServerGoneError: the server has closed the connection.
        """
        try:
            data = self._connection.recv(RECEIVED_AT_ONCE)
        except ConnectionResetError:
            data = b""
        if not data:
            raise ServerGoneError
        return self._frames.feed(data)

    def inputs(self, *, wait: bool) -> list[EngineInput]:
        return [read_input(each) for each in self.receive()] if wait or self.has_arrivals() else []

    def put(self, output: EngineOutput) -> None:
        self.send(of_output(output))

    def send(self, message: bytes) -> None:
        """Send a message. Raises ServerGoneError if the server has closed the connection."""
        try:
            self._connection.sendall(message)
        except (BrokenPipeError, ConnectionResetError):
            raise ServerGoneError from None


def serve(connection: socket.socket, open_backend: Callable[[WorkerSetup], Backend]) -> int:
    """Run a replica until the server closes its end of `connection`; return the exit code for a process of it."""
    server = SocketLink(connection)
    try:
        setup = receive_setup(server)
    except ServerGoneError:
        return 0
    return run_replica(server, setup, open_backend, Activity(setup.number))


def receive_setup(server: SocketLink) -> WorkerSetup:
    """Wait for the setup, which is the server's first message.

    Raises:
        ServerGoneError: the server has closed the connection.
    """
    while not (messages := server.receive()):
        pass
    (body,) = messages  # the server sends nothing else before the answer
    setup: WorkerSetup = pickle.loads(body)  # noqa: S301 from this program
    return setup


def run_replica(
    server: SocketLink,
    setup: WorkerSetup,
    open_backend: Callable[[WorkerSetup], Backend],
    activity: Activity,
) -> int:
    """Open the backend, tell the server, and run the loop; see `serve` for the result."""
    try:
        try:
            backend = open_backend(setup)
        except StartupError as error:
            server.send(of_object(error))
            return error.exit_code
        server.send(of_object(Ready()))
    except ServerGoneError:
        return 0
    with contextlib.closing(backend):
        return 0 if EngineLoop(backend, server, setup.vocabulary, activity.set).run() else 1


_log = logging.getLogger(__name__)
_Model = TypeVar("_Model")

_PR_SET_PDEATHSIG = 1  # of prctl(2)
_FAILED = 1  # the exit code of a replica that was not forked


@dataclass
class ForkingProcess(Generic[_Model]):
    """Forks a replica for each connection that the server sends.

    Args:
        control: the socket to the server; `messages` tells what is sent over it.
        load: loads the model, which the replicas share, with the setup of the first replica.
        open_backend: makes the backend of one replica.
        is_still_there: whether the model could be loaded again. It is asked before a later fork, and tells people if
            not: then it is not asked any more.
    """

    control: socket.socket
    load: Callable[[WorkerSetup], _Model]
    open_backend: Callable[[WorkerSetup, _Model, Activity], Backend]
    is_still_there: Callable[[_Model], bool] = lambda _model: True

    def __post_init__(self) -> None:
        self._asks = True  # whether the model could still be loaded again, as far as is known
        self._first: WorkerSetup | None = None  # the setup with which the model was loaded
        self._model: _Model
        self._activity = Activity(0)
        # Descriptor that tells a replica's end -> process id, number of the connection, and the replica's activity.
        self._replicas: dict[int, tuple[int, int, Activity]] = {}
        self._events = select.poll()
        self._parent = os.getpid()

    def run(self) -> int:
        """Fork until the server closes `control`, and return the exit code for this process."""
        self._events.register(self.control, select.POLLIN)
        while True:
            for ready, _ in self._events.poll():
                if ready in self._replicas:
                    self._reap(ready)
                    continue
                asked = receive_connection(self.control)
                if asked is None:
                    return 0  # the kernel ends the replicas with this process
                number, connection = asked
                with connection:
                    self._serve(number, connection)

    def _serve(self, number: int, connection: socket.socket) -> None:
        server = SocketLink(connection)
        try:
            setup = self._shared(receive_setup(server))
            pid, ended = _forked()
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
            self._replicas[ended] = pid, number, self._activity.of(setup.number)
            self._events.register(ended, 0)
            self._tell(number, PID, pid)

    def _shared(self, setup: WorkerSetup) -> WorkerSetup:
        """Load the model if this is the first setup. Later setups share its large parts.

        Raises:
            StartupError: the model does not load.
        """
        if self._first is None:
            self._model = self.load(setup)
            self._first = setup
            gc.collect()
            gc.freeze()  # a later collection would write to these objects, and so copy shared memory
        elif self._asks:
            self._asks = self.is_still_there(self._model)
        return replace(setup, model=self._first.model, vocabulary=self._first.vocabulary)

    def _become(self, server: SocketLink, setup: WorkerSetup) -> None:
        """Run a replica, and end the process. Does not return."""
        code = 1
        try:
            self.control.close()
            _end_with(self._parent)
            activity = self._activity.of(setup.number)
            code = run_replica(server, setup, lambda setup: self.open_backend(setup, self._model, activity), activity)
        except BaseException:  # noqa: BLE001 no error may continue in the code of the parent
            _log.exception("replica %d failed", setup.number)
        finally:
            os._exit(code)

    def _refuse(self, server: SocketLink, number: int, error: StartupError) -> None:
        with contextlib.suppress(ServerGoneError):
            server.send(of_object(error))
        self._tell(number, CODE, _FAILED)

    def _reap(self, ended: int) -> None:
        """Report a replica that has ended."""
        pid, number, activity = self._replicas.pop(ended)
        self._events.unregister(ended)
        os.close(ended)
        _, status = os.waitpid(pid, 0)
        activity.set(False)
        self._tell(number, CODE, os.waitstatus_to_exitcode(status))

    def _tell(self, number: int, what: str, value: int) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server has gone
            self.control.sendall(report_line(number, what, value))


def _forked() -> tuple[int, int]:
    """Fork. Return the id of the child, which is 0 in the child; and a pipe that closes when the child ends.

    Raises:
        OSError: the operating system has no resources for it.
    """
    ended, held = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(ended)
        os.close(held)
        raise
    if pid:
        os.close(held)  # only the child has it, until the child ends
    return pid, ended


def _end_with(parent: int) -> None:
    """Kill this process when `parent` ends: without it, nobody would report the end of this process."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent has ended already
        os._exit(1)
