from typing import Any

import pytest

from helpers.bundles import random_bundle, random_checkpoint

SMALL: dict[str, Any] = {"d_model": 16, "ffn_size": 16, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 16}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A checkpoint that exports in about two seconds; not to be written to."""
    return random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "best", **SMALL)


@pytest.fixture
def bundle(tmp_path):
    """A bundle of such a checkpoint, to do with as one likes."""
    return random_bundle(tmp_path / "bundle", **SMALL)
