"""What the programs `driver` and `node` share with those who start them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from helpers.reliability.form import form

ROOT = Path(__file__).parents[3]

# A line of the driver begins so: Ray writes lines of its processes on standard output, too.
MARK = "ray driver: "
OBJECT_STORE = 80 * 1024 * 1024  # of a node; the least that Ray takes is little below [bytes]

# Ray tells nobody of its use.
_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "GRPC_VERBOSITY": "NONE",
    "RAY_AUTH_MODE": "disabled",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # Serve kills a proxy that takes 15 s to start, and gives up
    "RAY_SERVE_PROXY_HEALTH_CHECK_PERIOD_S": form("2", "10"),  # only then Serve notices that a proxy was killed
    "RAY_worker_niceness": "0",  # with Ray's own 15, Serve hardly gets a processor beside other tests
    "RAY_prestart_worker_first_driver": "0",  # no test waits for workers, and each takes seconds to start
    "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])]),
}


def started(
    name: str, *arguments: str, log: IO[str], environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program of this folder, with pipes as its standard input and output. It ends when the input ends."""
    return subprocess.Popen(
        [sys.executable, "-m", f"helpers.ray_cluster.{name}", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        cwd=ROOT,
        env={**os.environ, **_ENVIRONMENT, **(environment or {})},
    )
