"""The help of every command: a page with --help, everything with --help-all; and suggestions for mistyped flags."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pytest

from helpers import commands
from translane.__main__ import main
from translane_batch.settings import BatchSettings
from translane_server.ray_serve.settings import RaySettings
from translane_server.settings.loader import Settings, flag_name
from translane_server.settings.server_settings import ServerSettings

SETTINGS: dict[str, type[Settings]] = {"serve": ServerSettings, "ray": RaySettings, "batch": BatchSettings}
try:
    from translane_export.distill.settings import DistillSettings
    from translane_export.explain.settings import ExplainSettings
    from translane_export.settings import ExportSettings
    from translane_export.shortlists.settings import ShortlistSettings
    from translane_export.train.settings import TrainSettings
except ModuleNotFoundError:  # the extra `export` is not installed
    pass
else:
    SETTINGS |= {"export": ExportSettings, "explain": ExplainSettings, "shortlist": ShortlistSettings}
    SETTINGS |= {"train": TrainSettings, "distill": DistillSettings}


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
def test_the_whole_help_has_every_setting(printed, command: str):
    cls = SETTINGS[command]
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
def test_a_mistyped_word_gets_a_suggestion_and_exit_code_2(capsys, command: str, typed: list[str], sentence: str):
    assert run(command, typed) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
