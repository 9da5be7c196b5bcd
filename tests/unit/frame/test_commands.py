"""The command `translane`: from its first argument to a command, and what it says where there is none."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

COMMANDS = (
    *("serve", "translate", "score", "models", "bench", "export", "inspect", "explain", "shortlist"),
    *("train", "distill", "batch", "keys", "ray"),
)
HEAVY = {"torch", "onnxruntime", "onnx", "ray", "pyarrow"}
# Runs the command in an interpreter where some packages are missing, and tells which of others were imported.
PROGRAM = """
import sys
sys.modules.update(dict.fromkeys({missing!r}))
from translane.__main__ import main
code = main()
print(*sorted({told!r} & {{name for name, module in sys.modules.items() if module}}), sep="\\n", file=sys.stderr)
sys.exit(code)
"""


def translane(
    *argv: str, missing: tuple[str, ...] = (), told: frozenset[str] = frozenset()
) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.format(missing=missing, told=set(told) or {""})
    return subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_waits_for_nothing_heavy(name: str):
    if name == "ray":
        pytest.importorskip("yaml", reason="the extra ray is not installed")
    done = translane(name, "--help", told=frozenset(HEAVY))
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert done.stdout.startswith(f"usage: translane {name} ")


def test_the_help_has_every_command_and_imports_none():
    done = translane("--help", told=frozenset({"translane_client", "translane_server", "grpc", "pydantic"}))
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == list(COMMANDS)


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version(flag: str):
    assert translane(flag).stdout == f"translane {version('translane')}\n"


@pytest.mark.parametrize(("argv", "said"), [(["transalte"], "did you mean translate?"), (["xx"], "--help"), ([], "")])
def test_no_such_command(argv: list[str], said: str):
    done = translane(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (["serve", "models/zh-en"], "onnxruntime", "server"),
        (["keys", "list"], "pydantic", "server"),
        (["train", "--evaluate", "none", "--test", "none"], "torch", "export"),
        (["export", "models/zh-en", "-o", "none"], "torch", "export"),
    ],
)
def test_a_missing_package_is_a_sentence_that_names_the_extra(command: list[str], package: str, extra: str):
    done = translane(*command, missing=(package,))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip().count("\n") == 0
    assert done.stderr.startswith(
        f"translane {command[0]}: {package} is not installed: pip install 'translane[{extra}]'"
    )


def test_a_reader_who_has_gone_is_no_traceback():
    process = subprocess.Popen(
        [sys.executable, "-m", "translane", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_ctrl_c_while_a_command_is_imported_is_quiet():
    code = f"""
import signal, sys
from translane.__main__ import main
class Interrupted:
    def find_spec(self, name, *_):
        if name == "translane_server.settings.server_settings":
            signal.raise_signal({int(signal.SIGINT)})
sys.meta_path.insert(0, Interrupted())
sys.exit(main(["serve", "--help"]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_under_standard_output_is_one_sentence():
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "translane", "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "translane: No space left on device\n")


def test_a_path_that_cannot_be_looked_at_is_one_sentence():
    done = translane("inspect", "x" * 300)
    assert (done.returncode, done.stderr.count("\n")) == (1, 2)  # the second line is of this test's program
    assert "File name too long" in done.stderr


def test_a_command_runs_with_standard_error_closed():
    code = f"exec {shlex.quote(sys.executable)} -m translane export --version 2>&-"
    done = subprocess.run(["sh", "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("translane export ")


def test_a_mistyped_flag_cannot_write_to_the_terminal():
    done = translane("translate", "--\x1b[2J\nmore")
    assert done.returncode == 2
    assert "unknown argument --\\x1b[2J\\nmore" in done.stderr
