"""What holds for all tests: one thread for PyTorch, no limits of Hypothesis, one store of exports, and the groups."""

import contextlib
import gc
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# Before anything of `helpers` is imported, so that a failed assertion of a helper tells its values, too.
pytest.register_assert_rewrite("helpers")

from helpers import groups, store  # noqa: E402

# Set before PyTorch reads it. On tiny tensors a second thread only costs time, above all beside other processes.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_MANY, _kept = 200, 0  # modules

# How long an example takes says more about the machine than about the code.
hypothesis.settings.register_profile("translane", deadline=None)
hypothesis.settings.load_profile("translane")


def pytest_configure(config: pytest.Config) -> None:
    if not store.is_open():  # else this is a process of xdist, whose session opened it
        opened = contextlib.ExitStack()
        cache = getattr(config, "cache", None)  # which pytest can be told to do without
        folder = cache.mkdir("models") if cache else Path(opened.enter_context(tempfile.TemporaryDirectory()))
        opened.enter_context(store.opened(folder))
        groups.hand_over_in(Path(opened.enter_context(tempfile.TemporaryDirectory())) / "groups.json")
        config.add_cleanup(opened.close)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if getattr(config.option, "loadgroup", False):  # in the processes that xdist starts
        groups.distribute(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> groups.GroupScheduling | None:
    return groups.GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.fixture(scope="module")
def authority():
    """An authority that signs certificates."""
    return pytest.importorskip("trustme").CA()


@pytest.fixture(scope="module")
def another():
    """Another authority."""
    return pytest.importorskip("trustme").CA()


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory):
    """One cluster of Ray, where each module deploys its application. Its tests have the group "ray"."""
    pytest.importorskip("ray.serve", reason="the extra ray is not installed")
    from helpers.ray_cluster.serve import RayServe

    with contextlib.closing(RayServe(tmp_path_factory.mktemp("ray"), cpus=16)) as running:
        yield running


def pytest_collection_finish() -> None:
    _keep_modules_from_the_collector()


def pytest_runtest_logfinish() -> None:
    if len(sys.modules) > _kept + _MANY:  # as the first export of a process imports
        _keep_modules_from_the_collector()


def _keep_modules_from_the_collector() -> None:
    """Keep the garbage collector from what lives as long as the process: modules are a million objects with PyTorch.

    An export collects garbage three times, which took longer than capturing a graph does.
    """
    global _kept
    gc.collect()
    gc.freeze()
    _kept = len(sys.modules)


# A shell that runs something in the background has it ignore Ctrl-C, and so everything it starts; tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
