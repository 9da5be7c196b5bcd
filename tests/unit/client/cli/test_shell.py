"""The `translane` command in a process of its own: encodings, pipes, signals, closed streams."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from unit.client.fake_server import PATIENCE, FakeServer

from helpers.client_command import shell


def test_the_shell_sees_utf8_whatever_the_locale(server: FakeServer):
    with shell(server.address, "translate") as process:
        out, err = process.communicate("猫\n".encode(), timeout=60)
    assert (out.decode(), err, process.returncode) == ("<猫>\n", b"", 0)


def test_the_shell_may_close_the_pipe(server: FakeServer):
    with shell(server.address, "translate", "--batch-size", "1") as process:
        process.stdout.close()
        process.stdin.write(b"a\n" * 10)
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 141


@pytest.mark.parametrize("argv", [["translate", "a"], ["models"]])
def test_a_full_disk_behind_the_shell_is_one_sentence(server: FakeServer, argv: list[str]):
    with Path("/dev/full").open("wb") as full, shell(server.address, *argv, stdout=full) as process:
        _, err = process.communicate(timeout=60)
    assert (err.decode(), process.returncode) == (f"translane {argv[0]}: standard output: No space left on device\n", 1)


def test_ctrl_c_ends_it_quietly(server: FakeServer):
    server.always = server.hang
    with shell(server.address, "translate", "--batch-size", "1") as process:
        process.stdin.write(b"a\n" * 10)
        process.stdin.close()
        server.wait_for_requests(2)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == b""
    assert server.cancelled.wait(PATIENCE)


@pytest.mark.parametrize("package", ["grpc", "google.rpc", "grpc_status"])
def test_a_missing_package_is_one_sentence(package: str):
    code = f"import sys; sys.modules[{package!r}] = None\nfrom translane.__main__ import main; sys.exit(main())"
    done = subprocess.run([sys.executable, "-c", code, "models"], capture_output=True, text=True, timeout=60)
    sentence = (
        f"translane models: {package.partition('.')[0]} is not installed; install translane with its dependencies\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (1, "", sentence)


@pytest.mark.parametrize(
    ("closing", "argv", "status", "out", "err"),
    [
        (">&-", "translate a", 1, "", "translane translate: standard output is closed\n"),
        (">&-", "models", 1, "", "translane models: standard output is closed\n"),
        (">&-", "translate a -o /dev/stderr", 0, "", "<a>\n"),
        ("<&-", "translate a", 0, "<a>\n", ""),
        ("<&-", "translate", 1, "", "translane translate: standard input is closed\n"),
        ("2>&-", "translate a", 0, "<a>\n", ""),
    ],
)
def test_closed_standard_streams_are_told(server: FakeServer, closing, argv: str, status, out: str, err: str):
    done = subprocess.run(
        ["bash", "-c", f'"$0" -m translane {argv} {closing}', sys.executable],
        env={**os.environ, "TRANSLANE_CLIENT_SERVER": server.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, out, err)
