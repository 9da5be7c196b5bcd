from typing import Any

import pytest
import torch

from helpers.bundles import SMALL_SIZES, random_model
from translane_export.model import Transformer, TransformerConfig


@pytest.fixture(autouse=True)
def _one_seed():
    torch.manual_seed(0)


@pytest.fixture
def make_config():
    """Build a config of a few thousand weights; N and M layers differ."""

    def make(**changes: Any) -> TransformerConfig:
        sizes = {"source_vocab_size": 13, "target_vocab_size": 17, "encoder_layers": 2, "decoder_layers": 3}
        more = {"max_positions": 32, "tie_embeddings": "two-way"}
        return TransformerConfig(**SMALL_SIZES | sizes | more | changes)

    return make


@pytest.fixture
def make_model(make_config):
    """Build a float64 model in evaluation mode, every weight and statistic random."""

    def make(**changes: Any) -> Transformer:
        return random_model(make_config(**changes)).double()

    return make
