from __future__ import annotations

import pytest

from helpers.bundles import random_checkpoint

SMALL = {"d_model": 16, "ffn_size": 16, "encoder_layers": 1, "decoder_layers": 1, "max_positions": 16}


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """A checkpoint that exports in about two seconds; not to be written to."""
    return random_checkpoint(tmp_path_factory.mktemp("checkpoint") / "best", **SMALL)
