"""The settings of `translane-plan`, and their documentation."""

import re
from pathlib import Path

import pytest

from translane_plan.settings import MEASURE_PREFIX, SIZE_PREFIX, MeasureSettings, SizeSettings
from translane_server.errors import SettingsError
from translane_server.settings_loader import Settings, flag_name, load_settings

PAGE = (Path(__file__).parents[3] / "docs" / "scaling.md").read_text(encoding="utf-8")
COMMANDS: dict[str, tuple[type[Settings], str]] = {
    "measure": (MeasureSettings, MEASURE_PREFIX),
    "size": (SizeSettings, SIZE_PREFIX),
}


@pytest.mark.parametrize(("given", "seconds"), [("500ms", 0.5), ("0.5s", 0.5), ("2", 2.0), (" 3 s ", 3.0)])
def test_times_have_units(given, seconds):
    assert SizeSettings(profile=Path("x"), rate=1, p95=given).p95 == pytest.approx(seconds)


def test_a_bundle_is_no_url_and_its_password_is_not_shown():
    arguments = ["-o", "profile.json", "https://user:hunter2@host/zh-en"]
    with pytest.raises(SettingsError, match=r"^BUNDLE: a folder is needed, not a URL$"):
        load_settings(MeasureSettings, arguments, {}, prog="translane-plan measure", env_prefix=MEASURE_PREFIX)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_has_every_flag(command):
    settings, _ = COMMANDS[command]
    flags = {flag_name(settings, name) for name in settings.model_fields if flag_name(settings, name)[:2] == "--"}
    section = PAGE.split(f"\n### translane-plan {command}\n")[1].split("\n## ")[0].split("\n### ")[0]
    assert set(re.findall(r"^\| `(--[a-z0-9-]+)", section, re.MULTILINE)) == flags


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_flag(command, capsys):
    settings, prefix = COMMANDS[command]
    with pytest.raises(SystemExit):
        load_settings(settings, ["--help"], {}, prog=f"translane-plan {command}", env_prefix=prefix)
    out = capsys.readouterr().out
    assert all(flag_name(settings, name) in out for name in settings.model_fields)
