"""The models that variants of attention are measured with."""

import pytest

from benchmarks.models.attention_variants import SIZES, TARGET_CAPACITY, VARIANTS, row_bytes
from helpers.bundles import random_bundle
from translane_export.model import TransformerConfig
from translane_server.bundle import load_bundle


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_is_a_model_with_room_for_the_longest_case(name):
    assert TransformerConfig(**SIZES, **VARIANTS[name]).max_positions >= TARGET_CAPACITY


def test_bytes_are_those_of_the_keys_and_values(tmp_path):
    bundle = load_bundle(random_bundle(tmp_path / "bundle"))
    architecture, limits = bundle.manifest.architecture, bundle.manifest.limits
    tokens = limits.source_tokens + limits.target_tokens
    assert row_bytes(bundle) == tokens * 2 * architecture.heads * architecture.head_size * 4
