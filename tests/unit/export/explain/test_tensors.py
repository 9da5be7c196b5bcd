"""What is recorded of attention is what the attentions use, and the shapes on a token's way are what they say."""

import pytest
import torch

from helpers.architectures import ARCHITECTURES, TRAINED
from helpers.bundles import SMALL_SIZES, random_model
from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.checks.activations import watched
from translane_export.explain.tensors import follow_token, record_translation
from translane_export.explain.translation import read_source, translate
from translane_export.model import TransformerConfig
from translane_export.model.attention import MultiHeadAttention
from translane_export.sources.bundle import BundleReader
from translane_export.torch_model import build_model
from translane_server.text.tokenizer import load_tokenizer

SOURCE, FED = [5, 6, 7, 3], [2, 9, 11]


def made(**config):
    sizes = {key: value for key, value in {**SMALL_SIZES, **config}.items() if key != "joint"}
    return random_model(TransformerConfig(**sizes))


@pytest.mark.parametrize("name", ["the paper's", "T5"])
@torch.inference_mode()
def test_the_weighted_values_are_the_output_of_the_attention(name):
    model = made(**ARCHITECTURES.get(name, {}))
    seen = []

    def compare(name, attention, given, output):
        if isinstance(attention, MultiHeadAttention):
            _, memory, _ = given
            context = attention.weights(*given) @ attention.project_keys_values(memory).values  # [B, H, T, D]
            torch.testing.assert_close(attention.out_proj(context.transpose(1, 2).flatten(2)), output)
            seen.append(name)

    with watched(model, compare):
        model.decode(torch.tensor([FED]), model.encode(torch.tensor([SOURCE]), torch.tensor([4])), torch.tensor([4]))
    assert len(seen) == len(set(seen)) == len(model.encoder.layers) + 2 * len(model.decoder.layers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["BART", "T5"])
@torch.inference_mode()
def test_the_weights_are_those_of_hugging_face(name):
    exported = export(FOREIGN_MODELS[name])
    theirs = exported.model.eval()
    theirs.set_attn_implementation("eager")
    bundle = exported.bundle
    languages = {"source_language": "en", "target_language": "fr"} if name == "T5" else {}
    source = read_source(bundle, load_tokenizer(bundle), "a cat", **languages)
    translated = translate(bundle, source, 1, max_length=6)
    found = record_translation(build_model(BundleReader().read(bundle.folder)), translated)
    source_ids, fed = torch.tensor([source.ids]), torch.tensor([translated.fed_ids])
    expected = theirs(input_ids=source_ids, decoder_input_ids=fed, output_attentions=True)
    of_hugging_face = (expected.cross_attentions, expected.encoder_attentions, expected.decoder_attentions)
    for kind, layers in zip(found.kinds, of_hugging_face, strict=True):
        torch.testing.assert_close(torch.from_numpy(kind.weights), torch.cat(layers), rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", [*ARCHITECTURES, *TRAINED])
def test_every_shape_is_what_its_letters_say(name):
    model = made(**{**ARCHITECTURES, **TRAINED}[name])
    way = follow_token(model, SOURCE, FED)  # compares the letters' numbers with the tensors
    with torch.inference_mode():
        logits = model(torch.tensor([SOURCE]), torch.tensor([4]), torch.tensor([FED]))
    torch.testing.assert_close(way.probabilities, logits[0, -1].softmax(-1))
    assert [step.shape for step in way.steps][-1] == (1, 1, model.config.target_vocab_size)
