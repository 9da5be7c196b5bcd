"""The settings of `translane distill`, and their documentation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from translane_export.distill.settings import ENV_PREFIX, DistillSettings
from translane_server.errors import SettingsError
from translane_server.settings_loader import flag_name, load_settings

NEEDED = ["models/zh-en", "--train=a.tsv", "--output=out"]
DOCS = Path(__file__).parents[3] / "docs" / "distillation.md"


def _load(argv: list[str], environ: dict[str, str] | None = None) -> DistillSettings:
    return load_settings(DistillSettings, argv, environ or {}, prog="translane distill", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (NEEDED[1:], "TEACHER is required"),
        (NEEDED[:2], "--output is required"),
        ([*NEEDED, "--nbest=5"], "--nbest: 5 translations need as many beams, and --beam-size is 4"),
        ([*NEEDED, "--rows=5000"], "--rows: input should be less than or equal to 4096"),
        ([*NEEDED, "--beam-size=65"], "--beam-size"),
        ([*NEEDED, "--max-ratio=inf"], "--max-ratio: input should be a finite number"),
        ([*NEEDED, "--decoder-layers=0"], "--decoder-layers"),
        ([*NEEDED, "--max-length=0"], "--max-length"),
        ([*NEEDED, "--threads=0"], "--threads"),
        ([*NEEDED, "--valid=b.tsv"], "unknown argument --valid=b.tsv"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)) as caught:
        _load(argv)
    assert "\n" not in str(caught.value)


def test_the_environment_has_every_setting_and_no_other() -> None:
    settings = _load(
        [], {"TRANSLANE_DISTILL_TEACHER": "t", "TRANSLANE_DISTILL_TRAIN": "a", "TRANSLANE_DISTILL_OUTPUT": "o"}
    )
    assert (settings.teacher, settings.decoder_layers) == (Path("t"), 1)
    with pytest.raises(SettingsError, match="TRANSLANE_DISTILL_BEAMS"):
        _load(NEEDED, {"TRANSLANE_DISTILL_BEAMS": "1"})


def test_targets_are_read_where_they_are_needed() -> None:
    assert [_load([*NEEDED, *more]).reads_targets for more in ([], ["--nbest=2"], ["--with-references"])] == [
        False,
        True,
        True,
    ]


def test_the_docs_have_every_setting_with_its_default_and_its_meaning() -> None:
    expected = {}
    for name, field in DistillSettings.model_fields.items():
        default = "" if field.is_required() or field.default in (None, "") else str(field.default).lower()
        choices = " (`refuse`, `skip`)" if name == "bad_lines" else ""
        expected[flag_name(DistillSettings, name)] = (default, f"{field.description}{choices}")
    rows = re.findall(r"^\| `(TEACHER|--[a-z-]+)` \| (.*?) \| (.*) \|$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert {flag: (default.strip("` "), meaning) for flag, default, meaning in rows} == expected
    assert [flag for flag, _, _ in rows] == list(expected)
