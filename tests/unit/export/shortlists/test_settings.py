"""The settings of `translane shortlist`, and what the exporter refuses about shortlists."""

import re
from pathlib import Path

import pytest

from translane_export.combinations import check_settings
from translane_export.errors import ExportError
from translane_export.settings import ExportSettings
from translane_export.shortlists.settings import ENV_PREFIX, ShortlistSettings
from translane_server.settings_loader import flag_name, load_settings

DOCS = Path(__file__).parents[4] / "docs" / "export.md"


def test_the_docs_have_every_setting_with_its_default_and_its_meaning():
    expected = {}
    for name, field in ShortlistSettings.model_fields.items():
        default = "" if field.is_required() or field.default == "" else str(field.default).lower()
        expected[flag_name(ShortlistSettings, name)] = (default, field.description)
    section = DOCS.read_text(encoding="utf-8").partition("## Shortlists\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(CHECKPOINT|--[a-z-]+)` \| (.*?) ?\| (.*) \|$", section, re.MULTILINE)
    assert {flag: (default.strip("` "), meaning) for flag, default, meaning in rows} == expected
    assert [flag for flag, _, _ in rows] == list(expected)


def test_the_environment_sets_what_flags_do():
    argv = ["model", "--text", "text.tsv", "-o", "rules.vmap"]
    settings = load_settings(
        ShortlistSettings, argv, {"TRANSLANE_SHORTLIST_ALWAYS": "7"}, prog="shortlist", env_prefix=ENV_PREFIX
    )
    assert settings.always == 7


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--shortlist", "rules.vmap", "--precision", "fp16"], "--shortlist is for fp32 and int8 bundles, and fp16"),
        (["--shortlist", "rules.vmap", "--format", "torchscript"], "--shortlist is for .* TorchScript files have none"),
        (["--decoding-defaults", "use_shortlist=true"], "--decoding-defaults use_shortlist needs a --shortlist"),
    ],
)
def test_what_has_no_shortlist_is_refused(flags, named):
    settings = load_settings(
        ExportSettings, ["model", "-o", "bundle", *flags], {}, prog="translane export", env_prefix="TRANSLANE_EXPORT_"
    )
    with pytest.raises(ExportError, match=named):
        check_settings(settings)
