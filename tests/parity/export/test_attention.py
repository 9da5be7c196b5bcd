"""Keeping a step's attention weights changes nothing else, and a row's depend on that row alone."""

import numpy as np
import pytest
import torch

from helpers.backend_checks import attention_of, copied
from helpers.bundles import random_bundle
from helpers.sessions import open_session
from translane_export.graphs.encoder_decoder import AlignmentGraph
from translane_export.graphs.onnx_export import export_graph
from translane_export.graphs.signatures import bundle_signatures
from translane_export.model import TransformerConfig
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.backend import StepNeeds
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

CONFIG = {"max_positions": 32, "decoder_layers": 3, "norm": "pre", "heads": 2, "head_size": 24}


def alignment_session(config, heads, threads):
    signature = bundle_signatures(config, torch.float32, alignment=True).alignment
    assert signature
    return open_session(export_graph(AlignmentGraph(config, heads), signature), threads=threads)


@pytest.mark.slow
def test_keeping_a_step_changes_nothing_else_and_a_step_gives_what_is_asked_for(tmp_path):
    bundle = load_bundle(random_bundle(tmp_path / "bundle", export={"alignment_layer": 2}, **CONFIG))
    backend = OrtBackend(Sessions(bundle, threads=1), rows=2, source_capacity=8, target_capacity=8)
    backend.encode([[5, 6, 3], [7, 3]], 0)
    tokens, positions = np.array([2, 2]), np.zeros(2, np.int32)
    before = copied(backend.decode_step(tokens, positions, StepNeeds(3, logits=True)))
    kept = copied(backend.decode_step(tokens, positions, StepNeeds(3, logits=True), 0))
    assert all(kept[name].tobytes() == before[name].tobytes() for name in ("logits", "log_probs"))
    np.testing.assert_allclose(attention_of(backend, 2, 1).sum(2), 1, atol=1e-6)
    best = backend.decode_step(tokens, positions)
    assert (best.token_ids.shape, best.logits) == ((2, 1), None)
    size = bundle.manifest.architecture.target_vocab_size
    every = backend.decode_step(tokens, positions, StepNeeds(num_candidates=size + 9)).token_ids
    assert np.array_equal(np.sort(every, axis=1), np.tile(np.arange(size), (2, 1)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("heads", "head_size"), [(4, 64), (2, 8), (3, 24)])
def test_alone_and_batched_are_the_same_to_the_bit(tmp_path, threads, heads, head_size):
    config = TransformerConfig(source_vocab_size=9, target_vocab_size=9, heads=heads, head_size=head_size)
    session = alignment_session(config, range(heads), threads)
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
