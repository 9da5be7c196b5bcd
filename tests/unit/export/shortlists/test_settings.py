"""The settings of `translane shortlist`, and what the exporter refuses about shortlists."""

import pytest

from helpers.bundles import random_checkpoint
from translane_export.checkpoint import load_checkpoint
from translane_export.combinations import check_checkpoint, check_settings
from translane_export.errors import ExportError
from translane_export.settings import ExportSettings
from translane_export.shortlists.settings import ENV_PREFIX, ShortlistSettings
from translane_server.bundle.manifest import SearchDefaults
from translane_server.settings.loader import load_settings


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
    ],
)
def test_what_has_no_shortlist_is_refused(flags, named):
    settings = load_settings(
        ExportSettings, ["model", "-o", "bundle", *flags], {}, prog="translane export", env_prefix="TRANSLANE_EXPORT_"
    )
    with pytest.raises(ExportError, match=named):
        check_settings(settings)


def test_a_checkpoint_without_a_shortlist_needs_one_to_use(tmp_path):
    random_checkpoint(tmp_path / "model")
    settings = ExportSettings(
        checkpoint=tmp_path / "model", output=tmp_path / "bundle", decoding_defaults=SearchDefaults(use_shortlist=True)
    )
    with pytest.raises(ExportError, match="--decoding-defaults use_shortlist needs a --shortlist"):
        check_checkpoint(settings, load_checkpoint(tmp_path / "model"))
