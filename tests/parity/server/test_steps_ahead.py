"""Several greedy steps in one call of the backend choose what single steps choose, and stop when they are told to."""

import numpy as np
import pytest

from helpers.backend_checks import attention_of
from helpers.bundles import SOURCES, random_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.graph_backend import GraphBackend
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow

STEPS = 9


@pytest.fixture(scope="module", params=[("fp32", "self-attention"), ("int8", "self-attention"), ("int8", "ssru")])
def bundle(request, tmp_path_factory):
    precision, unit = request.param
    folder = tmp_path_factory.mktemp("ahead") / "bundle"
    return load_bundle(random_bundle(folder, export={"precision": precision}, decoder_unit=unit))


@pytest.mark.parametrize("n", [1, 3])
def test_steps_ahead_choose_what_single_steps_choose(bundle, n):
    backend = OrtBackend(Sessions(bundle, threads=1), rows=4, source_capacity=32, target_capacity=2 * STEPS)
    sources = load_tokenizer(bundle).encode(SOURCES)[:n]
    tokens = np.full(n, bundle.manifest.special_ids.decoder_start)
    positions = np.arange(n, dtype=np.int32)  # rows are at positions of their own
    if bundle.manifest.architecture.decoder_unit == "ssru":
        positions[:] = 0  # a later step needs the cell of the step before, which runs below would overwrite
    backend.encode(sources, 0)
    expected = GraphBackend.decode_ahead(backend, tokens, positions, STEPS, keep=0)
    attention = attention_of(backend, n, STEPS)
    backend.encode(sources, 0)
    found = backend.decode_ahead(tokens, positions, STEPS, keep=STEPS)
    assert np.array_equal(found, expected)
    assert found.shape == (STEPS, n)
    assert np.array_equal([backend.align(row, STEPS, [row] * STEPS) for row in range(n)], attention)
    asked = iter([False, False, False, True])
    backend.encode(sources, 0)
    found = backend.decode_ahead(tokens, positions, STEPS, stops=asked.__next__)
    assert np.array_equal(found, expected[:4])
    chosen = int(expected[2, -1])
    backend.encode(sources, 0)
    found = backend.decode_ahead(tokens, positions, STEPS, chosen)
    first = next(step for step, row in enumerate(expected) if chosen in row)
    assert np.array_equal(found, expected[: first + 1])
    backend.close()
