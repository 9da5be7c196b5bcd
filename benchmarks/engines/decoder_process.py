"""A decoder in a process of its own, whose environment, threads and memory belong to no other program.

Processes that the decoder starts count as its own.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from benchmarks.machine import cpu_seconds, family
from benchmarks.models.workload import Load
from helpers.reliability.resources import holdings


@dataclass(frozen=True)
class Decoded:
    """What decoding a load once came to.

    `cpu_seconds` count all threads of the decoder's process, and of the processes which that one has started.
    """

    seconds: float
    cpu_seconds: float
    tokens: int
    translations: list[tuple[int, ...]] | None = None


class Decoder(Protocol):
    """What an engine's decoder does; its constructor opens it."""

    def prepare(self, load: Load) -> Any:
        """What `decode` takes."""

    def decode(self, prepared: Any) -> Any:
        """Translate."""

    def token_ids(self, results: Any) -> list[tuple[int, ...]]:
        """The best translations, in the order of the sources, without their ends."""

    def close(self) -> None:
        """Release the model."""


class DecoderProcess:
    """Opens and runs one decoder at a time in another process; a `with` statement ends the process.

    The decoder is "module.Class", imported in the process, where the variables of `environment` are set before.
    """

    def __init__(self, decoder: str, environment: Mapping[str, str] | None = None) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, decoder, dict(environment or {})), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> DecoderProcess:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._connection.close()
        self._process.join(timeout=30)

    def kill(self) -> None:
        """End the process, whatever it is doing."""
        self._connection.close()
        self._process.kill()
        self._process.join()

    def open(self, *arguments: Any, **keywords: Any) -> float:
        """Close the last decoder and make a new one; return the seconds that the new one took."""
        seconds: float = self._call("open", arguments, keywords)
        return seconds

    def load(self, load: Load) -> None:
        """Prepare what `decode` decodes from now on."""
        self._call("load", load)

    def decode(self, *, translations: bool = False, patience: float | None = None) -> Decoded:
        """Decode the load once.

        Raises:
            TimeoutError: decoding took longer than `patience` seconds; the process is of no more use.
        """
        decoded: Decoded = self._call("decode", translations, patience=patience)
        return decoded

    def memory(self) -> int:
        """Resident memory of the process and of its descendants now [bytes]; see `Holdings`."""
        held: int = self._call("memory")
        return held

    def close(self) -> None:
        """Close the decoder."""
        self._call("close")

    def _call(self, name: str, *arguments: Any, patience: float | None = None) -> Any:
        self._connection.send((name, arguments))
        try:
            if not self._connection.poll(patience):
                raise TimeoutError
            succeeded, result = self._connection.recv()
        except EOFError:
            raise RuntimeError(f"the decoder's process ended in {name!r}") from None
        if not succeeded:
            raise RuntimeError(f"the decoder's process failed in {name!r}:\n{result}")
        return result


def _serve(connection: Any, decoder: str, environment: Mapping[str, str]) -> None:
    os.environ.update(environment)
    module, _, name = decoder.rpartition(".")
    served = _Served(getattr(importlib.import_module(module), name))
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            served.close()
            return
        try:
            connection.send((True, getattr(served, method)(*arguments)))
        except Exception:  # noqa: BLE001 - the other process is told of any error
            connection.send((False, traceback.format_exc()))


class _Served:
    """What the process does, by the names of `DecoderProcess`."""

    def __init__(self, make: Callable[..., Decoder]) -> None:
        self._make = make
        self._decoder: Decoder | None = None
        self._prepared: Any = None

    def open(self, arguments: Any, keywords: Any) -> float:
        self.close()
        started = time.perf_counter()
        self._decoder = self._make(*arguments, **keywords)
        return time.perf_counter() - started

    def load(self, load: Load) -> None:
        assert self._decoder, "it is open"
        self._prepared = self._decoder.prepare(load)

    def decode(self, translations: bool) -> Decoded:
        assert self._decoder, "it is open"
        processes = family(os.getpid())
        cpu, started = cpu_seconds(processes), time.perf_counter()
        results = self._decoder.decode(self._prepared)
        seconds, cpu = time.perf_counter() - started, cpu_seconds(processes) - cpu
        found = self._decoder.token_ids(results)
        return Decoded(seconds, cpu, sum(map(len, found)), found if translations else None)

    def memory(self) -> int:
        return holdings(family(os.getpid())).bytes

    def close(self) -> None:
        if self._decoder is not None:
            self._decoder.close()
        self._decoder = self._prepared = None
