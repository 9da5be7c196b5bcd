"""Runs replicas in processes of their own, or in processes that fork from one that has loaded the model."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import partial

from translane_server.core.terminal import ending
from translane_server.engine.sequence import TargetVocabulary
from translane_server.workers.connection import WorkerConnection
from translane_server.workers.launch import COMMAND, ended, started
from translane_server.workers.messages import CODE, PID, ModelSetup, WorkerSetup, read_report, send_connection
from translane_server.workers.placement import Placement
from translane_server.workers.worker import Worker

# Time for a process to finish its step before it is killed [seconds].
_ENDING_TIME = 5.0


def process_hosts(count: int, threads: int, command: Sequence[str] = COMMAND) -> Sequence[OwnProcess | ForkedProcess]:
    """Make hosts for `count` replicas of one model, with `threads` threads each.

    Replicas of one thread fork from one process, which loads the model. A replica of several threads, or a single one,
    loads the model itself.
    """
    if threads > 1 or count == 1:
        return [OwnProcess(command) for _ in range(count)]
    server = ForkServer(command, count)
    return [ForkedProcess(server) for _ in range(count)]


def process_workers(
    placement: Placement,
    vocabulary: TargetVocabulary,
    model: ModelSetup,
    *,
    patience: float = 0,
    count_loss: Callable[[], None] = lambda: None,
) -> list[Worker]:
    """Make the workers of a model, in processes, the spare ones last. They are not started."""
    all_rows = placement.rows + placement.spare_rows
    hosts = process_hosts(len(all_rows), placement.threads)
    return [
        Worker(
            partial(
                WorkerConnection,
                WorkerSetup(number, rows, vocabulary, model, placement.lone_threads_of(number)),
                host,
            ),
            threads=placement.threads,
            patience=patience,
            count_loss=count_loss,
            on_stopped=host.close,
        )
        for number, (rows, host) in enumerate(zip(all_rows, hosts, strict=True))
    ]


class OwnProcess:
    """Runs a replica in a process of its own, which loads the model. Implements `connection.Host`."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command  # "serve" and a file descriptor follow
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process and self._process.poll() is None else -1

    def launch(self, connection: socket.socket) -> None:
        self._process = started(self._command, "serve", connection)

    def end(self, *, at_once: bool) -> str:
        if self._process is None:
            return "was not started"
        return ending(ended(self._process, 0 if at_once else _ENDING_TIME))

    def close(self) -> None:
        """Nothing is kept for later replicas."""


class ForkedProcess:
    """Runs each replica in a process that a `ForkServer` forks. Implements `connection.Host`."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server
        self._parent: _Parent | None = None
        self._number = -1

    @property
    def pid(self) -> int:
        return self._parent.pid(self._number) if self._parent else -1

    def launch(self, connection: socket.socket) -> None:
        self._parent = self._server.parent()
        self._number = self._parent.launch(connection)

    def end(self, *, at_once: bool) -> str:
        return self._parent.end(self._number, at_once=at_once) if self._parent else "was not started"

    def close(self) -> None:
        """Do without the process from which replicas fork. The last replica has ended."""
        self._server.close()


class ForkServer:
    """Keeps the process from which replicas fork. The process has loaded the model; see `ForkingProcess`."""

    def __init__(self, command: Sequence[str], users: int) -> None:
        self._command = command
        self._users = users  # hosts: when all of them are closed, the process ends
        self._parent: _Parent | None = None
        self._lock = threading.Lock()

    def parent(self) -> _Parent:
        """The process; a new one if there is none, or if the last one has ended.

        Raises:
            OSError: the operating system has no resources for it.
        """
        with self._lock:
            if self._parent is None or self._parent.has_ended:
                self._parent = _Parent(self._command)
            return self._parent

    def close(self) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._parent:
                self._parent.close()


class _Parent:
    """A process that forks replicas, and reports how they end. Only a parent learns how its child ends."""

    def __init__(self, command: Sequence[str]) -> None:
        self._numbers = itertools.count()
        self._reports: dict[tuple[int, str], int] = {}  # by the number of a replica, and PID or CODE
        self._changed = threading.Condition()
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = started(command, "fork", theirs)
            threading.Thread(target=self._watch, name="replicas", daemon=True).start()
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
            self._control.close()
            if hasattr(self, "_process"):
                ended(self._process, 0)
            raise error if isinstance(error, OSError) else OSError(str(error)) from None

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def launch(self, connection: socket.socket) -> int:
        """Let the process fork a replica that serves `connection`; return its number."""
        number = next(self._numbers)
        send_connection(self._control, number, connection)
        return number

    def pid(self, number: int) -> int:
        """The id of a replica's process; of this process before the replica is forked; -1 if it has ended."""
        if self._replica_has_ended(number):
            return -1
        return self._reports.get((number, PID), self._process.pid)

    def end(self, number: int, *, at_once: bool) -> str:
        """Wait until a replica has ended, or end it; return how it ended."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._replica_has_ended(number), 0 if at_once else _ENDING_TIME):
                if pid := self._reports.get((number, PID)):
                    with contextlib.suppress(ProcessLookupError):  # it has ended, and its report is on the way
                        os.kill(pid, signal.SIGKILL)
                else:  # it is not forked yet: the process hangs, or still loads the model
                    self._process.kill()
                # A process that is stopped cannot report. It is of no use to any replica.
                if not self._changed.wait_for(lambda: self._replica_has_ended(number), _ENDING_TIME):
                    self._process.kill()
                self._changed.wait_for(lambda: self._replica_has_ended(number))
            code = self._reports.get((number, CODE))
        return ending(self._process.wait() if code is None else code)

    def close(self) -> None:
        """End the process, and the replicas that are left."""
        with contextlib.suppress(OSError):  # it has ended already
            self._control.shutdown(socket.SHUT_WR)
        ended(self._process, _ENDING_TIME)

    def _watch(self) -> None:
        """Read reports until the process has ended."""
        try:
            with self._control.makefile() as lines:
                for line in lines:
                    number, what, value = read_report(line)
                    with self._changed:
                        self._reports[number, what] = value
                        self._changed.notify_all()
        except OSError:  # reset, as the process was killed
            pass
        finally:
            self._process.wait()
            self._control.close()
            with self._changed:
                self._changed.notify_all()

    def _replica_has_ended(self, number: int) -> bool:
        return self.has_ended or (number, CODE) in self._reports
