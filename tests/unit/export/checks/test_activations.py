"""Numbers too large for float16 are seen while PyTorch computes, wherever a graph would store them."""

import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from unit.export.conftest import SMALL

from helpers.bundles import SMALL_SIZES, random_checkpoint, random_model
from translane_export.bundle_writer import export_checkpoint
from translane_export.checks.activations import ActivationWatch, check_activations, watched
from translane_export.core.errors import ExportError
from translane_export.core.settings import ExportSettings
from translane_export.model import TransformerConfig
from translane_export.model.masks import View
from translane_server.bundle.bundle import load_bundle

pytestmark = pytest.mark.slow

GATED = {**SMALL_SIZES, "gated": True, "activation": "silu", "norm": "pre"}
SOURCE = [5, 6, 7, 3]


def largest_of(model):
    watch = ActivationWatch()
    with torch.inference_mode(), watched(model, watch.see):
        memory = model.encode(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))
        model.decode(torch.tensor([[2, 8, 9]]), memory, torch.tensor([len(SOURCE)]))
    return watch.largest


def model_of(sizes, *, scaled=(), by=1e6, zeroed=()):
    """A random model, some of whose parameters are multiplied."""
    model = random_model(TransformerConfig(**sizes))
    with torch.no_grad():
        for name in zeroed:
            model.get_parameter(name).zero_()
        for name in scaled:
            model.get_parameter(name).mul_(by)
    return model


@pytest.mark.parametrize(
    ("sizes", "kind", "module", "scaled", "within"),
    [
        (SMALL_SIZES, "output", "decoder.layers.1.feed_forward", ["up_proj"], ".up_proj"),
        (SMALL_SIZES, "scores", "decoder.layers.1.self_attention", ["q_proj", "k_proj"], ""),
        (GATED, "input", "encoder.layers.0.feed_forward", ["gate_proj", "up_proj"], ".down_proj"),
        (SMALL_SIZES, "output", "output_projection", [], ""),
    ],
    ids=["projection", "scores", "gate", "logits"],
)
def test_the_largest_number_is_found_where_it_is(sizes, kind, module, scaled, within):
    assert largest_of(model_of(sizes)).value < 1e3
    names = [f"{module}.{name}.weight" for name in scaled] or [f"{module}.weight"]
    largest = largest_of(model_of(sizes, scaled=names))
    assert largest.tensor == f"{kind} of {module}{within}"
    assert largest.value > 1e3


def test_embeddings_are_seen_where_nothing_makes_more_of_them():
    zeroed = [f"encoder.layers.0.self_attention.{part}_proj.weight" for part in ("q", "k", "v")]
    largest = largest_of(model_of(SMALL_SIZES, scaled=["encoder.embedding.tokens.weight"], zeroed=zeroed))
    assert largest.tensor == "output of encoder.embedding"
    assert largest.value > 1e5


def test_a_sum_of_two_that_are_each_smaller_is_seen():
    """A residual and a sublayer's output, which a graph adds inside the operator of a norm."""
    model = model_of({**SMALL_SIZES, "norm": "pre", "encoder_layers": 2})
    with torch.no_grad():
        for number in range(2):
            model.encoder.layers[number].feed_forward.down_proj.bias.fill_(30_000.0)
    largest = largest_of(model)
    assert (largest.tensor, largest.value) == ("input of encoder.final_norm", pytest.approx(60_000, rel=0.01))


def test_a_bias_that_cancels_what_it_is_added_to_hides_nothing():
    """A bias may be added by another kernel than the product's, which stores it before."""
    model = model_of(SMALL_SIZES)
    projection = model.encoder.layers[0].feed_forward.up_proj
    with torch.no_grad():
        projection.weight.zero_()
        projection.weight[:, 0] = 1e6
        projection.bias.fill_(-1e6)
        model.encoder.layers[0].self_attention_residual.norm.weight.zero_()
        model.encoder.layers[0].self_attention_residual.norm.bias.fill_(1.0)
    largest = largest_of(model)
    assert largest.tensor == "output of encoder.layers.0.feed_forward.up_proj"
    assert largest.value == pytest.approx(1e6)


def test_scores_of_what_a_query_does_not_see_do_not_count():
    model = model_of(SMALL_SIZES)
    watch, masked = ActivationWatch(), ActivationWatch()
    queries = torch.zeros(1, 2, 16)
    queries[0, 1] = 1e4
    attention = model.decoder.layers[0].self_attention
    with torch.inference_mode():
        with watched(model, watch.see):
            attention(queries, queries, View(2, 2))
        with watched(model, masked.see):
            attention(queries, queries, View(2, 2, torch.tensor([1])))
    assert watch.largest is not None
    assert masked.largest is not None
    assert watch.largest.tensor == "scores of decoder.layers.0.self_attention"
    assert masked.largest.value < watch.largest.value


def test_padding_beside_longer_sentences_is_seen():
    model = model_of(SMALL_SIZES)
    with torch.no_grad():
        model.encoder.embedding.tokens.weight[model.config.pad_id] = 1e6
    assert largest_of(model).value < 1e3
    watch = ActivationWatch()
    watch.see_padding(model, SOURCE)
    assert watch.largest is not None
    assert watch.largest.value > 1e6


def test_what_is_not_finite_is_infinite():
    model = model_of(SMALL_SIZES, scaled=["encoder.embedding.tokens.weight"], by=math.nan)
    largest = largest_of(model)
    assert largest.value == math.inf
    with pytest.raises(ExportError, match="reaches inf"):
        check_activations(largest)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export a checkpoint in which one channel of the first attention's values has a given size, and no effect."""

    def run(size, *, precision="fp16"):
        folder = tmp_path_factory.mktemp("overflow")
        checkpoint = random_checkpoint(folder / "checkpoint", **SMALL)
        weights = load_file(checkpoint / "model.safetensors")
        attention = "encoder.layers.0.self_attention"
        weights[f"{attention}.v_proj.bias"][0] = size
        weights[f"{attention}.out_proj.weight"][:, 0] = 0.0
        save_file(weights, checkpoint / "model.safetensors")
        bundle = folder / "bundle"
        export_checkpoint(ExportSettings(checkpoint=checkpoint, output=bundle, precision=precision))
        return bundle

    return run


def test_an_overflow_is_refused_with_the_tensor_s_name(exported):
    where = r"the output of encoder\.layers\.0\.self_attention\.v_proj reaches 40,0\d\d"
    with pytest.raises(ExportError, match=where + ".*export with --precision bf16"):
        exported(40_000.0)


def test_one_just_below_is_recorded(exported):
    bundle = exported(32_000.0)
    parity = load_bundle(bundle).manifest.parity
    assert parity is not None
    assert parity.max_activation is not None
    activation = parity.max_activation
    assert activation.tensor == "output of encoder.layers.0.self_attention.v_proj"
    assert activation.value == pytest.approx(32_000, rel=0.001)
    assert "Largest activation: 3.2e+04" in (bundle / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_precisions_take_larger_ones(exported, precision):
    parity = load_bundle(exported(1e5, precision=precision)).manifest.parity
    assert parity is not None
    assert parity.max_activation is None
