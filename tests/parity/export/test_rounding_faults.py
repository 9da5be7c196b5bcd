"""Verification tells faults from rounding errors, however a model's weights amplify rounding."""

import copy
from typing import Any

import pytest
import torch
import transformers

from helpers import hugging_face
from helpers.architectures import ARCHITECTURES, EXPORT_SIZES
from helpers.bundles import bundle_model, random_bundle
from translane_export.checks.recording import record_decodes
from translane_export.checks.verify import compare, passes, verification_sources
from translane_export.graphs.numerics import choose_numerics
from translane_server.bundle.bundle import load_bundle
from translane_server.runtime.ort import OrtBackend
from translane_server.runtime.sessions import Sessions

pytestmark = pytest.mark.slow

CAPACITY = EXPORT_SIZES["max_positions"]


def a_wrong_weight(decoder):
    decoder.layers[1].cross_attention.v_proj.weight[3] *= -1


def a_wrong_scale(decoder):
    weight = decoder.layers[0].cross_attention.out_proj.weight
    weight[: len(weight) // 2] *= 1.001  # only half of it, because the next norm undoes a change of the whole


def a_swapped_head(decoder):
    for tensor in decoder.layers[0].self_attention.q_proj.parameters():
        tensor.copy_(torch.cat(tensor.chunk(2)[::-1]))


def a_position_off_by_one(decoder):
    positions, relative = decoder.embedding.positions, decoder.relative_positions
    if positions is not None:
        table = positions.embedding.weight if hasattr(positions, "embedding") else positions.table
        table[:-1] = table[1:].clone()
    else:
        between = relative.between
        relative.between = lambda queries, keys: between(queries + 1, keys)


FAULTS = (a_wrong_weight, a_wrong_scale, a_swapped_head, a_position_off_by_one)


@pytest.mark.parametrize("name", ["Marian", "mBART", "T5 v1.1"])  # norms after and before, and relative positions
@torch.no_grad()
def test_an_honest_export_passes_and_faults_do_not(tmp_path, name):
    settings = {**EXPORT_SIZES, "tie_embeddings": "none", "weight_scale": 10, **ARCHITECTURES[name]}
    model = bundle_model(**settings)
    bundle = load_bundle(random_bundle(tmp_path / "bundle", **settings))
    backend = OrtBackend(Sessions(bundle, threads=1), rows=8, source_capacity=CAPACITY, target_capacity=CAPACITY)
    decodes = record_decodes(backend, model.config, verification_sources([], model.config, CAPACITY))
    numerics = choose_numerics("fp32", None)
    assert passes(compare(decodes, model, numerics))
    for fault in FAULTS:
        faulty = copy.deepcopy(model)
        fault(faulty.decoder)
        assert not passes(compare(decodes, faulty, numerics)), fault.__name__


def check_that_it_exports(model, scale, folder):
    """Multiply the matrices of a model of transformers by `scale`, and export it."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= scale
    model.save_pretrained(folder / "model")
    parity = hugging_face.export(folder / "model", folder / "bundle", threads=1).manifest.parity
    assert parity is not None
    assert passes(parity)


def test_large_weights_of_a_model_of_transformers_export(tmp_path):
    check_that_it_exports(hugging_face.draw(hugging_face.MODELS["mBART-50"], seed=1), 10, tmp_path)


def test_large_activations_behind_small_logits_export(tmp_path):
    torch.manual_seed(0)
    values: dict[str, Any] = {"vocab_size": 320, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4}
    config = transformers.T5Config(**values | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False})
    check_that_it_exports(transformers.T5ForConditionalGeneration(config), 3, tmp_path)
