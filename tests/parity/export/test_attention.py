"""Attention weights of the alignment's graph are PyTorch's, and a row's depend on that row alone."""

import numpy as np
import pytest
import torch

from helpers.sessions import open_session
from translane_export.graphs.encoder_decoder import AlignmentGraph
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.signatures import bundle_signatures
from translane_export.model import TransformerConfig


def alignment_session(config, heads, *, threads=1, dtype=torch.float32, for_cuda=False):
    signature = bundle_signatures(config, dtype, alignment=True).alignment
    assert signature
    return open_session(export_graph(AlignmentGraph(config, heads, for_cuda=for_cuda), signature), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("heads", "head_size"), [(4, 64), (2, 8), (3, 24)])
def test_alone_and_batched_are_the_same_to_the_bit(threads, heads, head_size):
    config = TransformerConfig(source_vocab_size=9, target_vocab_size=9, heads=heads, head_size=head_size)
    session = alignment_session(config, range(heads), threads=threads)
    draw = np.random.default_rng(0)
    rows, capacity = 40, 50
    inputs = {
        "alignment_query": draw.standard_normal((rows, heads * head_size), np.float32),
        "source_lengths": draw.integers(1, capacity + 1, rows).astype(np.int32),
        "cross_key": draw.standard_normal((rows, heads, capacity, head_size), np.float32),
    }
    together = session.run(None, inputs)[0]
    for count in (1, 1, 1, 2, 3, 5, 8, 17, 39):
        chosen = draw.permutation(rows)[:count]
        some = session.run(None, {name: value[chosen] for name, value in inputs.items()})[0]
        assert np.array_equal(some, together[chosen])


@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (3, 1)], ids=["all heads", "some heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("for_cuda", [True, False])
def test_attention_weights_are_pytorchs_whatever_lies_behind_a_source(heads, dtype, scaled, for_cuda):
    config = TransformerConfig(
        source_vocab_size=9, target_vocab_size=9, heads=4, head_size=8, d_model=32, attention_scale=scaled
    )
    session = alignment_session(config, heads, dtype=dtype, for_cuda=for_cuda)
    draw = torch.Generator().manual_seed(0)
    lengths = torch.tensor([6, 1, 4], dtype=torch.int32)
    query = torch.randn(3, 32, generator=draw).to(dtype)
    keys = torch.randn(3, 4, 6, 8, generator=draw).to(dtype)
    for row, length in enumerate(lengths.tolist()):
        keys[row, :, length:] = torch.nan if for_cuda else 100
    inputs = {"alignment_query": query.numpy(), "source_lengths": lengths.numpy(), "cross_key": keys.numpy()}
    (attention,) = session.run(None, inputs)
    assert attention.dtype == np.float32
    for row, length in enumerate(lengths.tolist()):
        scores = (keys[row, :, :length].float() @ query[row].float().view(4, 8, 1))[..., 0]  # [H, S]
        expected = (scores / 8**0.5 if scaled else scores).softmax(-1)[list(heads)].mean(0)
        np.testing.assert_allclose(
            attention[row, :length], expected.numpy(), atol=1e-6 if dtype == torch.float32 else 2e-3
        )
        assert not attention[row, length:].any()
