"""A step gives what is asked for."""

import numpy as np
import pytest

from helpers.bundles import random_bundle
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.backend import StepNeeds
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return load_bundle(random_bundle(tmp_path_factory.mktemp("needs") / "bundle"))


@pytest.fixture
def step(bundle):
    """Takes the first step of two rows."""
    backend = OrtBackend(Sessions(bundle, threads=1), rows=4, source_capacity=32, target_capacity=16)
    backend.encode([[5, 6, 3], [7, 3]], 0)
    return lambda *needs: backend.decode_step(np.full(2, 5, np.int64), np.zeros(2, np.int32), *needs)


def test_the_best_token_alone_unless_more_is_asked_for(step):
    found = step()
    assert found.token_ids.shape == found.log_probs.shape == (2, 1)
    assert found.logits is None


def test_more_candidates_than_tokens_are_all_tokens(step, bundle):
    size = bundle.manifest.architecture.target_vocab_size
    found = step(StepNeeds(num_candidates=size + 9))
    assert np.array_equal(np.sort(found.token_ids, axis=1), np.tile(np.arange(size), (2, 1)))
