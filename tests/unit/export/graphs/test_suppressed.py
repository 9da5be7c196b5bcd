"""Log-probabilities of a graph whose bias suppresses ids: PyTorch's, and -inf of the suppressed ones."""

from typing import Any

import numpy as np
import pytest
import torch

from helpers.bundles import SMALL_SIZES, random_model
from translane_export.graphs.encoder_decoder import DecoderGraph
from translane_export.model import TransformerConfig

ROWS, CAPACITY = 4, 6


@pytest.mark.parametrize("suppressed", [(), (0,), (1, 5, 29), tuple(range(4, 30))], ids=len)
@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("share", [True, False])
@torch.inference_mode()
def test_log_probabilities_are_of_all_ids_unless_suppressed_ones_have_no_share(suppressed, biases, share):
    config = TransformerConfig(
        **SMALL_SIZES, suppressed_ids=suppressed, suppressed_share=share, biases=biases, norm="pre"
    )
    model = random_model(config)
    source, lengths = torch.tensor([[5, 6, 7, 3]] * ROWS), torch.full((ROWS,), 4)
    memory = model.encode(source, lengths)
    tokens = torch.arange(4, 4 + ROWS)
    expected = model.decode(tokens[:, None], memory, lengths)[:, 0]
    layers: Any = model.decoder.layers
    cross = [
        tensor
        for layer in layers
        for tensor in layer.cross_attention.project_keys_values(memory)  # [B, H, S, D] each
    ]
    empty = [torch.zeros(ROWS, 2, CAPACITY, 8) for _ in range(4)]
    start = torch.zeros(ROWS, dtype=torch.int32)
    ids, log_probs, logits, *_ = DecoderGraph(model)(tokens, start, lengths, torch.tensor([30]), *empty, *cross)
    hidden = list(suppressed)
    of_all = expected.log_softmax(-1)
    expected[:, hidden] = -torch.inf
    reference = of_all.masked_fill(expected == -torch.inf, -torch.inf) if share else expected.log_softmax(-1)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(log_probs, reference.gather(1, ids), atol=1e-5, rtol=0)
    allowed = 30 - len(suppressed)
    assert not set(ids[:, :allowed].flatten().tolist()) & set(suppressed)
    np.testing.assert_array_less(log_probs[:, :allowed].exp().sum(-1).numpy(), 1 + 1e-5)
