"""What replicas tell each other about whether they are at work."""

import subprocess
import sys

from translane_server.workers.worker_process import Activity


def test_a_replica_is_alone_while_no_other_one_is_at_work():
    shared = Activity(0)
    one, other = shared.of(0), shared.of(1023)
    assert one.is_alone()
    one.set(True)
    assert one.is_alone()
    assert not other.is_alone()
    other.set(True)
    assert not one.is_alone()
    one.set(False)
    assert other.is_alone()
    assert not one.is_alone()


# In a process of its own: a fork of the one that runs the tests would go on with them if its end failed.
FORKS = """
import os
from translane_server.workers.worker_process import Activity

shared = Activity(0)
if child := os.fork():
    os.waitpid(child, 0)
    print(shared.of(0).is_alone(), shared.of(1).is_alone())
else:
    shared.of(1).set(True)
"""


def test_processes_that_are_forked_share_it():
    done = subprocess.run([sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False True\n"
