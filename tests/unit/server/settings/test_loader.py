"""Flag > environment > file > default, and one sentence for whatever is wrong."""

from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from translane_server.core.errors import SettingsError
from translane_server.settings.loader import Flag, Settings, load_settings


class Example(Settings):
    """An example of a command."""

    source: Annotated[Path, Flag(positional=True)] = Field(description="What to read.")
    output: Annotated[Path, Flag("FOLDER", short="-o")] = Field(default=Path("out"), description="What to write.")
    group_size: Annotated[int, Flag(heading="speed")] = Field(default=8, ge=1, description="How many at once.")
    share: float | None = Field(default=0.5, le=1, description="At most 100% of it.")
    mode: Literal["slow", "quick"] | None = Field(default=None, description="How.")
    languages: tuple[str, ...] = Field(default=(), description="Which ones.")
    fast: bool = Field(default=False, description="Hurry.")
    threads: int | None = Field(default=None, description="By default all.")


def load(*argv, prefix="TRANSLANE_", **environ):
    return load_settings(Example, argv, environ, prog="example", env_prefix=prefix)


def refused(*argv, **environ):
    with pytest.raises(SettingsError) as caught:
        load(*argv, **environ)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert "pydantic" not in sentence
    assert caught.value.exit_code == 2
    return sentence


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "settings.toml"
    path.write_text('source = "file"\ngroup_size = 2\nlanguages = ["de", "fr"]\n', encoding="utf-8")
    return str(path)


def test_precedence(config):
    assert load("--config", config).group_size == 2
    assert load(TRANSLANE_CONFIG=config).group_size == 2
    assert load("--config", config, TRANSLANE_GROUP_SIZE="3").group_size == 3
    assert load("--config", config, "--group-size", "4", TRANSLANE_GROUP_SIZE="3").group_size == 4
    assert load("--config", config, "flag", TRANSLANE_SOURCE="variable").source == Path("flag")
    assert load("--config", config, TRANSLANE_SOURCE="variable").source == Path("variable")
    assert load("--config", config, TRANSLANE_CONFIG="/not/read").source == Path("file")


def test_spellings(config):
    assert load("x", "-o", "there").output == Path("there")
    assert load("x", "--fast").fast is True
    assert load("x", "--no-fast", TRANSLANE_FAST="1").fast is False
    assert load("x", TRANSLANE_FAST="true").fast is True
    assert load("x", "--languages", "de", "--languages", "fr").languages == ("de", "fr")
    assert load("x", "--languages", "de,fr").languages == ("de", "fr")
    assert load("x", TRANSLANE_LANGUAGES="de,fr").languages == ("de", "fr")
    assert load("--config", config).languages == ("de", "fr")
    assert load("--config", config, TRANSLANE_LANGUAGES="", TRANSLANE_GROUP_SIZE="").languages == ("de", "fr")


def test_settings_are_frozen():
    with pytest.raises(ValueError, match="frozen"):
        load("x").group_size = 3


def test_the_constructor_reads_no_environment(monkeypatch):
    monkeypatch.setenv("GROUP_SIZE", "3")
    assert Example(source=Path("x")).group_size == 8


@pytest.mark.parametrize(
    ("argv", "environ", "sentence"),
    [
        ((), {}, "SOURCE is required (or TRANSLANE_SOURCE, or source in the settings file)"),
        (("x", "--sped", "9"), {}, "unknown argument --sped; --help-all lists the known ones"),
        (("x", "y"), {}, "unknown argument y; --help-all lists the known ones"),
        (("x", "--group-size"), {}, "--group-size: expected one argument"),
        (("x", "--group-size", "0"), {}, "--group-size: input should be greater than or equal to 1, not '0'"),
        (
            ("x",),
            {"TRANSLANE_GROUP_SIZE": "many"},
            "TRANSLANE_GROUP_SIZE: input should be a valid integer, unable to parse string as an integer, not 'many'",
        ),
        (
            ("x",),
            {"TRANSLANE_GROUP_SISE": "1"},
            "unknown environment variable TRANSLANE_GROUP_SISE; did you mean TRANSLANE_GROUP_SIZE?",
        ),
        (("x",), {"TRANSLANE_ZZZZ": "1"}, "unknown environment variable TRANSLANE_ZZZZ"),
        (
            ("--config", "/nowhere.toml"),
            {},
            "settings file /nowhere.toml: it cannot be read: No such file or directory",
        ),
    ],
)
def test_refusals(argv, environ, sentence):
    assert refused(*argv, **environ) == sentence


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("group-size = 3", "unknown key group-size; did you mean group_size?"),
        ("group_size = 0", "greater than or equal to 1, not 0"),
        ("group_size = ", "it is not TOML"),
        ("[server]\ngroup_size = 3", "unknown key server"),
        ('config = "other.toml"', "unknown key config"),
    ],
)
def test_refused_files(tmp_path, content, part):
    path = tmp_path / "bad.toml"
    path.write_text(content, encoding="utf-8")
    sentence = refused("x", "--config", str(path))
    assert str(path) in sentence
    assert part in sentence


def test_long_values_are_cut():
    assert len(refused("x", "--group-size", "9" * 10_000 + "x")) < 250


def test_variables_of_other_commands_are_not_ours():
    others = {"TRANSLANE_TRAIN_STEPS": "1", "TRANSLANE_EXPORT_FORMAT": "x", "TRANSLANE_CLIENT_SERVER": "y"}
    assert load("x", **others).group_size == 8


def test_a_command_ignores_the_servers_variables():
    settings = load("x", prefix="TRANSLANE_TRAIN_", TRANSLANE_PORT="1", TRANSLANE_TRAIN_GROUP_SIZE="5")
    assert settings.group_size == 5
    with pytest.raises(SettingsError, match="TRANSLANE_TRAIN_PORT"):
        load("x", prefix="TRANSLANE_TRAIN_", TRANSLANE_TRAIN_PORT="1")


def printed(capsys, *argv):
    with pytest.raises(SystemExit) as caught:
        load(*argv)
    assert caught.value.code == 0
    return capsys.readouterr().out


def test_version(capsys):
    assert printed(capsys, "--version") == f"example {version('translane')}\n"
