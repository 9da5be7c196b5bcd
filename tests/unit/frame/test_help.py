"""The help of every command: a page with --help, everything with --help-all; and suggestions for mistyped flags."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence

import pytest

from translane_batch.settings import BatchSettings
from translane_client.cli.command import parse_arguments
from translane_server.access import key_command
from translane_server.errors import SettingsError
from translane_server.ray_serve.settings import RaySettings
from translane_server.settings import ServerSettings
from translane_server.settings_loader import Settings, flag_name, load_settings

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
CLIENT = ("translate", "score", "models", "bench")
KEYS = ("keys", "keys add", "keys rotate", "keys set", "keys remove", "keys list")

Read = Callable[[Sequence[str]], object]


def reader(command: str) -> Read:
    """What reads the arguments of a command."""
    name, *words = command.split()
    if name == "keys":
        return lambda argv: key_command.run([*words, *argv], {})
    if name in CLIENT:
        return lambda argv: parse_arguments([name, *argv], {})
    return lambda argv: load_settings(SETTINGS[name], argv, {}, prog=f"translane {name}", env_prefix="TRANSLANE_X_")


@pytest.fixture(autouse=True)
def _a_narrow_terminal_without_colours(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR", raising=False)


@pytest.fixture
def printed(capsys):
    """What a command prints for a flag, and then ends."""

    def read(command: str, flag: str) -> str:
        with pytest.raises(SystemExit) as caught:
            reader(command)([flag])
        assert caught.value.code == 0
        page: str = capsys.readouterr().out
        return page

    return read


def arguments_of(page: str) -> set[str]:
    """The flags, without their no-, and the words for positional arguments."""
    starts = re.findall(r"^  (-\S.*?|[A-Z]\S*)(?:  |$)", page, re.MULTILINE)
    return {word.replace("[no-]", "") for start in starts for word in re.findall(r"--[\w\[\]-]+|^[A-Z]+", start)}


@pytest.mark.parametrize("command", [*SETTINGS, *CLIENT, *KEYS])
def test_the_help_is_a_page_and_the_whole_help_has_the_rest(printed, command: str):
    page, whole = printed(command, "--help"), printed(command, "--help-all")
    assert page.startswith("usage: ")
    assert page.count("\n") <= 60
    rest = arguments_of(whole) - arguments_of(page)
    assert arguments_of(page) <= arguments_of(whole)
    if rest:
        assert page.endswith(f" --help-all shows {len(rest)} more.\n")
    else:
        assert page == whole


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
    try:
        code = reader(command)(typed)
    except SystemExit as ended:
        code = ended.code
    except SettingsError as error:  # `translane` prints it
        code = error.exit_code
        print(error, file=sys.stderr)
    assert code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1
