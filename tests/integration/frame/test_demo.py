"""`make demo`, on a bundle of random weights."""

import itertools
import re
import runpy
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from helpers.file_server import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

DEMO = Path(__file__).parents[3] / "scripts" / "demo"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    from helpers.bundles import random_bundle

    return random_bundle(tmp_path_factory.mktemp("demo") / "bundle")


def servers(bundle):
    """The processes that serve `bundle`."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if str(bundle) in " ".join(process.info.get("cmdline") or [])
        and "translane serve" in " ".join(process.info["cmdline"])
    ]


def command(bundle):
    return [sys.executable, DEMO, bundle]


def test_it_translates_every_sentence_and_leaves_no_server(bundle):
    demo = runpy.run_path(str(DEMO))
    done = subprocess.run(command(bundle), capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for text in itertools.chain(*demo["TEXTS"].values()):
        assert re.search(rf"^  {re.escape(text)}\s+→ ", done.stdout, re.MULTILINE)
    for flags in demo["WAYS"]:
        assert re.search(rf"^  {re.escape(shlex.join(flags))} +→ .", done.stdout, re.MULTILINE)
    for metric in re.findall(r"^  (translane_\w+|grpc_\w+) +(\S+) ", done.stdout, re.MULTILINE):
        assert float(metric[1]) > 0, metric
    assert done.stdout.count("translane_") >= 6
    assert servers(bundle) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_too(bundle, number):
    with subprocess.Popen(command(bundle), stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        wait_until(lambda: servers(bundle), 60)
        process.send_signal(number)
        assert process.wait(60) == 130, process.stderr.read()
        process.stdout.read(), process.stderr.read()
    assert servers(bundle) == []


def test_a_bundle_that_is_missing_is_one_clear_error(tmp_path):
    done = subprocess.run(command(tmp_path / "nothing"), capture_output=True, encoding="utf-8", timeout=120)
    assert done.returncode == 1
    assert "there is no such folder" in done.stderr
    assert "Traceback" not in done.stderr
