"""The command translane and the help of each command, and what they say where there is none."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from helpers import commands
from translane.__main__ import main
from translane_server.settings.loader import flag_name

COMMANDS = (
    *("serve", "translate", "score", "models", "bench", "export", "inspect", "explain", "shortlist"),
    *("train", "distill", "batch", "keys", "ray"),
)
HEAVY = {"torch", "onnxruntime", "onnx", "ray", "pyarrow"}
HEAVY_FOR_CLIENTS = HEAVY | {"grpc", "google", "numpy", "pydantic", "tqdm", "opentelemetry", "translane_server"}
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
def test_the_help_of_a_command_waits_for_nothing_heavy(name):
    if name == "ray":
        pytest.importorskip("yaml", reason="the extra ray is not installed")
    heavy = HEAVY_FOR_CLIENTS if name in ("translate", "score", "models", "bench") else HEAVY
    done = translane(name, "--help", told=frozenset(heavy))
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert done.stdout.startswith(f"usage: translane {name} ")


def test_the_help_has_every_command_and_imports_none():
    done = translane("--help", told=frozenset({"translane_client", "translane_server", "grpc", "pydantic"}))
    assert (done.returncode, done.stderr.split()) == (0, [])
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")] == list(COMMANDS)


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version(flag):
    assert translane(flag).stdout == f"translane {version('translane')}\n"


@pytest.mark.parametrize(("argv", "said"), [(["transalte"], "did you mean translate?"), (["xx"], "--help"), ([], "")])
def test_no_such_command(argv, said):
    done = translane(*argv)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr


@pytest.mark.parametrize(
    ("command", "package", "extra"),
    [
        (["serve", "models/zh-en"], "onnxruntime", "server"),
        (["serve", "models/zh-en"], "grpc", "server"),
        (["serve", "models/zh-en"], "numpy", "server"),
        (["keys", "list"], "pydantic", "server"),
        (["train", "--evaluate", "none", "--test", "none"], "torch", "export"),
        (["export", "models/zh-en", "-o", "none"], "torch", "export"),
        (["export", "models/zh-en", "-o", "none"], "yaml", "export"),
    ],
)
def test_a_missing_package_is_a_sentence_that_names_the_extra(command, package, extra):
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
@pytest.mark.parametrize("argv", [["--version"], ["translate", "--help"]])
@pytest.mark.parametrize("buffering", ["", "1"])
def test_a_full_disk_under_standard_output_is_one_sentence(argv, buffering):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "translane", *argv],
            env=os.environ | {"PYTHONUNBUFFERED": buffering},
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


# The help of every command: a page with --help, everything with --help-all; and suggestions for mistyped flags.


SETTINGS = {
    "serve": "translane_server.settings.server_settings.ServerSettings",
    "ray": "translane_server.ray_serve.settings.RaySettings",
    "batch": "translane_batch.settings.BatchSettings",
    "export": "translane_export.core.settings.ExportSettings",
    "explain": "translane_export.core.settings.ExplainSettings",
    "shortlist": "translane_export.core.settings.ShortlistSettings",
    "train": "translane_export.train.settings.TrainSettings",
    "distill": "translane_export.distill.settings.DistillSettings",
}


def run(command: str, argv: Sequence[str]) -> int:
    """Run a command within this process, and return its exit code."""
    name, *words = command.split()
    own = getattr(commands, name, None)
    return own([*words, *argv], {}) if own else main([name, *words, *argv], {})


@pytest.fixture(autouse=True)
def _a_narrow_terminal_without_colours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def printed(capsys):
    """What a command prints for a flag, and then ends."""

    def read(command: str, flag: str) -> str:
        assert run(command, [flag]) == 0
        page: str = capsys.readouterr().out
        return page

    return read


def arguments_of(page: str) -> set[str]:
    """The flags, without their no-, and the words for positional arguments."""
    starts = re.findall(r"^  (-\S.*?|[A-Z]\S*)(?:  |$)", page, re.MULTILINE)
    return {word.replace("[no-]", "") for start in starts for word in re.findall(r"--[\w\[\]-]+|^[A-Z]+", start)}


@pytest.mark.parametrize("command", SETTINGS)
def test_the_whole_help_has_every_setting(printed, command):
    module, _, name = SETTINGS[command].rpartition(".")
    cls = getattr(pytest.importorskip(module, reason="the extra export is not installed"), name)
    expected = {flag_name(cls, name) for name in cls.model_fields} - {"--model-settings"}
    assert arguments_of(printed(command, "--help-all")) == expected | {"--help", "--version", "--config"}


@pytest.mark.parametrize(
    ("command", "typed", "sentence"),
    [
        ("serve", ["--thread", "3"], "unknown argument --thread; did you mean --threads?"),
        ("serve", ["--metrcis-port=3"], "unknown argument --metrcis-port; did you mean --metrics-port?"),
        ("serve", ["--zzz"], "unknown argument --zzz; --help-all lists the known ones"),
        ("serve", ["--device", "cdua"], "--device: input should be 'auto', 'cpu' or 'cuda', not 'cdua'; did you mean"),
        ("translate", ["--targetlanguage", "de"], "unknown argument --targetlanguage; did you mean --target-language?"),
        ("translate", ["--beam", "4"], "unknown argument --beam; did you mean --beam-size?"),
        ("translate", ["--format", "htlm"], "is needed, not 'htlm'; did you mean html?"),
        ("keys", ["rotat"], "one of add, rotate, set, remove, list is needed, not 'rotat'; did you mean rotate?"),
        ("keys add", ["--expire", "3d", "me"], "unknown argument --expire; did you mean --expires?"),
    ],
)
def test_a_mistyped_word_gets_a_suggestion_and_exit_code_2(capsys, command, typed, sentence):
    assert run(command, typed) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
