"""The settings of `translane distill`, and their documentation."""

from __future__ import annotations

import re

import pytest

from translane_export.distill.settings import ENV_PREFIX, DistillSettings
from translane_server.core.errors import SettingsError
from translane_server.settings.loader import load_settings

NEEDED = ["models/zh-en", "--train=a.tsv", "--output=out"]


def _load(argv: list[str], environ: dict[str, str] | None = None) -> DistillSettings:
    return load_settings(DistillSettings, argv, environ or {}, prog="translane distill", env_prefix=ENV_PREFIX)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (NEEDED[1:], "TEACHER is required"),
        (NEEDED[:2], "--output is required"),
        ([*NEEDED, "--nbest=5"], "--nbest: 5 translations need as many beams, and --beam-size is 4"),
        ([*NEEDED, "--max-batch-size=5000"], "--max-batch-size: input should be less than or equal to 4096"),
        ([*NEEDED, "--beam-size=65"], "--beam-size"),
        ([*NEEDED, "--max-ratio=inf"], "--max-ratio: input should be a finite number"),
        ([*NEEDED, "--decoder-layers=0"], "--decoder-layers"),
        ([*NEEDED, "--max-length=0"], "--max-length"),
        ([*NEEDED, "--threads=0"], "--threads"),
        ([*NEEDED, "--valid=b.tsv"], "unknown argument --valid"),
    ],
)
def test_wrong_settings_are_refused_in_one_sentence(argv: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)) as caught:
        _load(argv)
    assert "\n" not in str(caught.value)
