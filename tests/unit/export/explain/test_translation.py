"""The translation is the server's, and what cannot be translated is refused with a name."""

import pytest

from helpers.foreign_models import FOREIGN_MODELS, export
from translane_export.checks.running import translate_greedily
from translane_export.errors import ExportError
from translane_export.explain.tensors import check_size
from translane_export.explain.translation import read_source, translate
from translane_server.bundle.bundle import load_bundle
from translane_server.core.errors import SettingsError
from translane_server.text.tokenizer import load_tokenizer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def opened(tiny):
    bundle = load_bundle(tiny)
    return bundle, load_tokenizer(bundle)


def test_greedy_search_is_the_servers(findings, opened):
    bundle, _ = opened
    translated = findings.translated
    (ids,) = translate_greedily(bundle, [translated.source.ids], (), 1)
    end = [bundle.manifest.special_ids.eos] if translated.is_complete else []
    assert translated.chosen_ids == (*ids, *end)
    assert translated.fed_ids == (bundle.manifest.special_ids.decoder_start, *translated.chosen_ids[:-1])
    assert len(translated.fed_pieces) == len(translated.chosen_pieces) == len(translated.log_probs)
    assert findings.difference < 1e-4  # PyTorch finds the same probabilities


def test_beams_find_what_is_at_least_as_probable(inspect, tiny, findings):
    beams = inspect(tiny, "我有一只猫。", beam_size=3).translated
    assert beams.score >= findings.translated.score / len(findings.translated.chosen_ids) - 1e-4


def test_a_translation_may_be_cut_off(opened):
    bundle, tokenizer = opened
    source = read_source(bundle, tokenizer, "你好！")
    cut = translate(bundle, source, 1, max_length=1)
    assert len(cut.chosen_ids) == len(cut.fed_ids) == len(cut.log_probs) == 1


@pytest.mark.parametrize("name", ["M2M100", "T5"])
def test_several_languages(inspect, name):
    exported = export(FOREIGN_MODELS[name])
    found = inspect(exported.bundle.folder, "a cat", source_language="en", target_language="fr")
    assert found.difference < 1e-3
    with pytest.raises(SettingsError, match=r"^--target-language: is needed, the model has several: "):
        inspect(exported.bundle.folder, "a cat", source_language="en")
    with pytest.raises(SettingsError, match=r"^--source-language: 'tlh' is not a language of the model"):
        inspect(exported.bundle.folder, "a cat", source_language="tlh", target_language="fr")
    names = [step.name for step in found.text_steps]
    assert ("with prefix" in names) == (name == "T5")


def test_the_number_of_weights_is_bounded(opened):
    sizes = opened[0].manifest.architecture
    check_size(sizes, 16, 16)
    with pytest.raises(ExportError, match=r"^the sentence has 16,000,000 attention weights .* give a shorter text"):
        check_size(sizes, 1000, 1000)
