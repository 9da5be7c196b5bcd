"""The commands on hostile files and under memory limits: one sentence, the exit code 1, and no waiting."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.reliability.form import form
from helpers.tiny_bundle import TINY
from translane_server.core.terminal import printable

PATIENCE = 120  # seconds, on a busy machine
COMMANDS = {
    "translane export": ["-m", "translane", "export", "FOLDER", "--output", "OUTPUT", "--threads", "1"],
    "translane serve": ["-m", "translane", "serve", "FOLDER", "--port", "0", "--metrics-port", "0"],
}


def sentence(command: str, folder: Path, memory: int | None = None) -> str:
    """Run a command that fails; return what it says beside its progress. `memory` is a limit [bytes]."""
    words = {"FOLDER": str(folder), "OUTPUT": str(folder.with_name("out"))}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))

    ended = subprocess.run(
        [sys.executable, *(words.get(word, word) for word in COMMANDS[command])],
        capture_output=True,
        timeout=PATIENCE,
        check=False,
        preexec_fn=limit,
    )
    error = ended.stderr.decode()
    lines = [line for line in error.splitlines() if not line.startswith("translane export: reading ")]
    assert ended.returncode == 1, error
    assert len(lines) == 1, error
    assert lines[0] == printable(lines[0])
    assert lines[0].startswith(f"{command}: ")
    assert not folder.with_name("out").exists()
    return lines[0]


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def nested(path: Path) -> None:
    path.write_bytes(b"[" * 200_000)


def endless(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def vast(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(200 * 10**9)  # without blocks


HARMS = [pipe, nested, endless, vast]
# The exporter takes seconds to start, and reads this file as the server does.
HARMED = [("translane serve", harm) for harm in HARMS] + [("translane export", harm) for harm in form([pipe], HARMS)]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "harm"), HARMED)
def test_a_manifest_that_is_none(command, harm, tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "bundle")
    harm(folder / "manifest.json")
    said = sentence(command, folder)
    print(f"{command}, {harm.__name__}: {said}")


@pytest.mark.parametrize("command", COMMANDS)
def test_too_little_memory(command, tmp_path):
    folder = shutil.copytree(TINY, tmp_path / "bundle")
    said = sentence(command, folder, memory=45_000_000 if command == "translane serve" else 400_000_000)
    assert "memory" in said
