"""generation_config.json as search defaults. That they give what `generate` gives is shown in tests/parity."""

import json

import pytest

from helpers.refusals import refusal
from translane_export.core.errors import ExportError
from translane_export.sources.huggingface import (
    generation_settings,
    read_lengths,
    read_search,
    read_settings,
)
from translane_server.bundle.manifest import SearchDefaults


@pytest.fixture
def search(tmp_path):
    def search(generation=None, **config):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "marian", **config}))
        if generation is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(generation))
        return read_search(generation_settings(read_settings(tmp_path)))

    return search


def test_config_json_counts_only_alone(search):
    assert search(num_beams=4).defaults == SearchDefaults(beam_size=4)
    assert search({}, num_beams=4).defaults == SearchDefaults()
    assert search({"num_beams": None}, num_beams=4).defaults == SearchDefaults()


def test_what_every_search_has_is_no_default(search):
    plain = {"num_beams": 1, "length_penalty": 1.0, "early_stopping": False, "repetition_penalty": 1, "min_length": 0}
    assert search({**plain, "no_repeat_ngram_size": 0, "temperature": 0.5, "do_sample": False}).defaults == (
        SearchDefaults()
    )
    assert str(SearchDefaults()) == "none"


def test_lengths(search, tmp_path):
    assert search({"min_length": 1}).defaults.min_length is None
    assert search({"min_length": 9, "min_new_tokens": 2}).defaults.min_length == 2
    for values, longest in (
        ({"max_length": 100}, {"default_max_length": 99}),
        ({"max_length": 100, "max_new_tokens": 7}, {"default_max_length": 7}),
        ({}, {}),
    ):
        search(values)
        assert read_lengths(read_settings(tmp_path)) == longest


@pytest.mark.parametrize(
    ("values", "left_out"),
    [
        ({"do_sample": True, "top_k": 5}, ["do_sample True"]),
        ({"num_beam_groups": 2, "diversity_penalty": 0.5}, ["num_beam_groups 2", "diversity_penalty 0.5"]),
        ({"num_beam_groups": 1, "diversity_penalty": 0.0, "sequence_bias": []}, []),
        ({"num_beams": 4, "early_stopping": "never"}, ["early_stopping 'never'"]),
        ({"num_beams": 4, "early_stopping": "never", "length_penalty": 0.0}, []),
        ({"length_penalty": 11}, ["length_penalty 11"]),
        ({"num_beams": 5000}, ["num_beams 5000"]),
        ({"repetition_penalty": 0.0}, ["repetition_penalty 0.0"]),
        ({"renormalize_logits": True, "num_beams": 4}, []),
        (
            {"renormalize_logits": True, "num_beams": 4, "no_repeat_ngram_size": 3},
            ["renormalize_logits True after other rules than bad_words_ids"],
        ),
    ],
    ids=str,
)
def test_what_the_server_does_not_do_is_named(search, values, left_out):
    assert list(search(values).left_out) == left_out


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_beams": "four"}, "num_beams is 'four', not a whole number of at most"),
        ({"num_beams": True}, "num_beams is True, not a whole number of at most"),
        ({"length_penalty": [1]}, "length_penalty is [1], not a number"),
        ({"early_stopping": "always"}, "early_stopping is 'always', not true or false"),
        ({"min_length": 1.5}, "min_length is 1.5, not a whole number of at most"),
        ({"renormalize_logits": "yes"}, "renormalize_logits is 'yes', not true or false"),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_is_one_sentence(search, tmp_path, values, message):
    assert refusal(ExportError, search, values).startswith(f"{tmp_path / 'generation_config.json'}: {message}")
