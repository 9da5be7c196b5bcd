"""Every option has a rule, and whatever breaks one is refused by name."""

from dataclasses import fields, replace

import pytest

from fakes.serving import make_manifest
from translane.options import Options, Term
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.options import check_options, ranges

LIMITS = RequestLimits(4, 8, TokenLimits(32, 24, 20), max_beam_size=6)
MANIFEST = make_manifest()
INF, NAN = float("inf"), float("nan")


def term(source="a", target="b"):
    return Term(source, target)


def wrong(limits=LIMITS, manifest=MANIFEST, **options):
    return [each.field.removeprefix("options.") for each in check_options(Options(**options), limits, manifest)]


def test_every_number_but_the_seed_has_a_range():
    numbers = {field.name for field in fields(Options) if field.type in ("int | None", "float | None")}
    assert ranges(LIMITS).keys() == numbers - {"seed"}


@pytest.mark.parametrize(
    ("name", "bad", "good"),
    [
        ("beam_size", [-1, 0, 7, 2**31 - 1], [1, 6]),
        ("num_hypotheses", [-1, 0, 7], [1]),
        ("length_penalty", [NAN, INF, -INF, 10.5, -11], [-1.5, 0, 2, 10, -10]),
        ("patience", [NAN, INF, 0, -1], [0.1, 2]),
        ("coverage_penalty", [NAN, INF, 101, -101], [0, -0.5, 0.2, 100]),
        ("repetition_penalty", [NAN, INF, 0, -1], [0.5, 1.2]),
        ("no_repeat_ngram_size", [-1], [0, 3]),
        ("min_length", [-1], [0, 24]),
        ("max_length", [-1, 0, 25], [1, 24]),
        ("top_k", [-1, 0], [1, 100_000]),
        ("top_p", [NAN, 0, -0.1, 1.01, INF], [0.01, 1]),
        ("temperature", [NAN, INF, 0, -1], [0.01, 5]),
    ],
)
def test_ranges(name, bad, good):
    assert name in ranges(LIMITS)
    for value in bad:
        assert wrong(**{name: value}) == [name], value
    for value in good:
        assert wrong(**{name: value}) == [], value


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ({"beam_size": 2, "temperature": 1}, ["beam_size"]),
        ({"beam_size": 2, "top_k": 5}, ["beam_size"]),
        ({"beam_size": 1, "top_p": 0.5}, []),
        ({"beam_size": 2, "seed": 3}, []),
        ({"num_hypotheses": 2}, ["num_hypotheses"]),
        ({"num_hypotheses": 4, "beam_size": 3}, ["num_hypotheses"]),
        ({"num_hypotheses": 3, "beam_size": 3}, []),
        ({"num_hypotheses": 5, "top_k": 5}, []),
        ({"num_hypotheses": 5, "return_alternatives": True}, []),
        ({"num_hypotheses": 4, "terminology": [term()]}, []),
        ({"num_hypotheses": 4, "beam_size": 4, "patience": 0.5}, ["patience"]),
        ({"num_hypotheses": 2, "beam_size": 4, "patience": 0.5}, []),
        ({"return_alternatives": True, "beam_size": 2}, ["return_alternatives"]),
        ({"return_alternatives": True, "temperature": 0.5}, ["return_alternatives"]),
        ({"terminology": [term()], "beam_size": 1}, ["terminology"]),
        ({"terminology": [term()], "beam_size": 2}, []),
        ({"terminology": [term()], "top_k": 2}, ["terminology"]),
        ({"glossaries": ["x"], "beam_size": 1}, ["glossaries"]),
        ({"glossaries": ["x"], "terminology": [term()], "top_k": 2}, ["terminology"]),
        ({"terminology": [term()], "return_alternatives": True}, ["terminology"]),
        ({"terminology": [term(), term(" ", "b"), term("a", "")]}, ["terminology[1].source", "terminology[2].target"]),
        ({"suppressed_phrases": ["x", ""]}, ["suppressed_phrases[1]"]),
        ({"suppressed_phrases": ["e f"], "target_prefix": "the fox"}, ["suppressed_phrases[0]"]),
        ({"min_length": 6, "max_length": 5}, ["min_length"]),
        ({"min_length": 5, "max_length": 5}, []),
        ({"split_sentences": True, "target_prefix": "x"}, ["target_prefix"]),
        ({"beam_size": 9, "top_p": 2, "min_length": -1}, ["beam_size", "min_length", "top_p"]),
    ],
)
def test_combinations(options, fields):
    assert wrong(**options) == fields


@pytest.mark.parametrize("name", ["return_alignment", "replace_unknowns", "coverage_penalty"])
def test_alignment_needs_a_bundle_that_gives_it(name):
    assert wrong(**{name: True}) == []
    without = MANIFEST.model_copy(update={"alignment": None})
    assert wrong(manifest=without, **{name: True}) == [name]
    assert wrong(manifest=without, **{name: False}) == []


def test_terminology_needs_a_server_with_beams():
    limits = replace(LIMITS, max_beam_size=1)
    assert wrong(limits, terminology=[term()]) == ["terminology"]


def test_options_for_one_sentence_are_refused_where_texts_are_cut():
    options = {"return_alternatives": True, "num_hypotheses": 2, "target_prefix": "x"}
    assert wrong(**options, split_sentences=True) == ["return_alternatives", "target_prefix"]
    assert wrong(**options, split_sentences=False) == []
    assert wrong(split_sentences=True, num_hypotheses=1, target_prefix="", beam_size=4) == []


def test_a_shortlist_takes_a_bundle_that_has_one():
    assert wrong(use_shortlist=True) == ["use_shortlist"]
    assert wrong(use_shortlist=False) == []
    with_one = MANIFEST.model_copy(update={"shortlist": "a shortlist"})
    assert wrong(manifest=with_one, use_shortlist=True) == []
