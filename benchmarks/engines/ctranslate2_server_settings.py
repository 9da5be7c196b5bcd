"""The ways to run CTranslate2's server."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.engines.server_process import ServerProcess, ctranslate2
from benchmarks.engines.settings import LIBRARIES, splits
from benchmarks.models.benchmarked import COMPUTE_TYPES, BenchmarkedModel


@dataclass(frozen=True)
class ServerSetting:
    """One way to run CTranslate2's server."""

    library: str
    workers: int
    threads: int
    batch_size: int = 32
    wait: int = 0  # ms
    queued: int = 0  # batches under way beyond those of the workers

    def __str__(self) -> str:
        told = f"{self.workers} × {self.threads} {self.library}, batches of {self.batch_size}"
        told += f", {self.wait} ms" if self.wait else ""
        return told + (f", {self.queued} queued" if self.queued else "")

    def start(self, model: BenchmarkedModel, precision: str) -> ServerProcess:
        flags = {
            "--workers": self.workers,
            "--threads": self.threads,
            "--batch-size": self.batch_size,
            "--wait": self.wait,
            "--under-way": self.workers + self.queued,
            "--compute-type": COMPUTE_TYPES[precision],
        }
        words = [str(word) for pair in flags.items() for word in pair]
        return ctranslate2(model.converted, model.bundle, words, LIBRARIES[self.library])


def replaced(setting: ServerSetting, **changes: Any) -> ServerSetting:
    return ServerSetting(**asdict(setting) | changes)


def splits_of_all() -> list[tuple[int, int]]:
    """Workers × threads that use all cores that are granted."""
    return splits(len(os.sched_getaffinity(0)))
