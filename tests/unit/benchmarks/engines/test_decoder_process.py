"""What a decoder in a process of its own is found to take."""

import subprocess
import sys
from typing import Any

from benchmarks.engines.decoder_process import _Served
from benchmarks.models.workload import Load

WORK = 0.1  # seconds of processor time
CHILD = f"""
import sys, time
for line in sys.stdin:
    end = time.process_time() + {WORK}
    while time.process_time() < end:
        pass
    print("done", flush=True)
"""


class Delegating:
    """Has its work done by a process that it starts."""

    def __init__(self):
        self._child: Any = subprocess.Popen(
            [sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def prepare(self, load):
        return load

    def decode(self, load):
        self._child.stdin.write(b"work\n")
        self._child.stdin.flush()
        assert self._child.stdout.readline() == b"done\n"
        return load

    def token_ids(self, load):
        return [(1, 2, 3)]

    def close(self):
        with self._child:
            self._child.stdin.close()


def test_processor_time_of_other_processes_counts():
    served = _Served(Delegating)
    served.open((), {})
    served.load(Load((), None, 1, 1, 1))
    decoded = served.decode(True)
    served.close()
    assert decoded.cpu_seconds >= WORK
    assert (decoded.tokens, decoded.translations) == (3, [(1, 2, 3)])
