"""The CUDA form of the graphs computes what PyTorch does, and what is asked for otherwise is chosen the same."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import pytest
import torch

from helpers.architectures import ARCHITECTURES, FOR_CUDA, TRAINED, VARIANTS
from helpers.bundles import random_model
from helpers.decomposition import no_decomposition
from helpers.sessions import open_session
from helpers.store import stored
from translane_export.graphs.alignment_graph import AlignmentGraph
from translane_export.graphs.head_padding import key_places, padded_config
from translane_export.graphs.numerics import choose_numerics
from translane_export.graphs.onnx_export import export_alignment
from translane_export.graphs.signatures import alignment_signature
from translane_export.graphs.writer import write_graphs
from translane_export.model import TransformerConfig
from translane_server.bundle.manifest import Alignment, Graphs

# float32 computes in the CUDA form, too, and tells more of it than rounded numbers do
NUMERICS = dataclasses.replace(choose_numerics("fp32", None), for_cuda=True)
SIZES = {"encoder_layers": 1, "decoder_layers": 2, "d_model": 32, "heads": 2, "ffn_size": 48, "max_positions": 24}
LENGTHS = (9, 1, 24, 16, 2, 7)
SOURCE_CAPACITY, TARGET_CAPACITY = 24, 8
APART = "head size apart from the model's"
ALIGNED = "Marian"  # whose alignment graph stands for all: it has no weights
KINDS = {
    **{name: kind for name, kind in ARCHITECTURES.items() if name in FOR_CUDA or name not in VARIANTS},
    APART: TRAINED[APART],
}
GROUPED = {*FOR_CUDA} - {"batch norm, pre"}  # whose attention is more than MultiHeadAttention does
# target vocabularies: one that is searched by blocks of it, and one that is searched whole
IN_BLOCKS, WHOLE = 1536, 40
VOCABULARIES = {name: WHOLE if name in ("mBART", "T5 v1.1", APART) else IN_BLOCKS for name in KINDS}


class Written(NamedTuple):
    """A model, its graphs in the CUDA form, and sessions of them by name."""

    model: Any
    folder: Path
    graphs: Any
    sessions: Any


@pytest.fixture(scope="module")
def written():
    return functools.cache(write)


def write(name):
    model = random_model(config_of(name))

    def make(folder):
        folder.mkdir()
        alignment = Alignment(layer=0, heads=(0,)) if name == ALIGNED else None
        with no_decomposition():
            graphs = write_graphs("onnx", model, NUMERICS, alignment, folder, lambda _line: None)
        (folder / "graphs.json").write_text(graphs.model_dump_json())

    folder = stored(("CUDA form", name), make)
    graphs = Graphs.model_validate_json((folder / "graphs.json").read_text())
    sessions = {name: open_session(folder / getattr(graphs, name).file) for name in ("encoder", "decoder", "greedy")}
    return Written(model, folder, graphs, sessions)


def config_of(name):
    values = {**SIZES, **KINDS[name], "tie_embeddings": "none"}
    return TransformerConfig(source_vocab_size=WHOLE, target_vocab_size=VOCABULARIES[name], **values)


def sources(draw):
    """Source ids whose padding is any ids at all, and their lengths."""
    return draw.integers(0, WHOLE, (len(LENGTHS), max(LENGTHS))), np.array(LENGTHS, np.int32)


def caches(model, sessions, draw):
    """What a decoder step reads beside the rows' tokens and positions."""
    ids, lengths = sources(draw)
    encoded = sessions["encoder"].run(None, {"source_ids": ids, "source_lengths": lengths})
    names = [output.name for output in sessions["encoder"].get_outputs()]
    config = padded_config(model.config)
    block = (len(LENGTHS), config.key_value_heads, TARGET_CAPACITY, config.head_dim)
    empty = {name.replace("cross", "self"): np.zeros(block, np.float32) for name in names}
    return {"source_lengths": lengths, **empty, **dict(zip(names, encoded, strict=True))}


def advance(state, outputs, names):
    """The state with the caches that a step returned."""
    return state | {
        name.removeprefix("present_"): value
        for name, value in zip(names, outputs, strict=True)
        if name.startswith("present_self_")
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
@torch.inference_mode()
def test_the_encoder_attends_to_each_source_and_to_none_of_its_padding(written, name):
    model, _, _, sessions = written(name)
    ids, lengths = sources(np.random.default_rng(0))
    found = sessions["encoder"].run(None, {"source_ids": ids, "source_lengths": lengths})
    for row, length in enumerate(LENGTHS):
        memory = model.encode(torch.from_numpy(ids[row : row + 1, :length]), torch.tensor([length]))
        expected = [
            part for layer in model.decoder.layers for part in layer.cross_attention.project_keys_values(memory)
        ]
        places = [key_places(model.config), list(range(model.config.value_dim))] * len(model.decoder.layers)
        for ours, theirs, where in zip(found, expected, places, strict=True):
            np.testing.assert_allclose(ours[row, :, :length][..., where], theirs[0].numpy(), atol=2e-5, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_greedy_graph_chooses_what_the_scoring_graph_likes_best(written, name):
    model, _, graphs, sessions = written(name)
    assert (graphs.vocabulary_blocks is not None) == (VOCABULARIES[name] == IN_BLOCKS)
    state = caches(model, sessions, np.random.default_rng(0))
    tokens = np.full(len(LENGTHS), model.config.start_id)
    counts = {"num_candidates": np.array([1])} | ({"num_blocks": np.array([1])} if graphs.vocabulary_blocks else {})
    names = [tensor.name for tensor in graphs.greedy.outputs]
    for position in range(TARGET_CAPACITY):
        step = {"token_ids": tokens, "positions": np.full(len(LENGTHS), position, np.int32), **state}
        ids, *present = sessions["greedy"].run(names, step)
        wanted = ["candidate_ids", "logits", *names[1:]]
        scored, logits, *kept = sessions["decoder"].run(wanted, {**step, **counts})
        assert ids.shape == (len(LENGTHS), 1)
        assert np.array_equal(ids, scored)
        assert np.array_equal(ids[:, 0], logits.argmax(1))
        for ours, theirs in zip(present, kept, strict=True):
            assert np.array_equal(ours, theirs)
        state, tokens = advance(state, [ids, *present], names), ids[:, 0]


@pytest.mark.parametrize("count", [1, 5, 16, 17, 40, IN_BLOCKS])
def test_there_may_be_more_candidates_than_blocks(written, count):
    model, _, graphs, sessions = written("Marian")
    assert graphs.vocabulary_blocks == 16
    state = caches(model, sessions, np.random.default_rng(0))
    rows = len(LENGTHS)
    step = {
        "token_ids": np.arange(4, 4 + rows),
        "positions": np.zeros(rows, np.int32),
        "num_candidates": np.array([count]),
        "num_blocks": np.array([min(count, graphs.vocabulary_blocks)]),
        **state,
    }
    ids, log_probs, logits = sessions["decoder"].run(["candidate_ids", "candidate_log_probs", "logits"], step)
    assert np.array_equal(ids, np.argsort(-logits, axis=1, kind="stable")[:, :count])
    suppressed = list(model.config.suppressed_ids)
    assert np.isneginf(logits[:, suppressed]).all()
    assert np.array_equal(np.isneginf(log_probs), np.isin(ids, suppressed))


@pytest.mark.parametrize("heads", [(0, 1, 2, 3), (3, 1)], ids=["all heads", "some heads"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("scaled", [True, False])
def test_attention_weights_are_pytorchs_whatever_lies_behind_a_source(heads, dtype, scaled):
    config = TransformerConfig(
        source_vocab_size=9, target_vocab_size=9, heads=4, head_size=8, d_model=32, attention_scale=scaled
    )
    signature = alignment_signature(config, dtype, "alignment.onnx")
    exported = export_alignment(AlignmentGraph(config, heads, for_cuda=True), config, dtype, signature)
    session = open_session(exported)
    draw = torch.Generator().manual_seed(0)
    lengths = torch.tensor([6, 1, 4], dtype=torch.int32)
    query = torch.randn(3, 32, generator=draw).to(dtype)
    keys = torch.randn(3, 4, 6, 8, generator=draw).to(dtype)
    for row, length in enumerate(lengths.tolist()):
        keys[row, :, length:] = torch.nan
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


@pytest.mark.parametrize("name", KINDS)
def test_cuda_finds_all_that_its_attention_needs(written, name):
    _, folder, graphs, _ = written(name)
    nodes = [node for node in ir.load(folder / graphs.encoder.file).graph if "Attention" in node.op_type]
    relative = "relative_buckets" in KINDS[name] or name in GROUPED
    assert {node.op_type for node in nodes} == {"GroupQueryAttention" if relative else "MultiHeadAttention"}
    for node in nodes:
        if relative:
            assert all(output.name for output in node.outputs)
            assert len(node.outputs) == 3
            assert node.inputs[10] is not None
        else:
            lengths = node.inputs[4]
            assert lengths is not None
            assert lengths.name == "source_lengths"
