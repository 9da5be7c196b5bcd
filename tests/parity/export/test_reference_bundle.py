"""Bundles of every schema version still load and translate as on the day they were written."""

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.reference_bundle import ATTENTION, EXPECTED, attend, decode
from translane_server.backend import StepNeeds
from translane_server.bundle import load_bundle
from translane_server.manifest import SCHEMA_VERSION
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

BUNDLES = sorted((Path(__file__).parents[2] / "data" / "bundles").glob("v*"))


def test_there_is_one_of_each_version_and_of_each_form_of_its_graphs():
    manifests = {folder.name: load_bundle(folder).manifest for folder in BUNDLES}
    versions = {f"v{version}": (version, "fp32") for version in range(1, SCHEMA_VERSION + 1)}
    assert {name: (manifest.schema_version, manifest.precision) for name, manifest in manifests.items()} == {
        **versions,
        **{f"v{version}-int8": (version, "int8") for version in range(3, SCHEMA_VERSION + 1)},
        **{f"v{version}-fp16": (version, "fp16") for version in range(5, SCHEMA_VERSION + 1)},
    }


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
    # a float that another processor rounds the other way may become another unit of an int8 projection's input, or
    # another float16
    tolerance = 1e-5 if load_bundle(folder).manifest.precision == "fp32" else 1e-2
    assert weights.keys() == recorded.keys()
    for text, steps in recorded.items():
        for step, expected in zip(weights[text], steps, strict=True):
            assert step == pytest.approx(expected, abs=tolerance)


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_it_takes_steps_without_log_probabilities(folder):
    """Graphs of older versions compute them all the same."""
    bundle = load_bundle(folder)
    backend = OrtBackend(Sessions(bundle, threads=1), rows=2, source_capacity=8, target_capacity=4)
    backend.encode([[5, 6, 3], [7, 3]], 0)
    token_ids, positions = np.array([2, 2]), np.zeros(2, np.int32)
    expected = backend.decode_step(token_ids, positions, StepNeeds(3)).token_ids.copy()
    without = backend.decode_step(token_ids, positions, StepNeeds(3, log_probs=False))
    assert without.log_probs is None
    assert np.array_equal(without.token_ids, expected)


@pytest.mark.parametrize("folder", BUNDLES, ids=lambda folder: folder.name)
def test_it_is_small(folder):
    assert sum(path.stat().st_size for path in folder.iterdir()) < 400_000
