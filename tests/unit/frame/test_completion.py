"""The scripts that --print-completion writes, in a real bash."""

from __future__ import annotations

import builtins
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from translane_batch.command import run as batch
from translane_client.__main__ import main
from translane_server.access import key_command
from translane_server.command import run as server
from translane_server.errors import SettingsError
from translane_server.settings import ServerSettings
from translane_server.settings_loader import load_settings

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def ray(argv: Sequence[str]) -> int:
    pytest.importorskip("yaml", reason="the extra ray is not installed")
    from translane_server.ray_serve.command import run

    return run(argv, {})


def train(argv: Sequence[str]) -> int:
    pytest.importorskip("torch", reason="the extra export is not installed")
    from translane_export.train.command import run

    return run(argv, {})


def export(argv: Sequence[str]) -> int:
    pytest.importorskip("torch", reason="the extra export is not installed")
    from translane_export.command import run

    before = signal.getsignal(signal.SIGTERM)
    try:
        return run(argv, {})
    finally:
        signal.signal(signal.SIGTERM, before)


PROGRAMS: dict[str, Callable[[Sequence[str]], Any]] = {
    "translane": main,
    "translane-server": lambda argv: server(argv, {}),
    "translane-keys": lambda argv: key_command.run(argv, {}),
    "translane-ray": ray,
    "translane-batch": lambda argv: batch(argv, {}),
    "translane-train": train,
    "translane-export": export,
}


def run(prog: str, *argv: str) -> None:
    PROGRAMS[prog](argv)


def test_these_are_all_programs():
    assert set(PROGRAMS) == set(PROJECT["scripts"])


@pytest.fixture
def script(capsys, tmp_path: Path):
    """The file of a command's script for a shell."""

    def write(prog: str, shell: str = "bash") -> Path:
        with pytest.raises(SystemExit) as caught:
            run(prog, "--print-completion", shell)
        assert caught.value.code == 0
        file = tmp_path / f"{prog}.{shell}"
        file.write_text(capsys.readouterr().out)
        return file

    return write


@pytest.fixture
def complete(script, tmp_path: Path):
    """The words that bash offers for the last of some words."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")

    def words(*typed: str) -> set[str]:
        lines = [
            f"source {shlex.quote(str(script(typed[0])))}",
            f"COMP_WORDS=({' '.join(map(shlex.quote, typed))})",
            f"COMP_CWORD={len(typed) - 1}",
            f"offer=$(complete -p {typed[0]} | sed 's/.*-F \\([^ ]*\\) .*/\\1/')",
            f"$offer {typed[0]} {shlex.quote(typed[-1])} {shlex.quote(typed[-2])}",
            'printf "%s\\n" "${COMPREPLY[@]}"',
        ]
        done = subprocess.run(
            [bash, "--norc", "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        assert done.stderr == ""
        return set(done.stdout.split())

    return words


def test_commands_and_their_flags(complete):
    assert complete("translane", "") >= {"translate", "score", "models", "bench"}
    assert complete("translane", "m") == {"models"}
    assert complete("translane", "translate", "--to") == {"--token-file", "--top-k", "--top-p", "--tokens"}
    assert complete("translane", "bench", "--cl") == {"--clients"}
    assert complete("translane", "models", "--no-") == {"--no-json", "--no-tls"}


def test_files(complete, tmp_path: Path):
    (tmp_path / "ca.pem").touch()
    (tmp_path / "calls").mkdir()
    assert complete("translane", "translate", "--ca", "ca") == {"ca.pem", "calls"}
    assert complete("translane-server", "--config", "ca.") == {"ca.pem"}


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("translane-server", "--metrics-p"), {"--metrics-port"}),
        (("translane-server", "--device", ""), {"auto", "cpu", "cuda"}),
        (("translane-server", "--log-f"), {"--log-format"}),
        (("translane-train", "--target-l"), {"--target-language"}),
        (("translane-batch", "--kind", ""), {"auto", "text", "tsv", "jsonl", "parquet"}),
        (("translane-export", "--prec"), {"--precision"}),
        (("translane-export", "expl"), {"explain", "explained"}),
        (("translane-export", "./explain"), {"./explained"}),
        (("translane-export", "explain", "--out"), {"--output"}),
        (("translane-export", "explain", "./expl"), {"./explained"}),
        (("translane-export", "shortlist", "--out"), {"--output"}),
        (("translane-train", "distill", "--encoder-l"), {"--encoder-layers"}),
        (("translane-ray", "--max-ser"), {"--max-serve-replicas"}),
        (("translane-keys", "ro"), {"rotate"}),
        (("translane-keys", "add", "--sentences-in"), {"--sentences-in-flight"}),
    ],
)
def test_flags_and_their_values(complete, tmp_path: Path, typed: tuple[str, ...], offered: set[str]):
    (tmp_path / "explained").mkdir()
    assert complete(*typed) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
@pytest.mark.parametrize("prog", PROGRAMS)
def test_every_shell_has_a_script(script, prog: str, shell: str):
    text = script(prog, shell).read_text()
    assert prog in text
    if shutil.which(shell):
        subprocess.run([shell, "-n", script(prog, shell)], check=True, capture_output=True)


def test_without_shtab_a_sentence_says_what_to_install(monkeypatch, capsys):
    real = builtins.__import__

    def without(name, *arguments, **keywords):
        if name == "shtab":
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **keywords)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SystemExit) as caught:
        main(["--print-completion", "bash"])
    assert caught.value.code == 2
    assert "pip install 'translane[completion]'" in capsys.readouterr().err
    with pytest.raises(SettingsError, match="shtab is not installed"):
        load_settings(ServerSettings, ["--print-completion", "bash"], {}, prog="translane-server", env_prefix="X_")


@pytest.mark.parametrize("prog", PROGRAMS)
def test_help_has_no_colours_where_they_are_not_wanted(monkeypatch, capsys, prog: str):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    with suppress(SystemExit):
        run(prog, "--help")
    out = capsys.readouterr().out
    assert out.startswith("usage: ")
    assert "\x1b[" not in out
