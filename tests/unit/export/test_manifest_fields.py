"""What a manifest says only where a model needs it, so that servers that know no such field serve the others."""

import json

import pytest

from helpers.bundles import random_bundle
from translane_server.bundle import load_bundle


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "groups"), [(2, None), (2, 1)])
def test_heads_of_keys_are_named_where_they_are_fewer(tmp_path, heads, groups):
    sizes = {"heads": heads, "kv_heads": groups, "encoder_layers": 1, "decoder_layers": 1}
    folder = random_bundle(tmp_path / "bundle", **sizes)
    architecture = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["architecture"]
    assert architecture.get("kv_heads", "absent") == ("absent" if groups is None else groups)
    assert load_bundle(folder).manifest.architecture.key_value_heads == (groups or heads)
