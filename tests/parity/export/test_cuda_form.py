"""What exports do not try of their graphs: many candidates in the CUDA form, and what lies behind a source."""

import dataclasses

import numpy as np
import pytest
import torch

from helpers.architectures import ARCHITECTURES
from helpers.bundles import random_model
from helpers.decomposition import no_decomposition
from helpers.sessions import open_session
from translane_export.graphs.encoder_decoder import AlignmentGraph
from translane_export.graphs.head_padding import padded_config
from translane_export.graphs.numerics import choose_numerics
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.signatures import bundle_signatures
from translane_export.graphs.writer import write_graphs
from translane_export.model import TransformerConfig

# float32 computes in the CUDA form, too, and tells more of it than rounded numbers do
NUMERICS = dataclasses.replace(choose_numerics("fp32", None), for_cuda=True)
SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "heads": 2, "ffn_size": 48, "max_positions": 24}
LENGTHS = np.array([9, 1, 24, 16, 2, 7], np.int32)
TARGET_CAPACITY = 8
IN_BLOCKS = 1536  # a target vocabulary that is searched by blocks of it


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A model, its graphs in the CUDA form, and sessions of two of them."""
    values = {**SIZES, **ARCHITECTURES["Marian"], "tie_embeddings": "none"}
    model = random_model(TransformerConfig(source_vocab_size=40, target_vocab_size=IN_BLOCKS, **values))
    folder = tmp_path_factory.mktemp("written")
    with no_decomposition():
        graphs = write_graphs("onnx", model, NUMERICS, None, folder, lambda _line: None)
    return model, graphs, *(open_session(folder / graph.file) for graph in (graphs.encoder, graphs.decoder))


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 16, 17, 40, IN_BLOCKS])
def test_there_may_be_more_candidates_than_blocks(written, count):
    model, graphs, encoder, decoder = written
    assert graphs.vocabulary_blocks == 16
    rows = len(LENGTHS)
    source_ids = np.random.default_rng(0).integers(0, 40, (rows, max(LENGTHS)))
    encoded = encoder.run(None, {"source_ids": source_ids, "source_lengths": LENGTHS})
    cross = dict(zip([output.name for output in encoder.get_outputs()], encoded, strict=True))
    config = padded_config(model.config)
    block = np.zeros((rows, config.key_value_heads, TARGET_CAPACITY, config.head_dim), np.float32)
    step = {
        "token_ids": np.arange(4, 4 + rows),
        "positions": np.zeros(rows, np.int32),
        "source_lengths": LENGTHS,
        "num_candidates": np.array([count]),
        "num_blocks": np.array([min(count, graphs.vocabulary_blocks)]),
        **cross,
        **{name.replace("cross", "self"): block for name in cross},
    }
    ids, log_probs, logits = decoder.run(["candidate_ids", "candidate_log_probs", "logits"], step)
    assert np.array_equal(ids, np.argsort(-logits, axis=1, kind="stable")[:, :count])
    suppressed = list(model.config.suppressed_ids)
    assert np.isneginf(logits[:, suppressed]).all()
    assert np.array_equal(np.isneginf(log_probs), np.isin(ids, suppressed))


@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (3, 1)], ids=["all heads", "some heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scaled", [True, False])
@pytest.mark.parametrize("for_cuda", [True, False])
def test_attention_weights_are_pytorchs_whatever_lies_behind_a_source(heads, dtype, scaled, for_cuda):
    config = TransformerConfig(
        source_vocab_size=9, target_vocab_size=9, heads=4, head_size=8, d_model=32, attention_scale=scaled
    )
    signature = bundle_signatures(config, dtype, alignment=True).alignment
    assert signature
    session = open_session(export_graph(AlignmentGraph(config, heads, for_cuda=for_cuda), signature))
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
