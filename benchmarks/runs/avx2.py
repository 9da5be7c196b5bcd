"""Runs another benchmark, or any program, as on a processor with AVX2 but without AVX-512, VNNI and AMX.

    python -m benchmarks.runs.avx2 python -m benchmarks.runs.offline --quick -o runs/bench/avx2/offline.json
    python -m benchmarks.runs.avx2 python -m benchmarks.runs.int8_kernels
    python -m benchmarks.runs.avx2 translane serve models/zh-en

Processes that the program starts are hidden from these instructions, too. `benchmarks.processors.avx2` says how, and
what is left out. It takes a C compiler and objdump, and 70 MB in runs/bench/processors.
"""

from __future__ import annotations

import os
import sys

from benchmarks import places
from benchmarks.processors.avx2 import CannotHide, environment


def main() -> None:
    command = sys.argv[1:]
    if not command or command[0].startswith("-"):
        print(__doc__)
        sys.exit(0 if command[:1] in (["-h"], ["--help"]) else 2)
    try:
        outside = environment(places.RESULTS / "processors")
    except CannotHide as reason:
        sys.exit(f"avx2: {reason}")
    program = sys.executable if command[0] == "python" else command[0]
    try:
        os.execvpe(program, [program, *command[1:]], outside)
    except OSError as error:
        sys.exit(f"avx2: {program} does not start: {error.strerror}")


if __name__ == "__main__":
    main()
