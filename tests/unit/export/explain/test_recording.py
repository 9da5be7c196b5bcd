"""Recorded weights are what the attentions average values with, and what Hugging Face's models show."""

from typing import Any

import pytest
import torch

from helpers.architectures import ARCHITECTURES
from helpers.bundles import SMALL_SIZES, random_model
from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.explain.recording import Kind, recorded_attention, run_attention
from translane_export.model import TransformerConfig
from translane_export.sources.bundle import BundleReader
from translane_export.torch_model import build_model

MODELS = {"the paper's": {}, "T5": ARCHITECTURES["T5"]}
SOURCE, LENGTHS, FED = torch.tensor([[5, 6, 7, 3]]), torch.tensor([4]), torch.tensor([[2, 9, 11]])


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return random_model(TransformerConfig(**{**SMALL_SIZES, "decoder_layers": 3, **MODELS[request.param]}))


def attentions(model):
    layers = [(layer, f"decoder.{number}") for number, layer in enumerate(model.decoder.layers)]
    return {
        "encoder": [layer.self_attention for layer in model.encoder.layers],
        "decoder": [layer.self_attention for layer, _ in layers],
        "cross": [layer.cross_attention for layer, _ in layers],
    }


@torch.inference_mode()
def test_the_weighted_values_are_the_output_of_the_attention(model):
    seen: dict[Any, Any] = {}
    hooks = [
        attention.register_forward_hook(lambda module, inputs, output: seen.__setitem__(module, (inputs, output)))
        for layers in attentions(model).values()
        for attention in layers
    ]
    with recorded_attention(model) as recorded:
        model.decode(FED, model.encode(SOURCE, LENGTHS), LENGTHS)
    for hook in hooks:
        hook.remove()
    for kind, layers in attentions(model).items():
        for attention, weights in zip(layers, recorded[kind], strict=True):
            (x, memory, view), output = seen[attention]
            context = weights @ attention.project_keys_values(memory).values  # [B, H, T, D]
            torch.testing.assert_close(attention.out_proj(context.transpose(1, 2).flatten(2)), output)
            torch.testing.assert_close(run_attention(attention, x, memory, view).output, output)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BART", "T5"])
@torch.inference_mode()
def test_the_weights_are_those_of_hugging_face(name):
    exported = export(FOREIGN_MODELS[name])
    theirs = exported.model.eval()
    theirs.set_attn_implementation("eager")
    ours = build_model(BundleReader().read(exported.bundle.folder))
    source, fed = torch.tensor([[7, 12, 9, 5, 1]]), torch.tensor([[0, 8, 6]])
    expected = theirs(input_ids=source, decoder_input_ids=fed, output_attentions=True)
    lengths = torch.tensor([5])
    with recorded_attention(ours) as recorded:
        ours.decode(fed, ours.encode(source, lengths), lengths)
    theirs_by_kind: dict[Kind, Any] = {
        "encoder": expected.encoder_attentions,
        "decoder": expected.decoder_attentions,
        "cross": expected.cross_attentions,
    }
    for kind, layers in theirs_by_kind.items():
        torch.testing.assert_close(torch.cat(recorded[kind]), torch.cat(layers), rtol=0, atol=1e-5)
