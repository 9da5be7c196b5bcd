"""Bundles of every schema version still load and translate as on the day they were written."""

import json
from pathlib import Path

import pytest

from helpers.reference_bundle import ATTENTION, EXPECTED, attend, decode
from translane_server.bundle import SCHEMA_VERSION, load_bundle

BUNDLES = sorted((Path(__file__).parents[2] / "data" / "bundles").glob("v*"))


def test_there_is_one_of_each_version():
    assert [load_bundle(folder).manifest.schema_version for folder in BUNDLES] == [*range(1, SCHEMA_VERSION + 1)]


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_it_decodes_the_recorded_tokens(folder):
    tokens, _ = decode(folder)
    assert tokens == json.loads((folder / EXPECTED).read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "folder", [folder for folder in BUNDLES if folder.name != "v1"], ids=lambda folder: folder.name
)
def test_it_attends_as_recorded(folder):
    recorded = json.loads((folder / ATTENTION).read_text(encoding="utf-8"))
    weights = attend(folder)
    assert weights.keys() == recorded.keys()
    for text, steps in recorded.items():
        for step, expected in zip(weights[text], steps, strict=True):
            assert step == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_it_is_small(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
