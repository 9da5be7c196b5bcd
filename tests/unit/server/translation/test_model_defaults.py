"""Requests that set nothing are searched as the model says, and no request is refused for what the model says."""

import itertools
from typing import Any

import pytest

from fakes.serving import FakeTokenizer, make_manifest, make_settings
from translane.options import Options, Term, checked_options
from translane.requests import TranslationRequest
from translane_server.core.errors import InvalidRequestError
from translane_server.engine.options import DecodingOptions
from translane_server.translation.limits import limits_of
from translane_server.translation.options import decoding_defaults
from translane_server.translation.reader import TranslateReader

DEFAULTS: dict[str, Any] = {
    "beam_size": 4,
    "length_penalty": 0.5,
    "early_stopping": True,
    "repetition_penalty": 1.25,
    "no_repeat_ngram_size": 3,
    "min_length": 6,
    "max_length": 12,
}
SEARCHED = DecodingOptions(
    max_length=12, min_length=6, beam_size=4, length_penalty=0.5, early_stopping=True, repetition_penalty=1.25,
    no_repeat_ngram_size=3,
)  # fmt: skip


def limits(defaults=DEFAULTS, **settings):
    manifest = make_manifest(decoding_defaults={"max_length": 20, **defaults})
    return limits_of(make_settings(**settings).of_model("m"), manifest)


def decoding(defaults=DEFAULTS, *, streamed=False, settings=None, **options):
    manifest = make_manifest(decoding_defaults={"max_length": 20, **defaults})
    reader = TranslateReader(manifest, FakeTokenizer(), limits(defaults, **(settings or {})))
    request = TranslationRequest(["abc"], options=checked_options(options), streamed=streamed)
    reader.check(request)
    return reader.read(request).sentences[0].options


def test_nothing_set():
    assert decoding() == SEARCHED
    assert decoding(streamed=True) == SEARCHED


def test_a_model_without_defaults_is_searched_greedily():
    assert decoding(defaults={}) == DecodingOptions(max_length=20, scores=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("beam_size", 2),
        ("length_penalty", 0.0),
        ("early_stopping", False),
        ("repetition_penalty", 1.0),
        ("no_repeat_ngram_size", 0),
        ("min_length", 0),
        ("max_length", 9),
    ],
)
def test_the_request_wins_field_by_field(name, value):
    expected = {field: getattr(SEARCHED, field) for field in DEFAULTS} | {name: value}
    assert decoding(**{name: value}) == DecodingOptions(**expected)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.5, "seed": 1},
        {"top_k": 3, "num_hypotheses": 6},
        {"top_p": 0.5},
        {"return_alternatives": True, "num_hypotheses": 5},
        {"beam_size": 1},
    ],
    ids=str,
)
def test_a_request_that_chooses_another_search_takes_no_beams(options):
    found = decoding(**options)
    assert (found.beam_size, found.length_penalty, found.early_stopping) == (1, 1.0, False)
    assert (found.repetition_penalty, found.no_repeat_ngram_size, found.min_length) == (1.25, 3, 6)


def test_several_hypotheses_take_the_model_s_beams():
    assert decoding(num_hypotheses=4).beam_size == 4
    with pytest.raises(InvalidRequestError, match="num_hypotheses: is 5, more than the 4 of beam_size"):
        decoding(num_hypotheses=5)  # without defaults, too, it would be too many


def test_terms_take_the_model_s_beams_or_their_own():
    terms = [Term(source="abc", target="b")]
    assert decoding(terminology=terms).beam_size == 4
    assert decoding({"beam_size": 2}, terminology=terms).beam_size == 2
    assert decoding({"beam_size": 1}, terminology=terms).beam_size == 4
    assert decoding(settings={"max_beam_size": 3}, terminology=terms).beam_size == 3


def test_the_server_has_fewer_beams():
    assert decoding(settings={"max_beam_size": 3}).beam_size == 3
    found = decoding(settings={"max_beam_size": 1})
    assert (found.beam_size, found.scores) == (1, False)


def test_lengths_are_clamped():
    assert decoding(max_length=3).min_length == 3
    assert decoding({"min_length": 19}, settings={"max_target_tokens": 7}).min_length == 7
    found = decoding({"min_length": 10}, target_prefix="x" * 20)
    assert (found.min_length, found.max_length) == (4, 4)


def test_the_setting_switches_them_off():
    found = decoding(settings={"decoding_defaults": False})
    assert found == DecodingOptions(max_length=12, scores=False)


def test_of_one_model():
    settings = make_settings(model_settings={"fake": {"decoding_defaults": False}})
    assert limits().search.beam_size == 4
    manifest = make_manifest(decoding_defaults=DEFAULTS)
    assert limits_of(settings.of_model("fake"), manifest).search.beam_size is None
    assert limits_of(settings.of_model("other"), manifest).search.beam_size == 4


def test_the_list_has_what_counts():
    assert decoding_defaults(limits()) == Options(**DEFAULTS)
    assert decoding_defaults(limits(max_beam_size=2, max_target_tokens=5)) == Options(
        **DEFAULTS | {"beam_size": 2, "min_length": 5, "max_length": 5}
    )
    assert decoding_defaults(limits({})) == Options(max_length=20)
    assert decoding_defaults(limits(decoding_defaults=False)) == Options(max_length=12)


CHOICES: dict[str, list[Any]] = {
    "beam_size": [1, 2, 6],
    "num_hypotheses": [1, 3],
    "return_alternatives": [True],
    "top_k": [3],
    "patience": [0.25],
    "min_length": [4],
    "max_length": [2, 8],
    "target_prefix": ["x" * 20],
    "terminology": [[Term(source="a", target="b")]],
    "coverage_penalty": [0.5],
}


@pytest.mark.parametrize("names", [*itertools.combinations(CHOICES, 3)], ids="-".join)
def test_no_request_is_refused_for_a_default(names):
    """What is accepted without defaults is accepted with them. Options that nothing else is wrong with come through."""
    for values in itertools.product(*(CHOICES[name] for name in names)):
        options = dict(zip(names, values, strict=True))
        try:
            decoding({}, **options)
        except InvalidRequestError:
            continue
        found = decoding(**options)
        assert found.max_length == options.get("max_length", found.max_length)


def test_empty_texts_are_checked_with_the_defaults():
    manifest = make_manifest(decoding_defaults=DEFAULTS)
    reader = TranslateReader(manifest, FakeTokenizer(), limits())
    with pytest.raises(InvalidRequestError) as caught:
        reader.check(TranslationRequest([], options=Options(num_hypotheses=4)))
    assert [each.field for each in caught.value.violations] == ["texts"]
