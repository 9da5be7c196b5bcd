"""What exports do not try of their graphs: many candidates in the CUDA form."""

import dataclasses

import numpy as np
import pytest

from helpers.architectures import ARCHITECTURES
from helpers.bundles import random_model
from helpers.decomposition import no_decomposition
from helpers.sessions import open_session
from translane_export.graphs.head_padding import padded_config
from translane_export.graphs.numerics import choose_numerics
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
