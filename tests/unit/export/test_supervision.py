"""An export that a signal ends is one sentence, and a signal for the command reaches the export."""

import signal
import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
from translane_export.supervision import supervise
code = supervise("translane export")
if code is not None:
    sys.exit(code)
{body}
"""


def start(body):
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("name", ["SIGABRT", "SIGBUS", "SIGSEGV", "SIGKILL"])
def test_an_export_that_a_signal_ends(name):
    process = start(f"os.kill(os.getpid(), signal.{name})")
    _, error = process.communicate(timeout=60)
    assert error == (
        f"translane export: ended by {name}: there is too little memory, or a file is damaged or was changed"
        " meanwhile\n"
    )
    assert process.returncode == 1


def test_an_export_that_ends_by_itself():
    process = start("print('done'); print('a sentence', file=sys.stderr); os.write(2, b'noise'); sys.exit(7)")
    assert process.communicate(timeout=60) == ("done\n", "a sentence\n")
    assert process.returncode == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_reaches_the_export(number):
    body = """
def end(number, frame):
    print("removed", number, flush=True)
    sys.exit(9)
signal.signal(signal.SIGTERM, end); signal.signal(signal.SIGHUP, end)
print("ready", flush=True)
while True:
    time.sleep(0.1)  # a signal that comes just before a sleep is handled after that sleep
"""
    process = start(body)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert process.communicate(timeout=60) == (f"removed {int(number)}\n", "")
    assert process.returncode == 9
