"""Faults of a server's processes: they are killed, and stopped as if they hung."""

import asyncio
import contextlib
import random
import signal
import time
from collections import Counter
from collections.abc import Sequence

import psutil

from helpers.reliability.waiting import within
from helpers.server_process import ServerProcess

_KILLING_TIME = 2.0  # [seconds]


class Chaos:
    """Kills and stops the processes of a server, and counts it.

    Args:
        server: the server.
        seed: of the choices among its processes.
    """

    def __init__(self, server: ServerProcess, seed: int = 0) -> None:
        self._server = server
        self._pick = random.Random(seed)
        self._replicas = len(server.replicas())
        self.faults: Counter[str] = Counter()  # how many faults there were, by kind
        self.recoveries: list[float] = []  # how long the server took to have all its replicas again [seconds]

    def kill(self, processes: Sequence[psutil.Process]) -> None:
        """Kill processes, as the kernel does when memory is out."""
        self._send(processes, signal.SIGKILL, "killed")

    def stop(self, processes: Sequence[psutil.Process]) -> None:
        """Stop processes, so that they hang with their sockets open."""
        self._send(processes, signal.SIGSTOP, "stopped")

    def resume(self, processes: Sequence[psutil.Process]) -> None:
        """Let stopped processes go on, those that are still there."""
        self._send(processes, signal.SIGCONT, "resumed")

    def a_replica(self) -> list[psutil.Process]:
        """Return one replica by chance; none if the server has none."""
        replicas = self._server.replicas()
        return [self._pick.choice(replicas)] if replicas else []

    async def pause(self, shortest: float, longest: float) -> None:
        """Wait for a time by chance [seconds]."""
        await asyncio.sleep(self._pick.uniform(shortest, longest))

    async def recovered(self, seconds: float) -> bool:
        """Whether the server has as many running replicas as at the beginning within `seconds`, and waits for it."""
        started = time.monotonic()
        back = await within(seconds, lambda: len(self._running()) >= self._replicas)
        if back:
            self.recoveries.append(time.monotonic() - started)
        return back

    @property
    def figures(self) -> dict[str, object]:
        """For `Figures.add`."""
        return {
            "faults": dict(self.faults),
            "recoveries": len(self.recoveries),
            "longest_recovery_s": max(self.recoveries, default=0.0),
        }

    def _running(self) -> list[psutil.Process]:
        running = []
        for process in self._server.replicas():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_STOPPED:
                    running.append(process)
        return running

    def _send(self, processes: Sequence[psutil.Process], number: signal.Signals, name: str) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
                self.faults[name] += 1
        if number == signal.SIGKILL:  # a process that is being killed would still seem to run
            psutil.wait_procs([process for process in processes if process.is_running()], _KILLING_TIME)
