"""Bundles of every schema version still load and translate as on the day they were written."""

import json
from pathlib import Path

import pytest

from helpers.reference_bundle import EXPECTED, decode

BUNDLES = sorted((Path(__file__).parents[2] / "data" / "bundles").glob("v*"))


def test_there_is_one():
    assert BUNDLES


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_it_decodes_the_recorded_tokens(folder):
    tokens, _ = decode(folder)
    assert tokens == json.loads((folder / EXPECTED).read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_it_is_small(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
