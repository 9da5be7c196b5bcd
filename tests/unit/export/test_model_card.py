"""The model card says what the manifest knows, and nothing it does not."""

from helpers.tiny_bundle import TINY
from translane_export.model_card import model_card
from translane_server.bundle import read_manifest


def card(provenance, **changes):
    manifest = read_manifest(TINY)
    provenance = manifest.provenance.model_copy(update={"training": {}, "attribution": "", **provenance})
    return model_card(manifest.model_copy(update={"quality": None, "provenance": provenance, **changes}))


def test_facts():
    training = {
        "data_licence": "CC-BY 2.0 FR",
        "training_pairs": 29166,
        "valid_bleu": 27.5,
        "test_chrf": 48.25,
        "bleu_signature": "nrefs:1|tok:13a",
    }
    text = card({"training": training, "attribution": "Tatoeba contributors"}, license="Apache-2.0")
    for fact in (
        "# reference 1",
        "zh → en",
        "Licence: Apache-2.0",
        "Licence of the data: CC-BY 2.0 FR",
        "Attribution: Tatoeba contributors",
        "Sentence pairs trained on: 29,166",
        "BLEU on the valid split, greedy: 27.5",
        "chrF on the test split, greedy: 48.25",
        "Signature: `nrefs:1|tok:13a`",
        "At most 32 source and 32 target tokens",
        "0 different from PyTorch's",
    ):
        assert fact in text, fact


def test_what_is_not_known_is_left_out():
    text = card({}, parity=None)
    assert "Licence of the data: not recorded" in text
    for heading in ("Scores", "Attribution", "Parity", "Sentence pairs"):
        assert heading not in text


def test_a_number_of_pairs_that_is_no_number_is_given_as_it_is():
    assert "Sentence pairs trained on: about 29k" in card({"training": {"training_pairs": "about 29k"}})
