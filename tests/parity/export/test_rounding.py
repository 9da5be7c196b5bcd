"""An honest export passes however a model's weights amplify rounding, and one with a fault in it does not."""

import copy

import pytest
import torch
import transformers

from helpers import hugging_face
from helpers.architectures import ARCHITECTURES
from helpers.bundles import bundle_model, random_bundle
from translane_export.precision import choose_numerics
from translane_export.recording import record_decodes
from translane_export.verify import compare, passes, verification_sources
from translane_server.bundle import load_bundle
from translane_server.ort import OrtBackend
from translane_server.sessions import Sessions

pytestmark = pytest.mark.slow  # an export takes seconds

FP32 = choose_numerics("fp32", None)
CAPACITY = 24
SCALES = (1, 3, 10)


def a_wrong_weight(model):
    model.decoder.layers[1].cross_attention.v_proj.weight[3] *= -1


def a_wrong_scale(model):
    weight = model.decoder.layers[0].cross_attention.out_proj.weight
    weight[: len(weight) // 2] *= 1.001  # of all of it, the norm that follows would make nothing


def a_swapped_head(model):
    queries = model.decoder.layers[0].self_attention.q_proj
    for tensor in queries.parameters():
        tensor.copy_(torch.cat(tensor.chunk(2)[::-1]))


def a_position_off_by_one(model):
    positions, relative = model.decoder.embedding.positions, model.decoder.relative_positions
    if positions is not None:
        lookup = positions.lookup
        positions.lookup = lambda at: lookup((at + 1).clamp(max=positions.max_positions - 1))
    else:
        between = relative.between
        relative.between = lambda queries, keys: between(queries + 1, keys)


FAULTS = (a_wrong_weight, a_wrong_scale, a_swapped_head, a_position_off_by_one)


@pytest.fixture(scope="module", params=[(name, scale) for name in ARCHITECTURES for scale in SCALES], ids=str)
def exported(request, tmp_path_factory):
    """A model whose matrices are multiplied, and what its export makes of some sources."""
    name, scale = request.param
    settings = {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "max_positions": CAPACITY,
        "tie_embeddings": "none",
        "weight_scale": scale,
        **ARCHITECTURES[name],
    }
    bundle = load_bundle(random_bundle(tmp_path_factory.mktemp("exported") / "bundle", **settings))
    model = bundle_model(**settings)
    backend = OrtBackend(Sessions(bundle, threads=1), rows=8, source_capacity=CAPACITY, target_capacity=CAPACITY)
    return model, record_decodes(backend, model.config, verification_sources([], model.config, CAPACITY))


def test_an_honest_export_passes(exported):
    model, decodes = exported
    assert passes(compare(decodes, model, FP32))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_does_not(exported, fault):
    model, decodes = exported
    faulty = copy.deepcopy(model)
    with torch.no_grad():
        fault(faulty)
    assert not passes(compare(decodes, faulty, FP32))


@pytest.mark.parametrize("scale", [3, 10])
@pytest.mark.parametrize("name", hugging_face.MODELS)
def test_large_weights_of_every_architecture_export(tmp_path, name, scale):
    model = hugging_face.draw(hugging_face.MODELS[name])
    enlarge(model, scale)
    model.save_pretrained(tmp_path / "model")
    assert passes(hugging_face.export(tmp_path / "model", tmp_path / "bundle", threads=1).manifest.parity)


def test_large_activations_behind_small_logits_export(tmp_path):
    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=320,
        d_model=32,
        d_kv=8,
        d_ff=64,
        num_layers=1,
        num_heads=4,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
    )
    model = transformers.T5ForConditionalGeneration(config)
    enlarge(model, 3)
    model.save_pretrained(tmp_path / "model")
    parity = hugging_face.export(tmp_path / "model", tmp_path / "bundle", threads=1).manifest.parity
    assert parity.token_mismatches == 0
    assert parity.max_logit_difference <= parity.tolerance == 1e-4


def enlarge(model, scale):
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter *= scale
