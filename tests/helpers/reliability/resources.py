"""What a server's processes hold: memory, descriptors, threads."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import psutil

_INTERVAL = 0.02  # between two looks [seconds]
MEGABYTE = 1024 * 1024


@dataclass
class Memory:
    """The resident memory of a process [MiB]: before a `with` block, at most within it, and at its end."""

    before: float
    most: float
    after: float = 0.0

    @property
    def growth(self) -> float:
        """The most over the memory of before [MiB]."""
        return self.most - self.before

    @property
    def figures(self) -> dict[str, object]:
        """For `Figures.add`."""
        return {"memory_before_MiB": self.before, "most_MiB": self.most, "after_MiB": self.after}


@contextlib.contextmanager
def watched_memory(pid: int) -> Iterator[Memory]:
    """Watch the memory of a process from a thread while the block runs."""
    process, over = psutil.Process(pid), threading.Event()
    memory = Memory(_resident(process), _resident(process))

    def watch() -> None:
        while not over.wait(_INTERVAL):
            with contextlib.suppress(psutil.NoSuchProcess):
                memory.most = max(memory.most, _resident(process))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield memory
    finally:
        over.set()
        thread.join()
        with contextlib.suppress(psutil.NoSuchProcess):
            memory.after = _resident(process)


@dataclass(frozen=True)
class Holdings:
    """What some processes hold together."""

    bytes: int  # resident memory; a page that several processes share counts in equal parts for each of them
    files: int  # open file descriptors
    threads: int
    processes: int


def holdings(pids: Iterable[int]) -> Holdings:
    """Return what these processes hold. A process that has ended holds nothing."""
    memory = files = threads = alive = 0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            memory += process.memory_full_info().pss
            files += process.num_fds()
            threads += process.num_threads()
            alive += 1
    return Holdings(memory, files, threads, alive)


def _resident(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / MEGABYTE
