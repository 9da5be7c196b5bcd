"""What a cell of the serving benchmark sends to a server, and how it is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.server_process import BenchError, ServerProcess, bench
from benchmarks.places import ROOT


@dataclass(frozen=True)
class CellLoad:
    """The sentences and the search of a cell.

    Attributes:
        sentences: file of what is sent, a sentence on each line.
        beam_size: 1 is greedy search.
        fixed: whether a tab and the length of its translation follow each sentence.
        warm_up: seconds before each measurement.
    """

    sentences: Path
    beam_size: int
    fixed: bool
    warm_up: float

    def measure(self, server: ServerProcess, *flags: str, duration: float, seed: int = 0) -> dict[str, Any]:
        """What `translane bench` reports. BenchError: there is no measurement."""
        fixed = ["--max-lengths"] if self.fixed else []
        search = ["--beam-size", str(self.beam_size), *(["--early-stopping"] if self.beam_size > 1 else [])]
        times = ["--duration", f"{duration}s", "--warm-up", f"{self.warm_up}s", "--schedule-seed", str(seed)]
        return bench(server.address, "-i", str(self.sentences), *fixed, *search, *times, *flags)

    def replay(self, server: ServerProcess, trace: Path, *, paragraphs: bool) -> dict[str, Any]:
        """What `benchmarks.measuring.replay` measures of a trace. BenchError: there is no measurement."""
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = ["-m", "benchmarks.measuring.replay", "--server", server.address, "--trace", str(trace)]
            command += ["--json", file.name, "--beam-size", str(self.beam_size)]
            command += ["--paragraphs"] if paragraphs else []
            done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)
            if done.returncode:
                raise BenchError(f"the trace was not replayed: {done.stderr}")
            measured: dict[str, Any] = json.loads(Path(file.name).read_text(encoding="utf-8"))
            return measured
