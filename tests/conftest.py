"""What holds for all tests: one thread for PyTorch, no time limits of Hypothesis, one store of exported models."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile

import hypothesis
import pytest

# Set before PyTorch reads it. On tiny tensors a second thread only costs time, above all beside other processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("translane", deadline=None)
hypothesis.settings.load_profile("translane")


def pytest_configure(config: pytest.Config) -> None:
    if "TESTS_STORE" in os.environ:  # of the session that this process of xdist is part of
        return
    os.environ["TESTS_STORE"] = folder = tempfile.mkdtemp(prefix="translane-tests-")

    def remove() -> None:
        del os.environ["TESTS_STORE"]
        shutil.rmtree(folder, ignore_errors=True)

    config.add_cleanup(remove)


# A shell that runs something in the background has it ignore Ctrl-C, and so everything it starts; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
