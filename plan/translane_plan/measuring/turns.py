"""How long processes keep a core that others wait for: measured with two processes on one core."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

from translane_plan.measuring.processes import on_cores
from translane_plan.profile import Turns

_SECONDS = 0.6
_SPIN = "import signal; signal.alarm(30)\nwhile True: pass"  # it ends, even if nobody ends it
_LEAST_GAP = 5e-4  # seconds without a core; an interrupt takes less
_FEWEST = 10  # gaps that say something
_OWN = Path("/proc/self/sched")


def measured_turns(core: int) -> Turns:
    """Let this process and another one want the same core for some time, and see how long each turn is."""
    with on_cores({core}):
        other = subprocess.Popen([sys.executable, "-S", "-c", _SPIN], start_new_session=True)  # noqa: S603 fixed
        try:
            gaps = _gaps(_SECONDS)
        finally:
            other.kill()
            other.wait()
    known = Turns()
    return Turns(
        slice=_slice() or known.slice,
        tick=statistics.median(gaps) if len(gaps) >= _FEWEST else known.tick,
    )


def _gaps(seconds: float) -> list[float]:
    """The times in which this thread wanted to work, and did not [seconds]."""
    found: list[float] = []
    now = begun = time.perf_counter()
    while now < begun + seconds:
        before, now = now, time.perf_counter()
        if now - before > _LEAST_GAP:
            found.append(now - before)
    return found


def _slice() -> float:
    """The slice of this process [seconds], where the kernel tells it; else 0."""
    try:
        found = re.search(r"^se\.slice +: +(\d+)$", _OWN.read_text(encoding="ascii"), re.MULTILINE)
    except OSError:
        return 0.0
    return int(found[1]) / 1e9 if found else 0.0
