"""What processes take together: those that others started count, too."""

import os
import subprocess
import sys
import time

import pytest

from benchmarks import machine
from translane_plan.measuring.processes import cpu_seconds

TAKEN = 50_000_000  # bytes
WORKED = 0.2  # seconds of processor time

# Takes memory, works, opens a file, and says so; then waits until its input ends.
CHILD = f"""
import sys, time
taken = bytearray(b"x" * {TAKEN})
while time.process_time() < {WORKED}:
    pass
file = open("/dev/null")
print("ready", flush=True)
sys.stdin.read()
"""
PARENT = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


@pytest.fixture
def parent():
    command = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process


def test_a_child_counts_with_its_parent(parent):
    alone, together = [parent.pid], machine.family(parent.pid)
    assert len(together) == 2
    assert cpu_seconds(together) - cpu_seconds(alone) >= WORKED
    assert machine.memory(together) - machine.memory(alone) >= TAKEN
    assert machine.open_files(together) - machine.open_files(alone) >= 4


def test_those_that_have_ended_do_not_count(parent):
    together = machine.family(parent.pid)
    parent.stdin.close()
    parent.wait()
    assert cpu_seconds(together) == machine.memory(together) == machine.open_files(together) == 0


def test_processor_time_is_that_of_all_threads():
    assert cpu_seconds([os.getpid()]) == pytest.approx(time.process_time(), abs=0.05)
