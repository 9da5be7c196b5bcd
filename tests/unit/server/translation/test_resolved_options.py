"""Options of the protocol to options of the engine, over a vocabulary of letters. Whatever is wrong is named."""

from dataclasses import fields

import pytest

from fakes.backend import OFFSET
from fakes.serving import UNKNOWN, FakeTokenizer, make_manifest
from translane.options import Options, Term, checked_options
from translane.requests import TranslationRequest
from translane_server.engine.options import DecodingOptions, Sampling
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.options import ranges
from translane_server.translation.plan import RequestPlans, Segment

TOKENIZER = FakeTokenizer()
INF, NAN = float("inf"), float("nan")


def limits(beams=6):
    return RequestLimits(4, 8, TokenLimits(32, 24, 20), max_beam_size=beams)


def plan(*, beams=6, manifest=None, **options):
    plans = RequestPlans(manifest or make_manifest(), TOKENIZER, limits(beams))
    return plans.of(TranslationRequest([""], options=checked_options(options)))


def resolved(**options):
    found = plan(**options)
    assert not found.wrong
    return found


def wrong(**options):
    found = plan(**options)
    assert (found.decoding is None) == bool(found.wrong)
    return {each.field.removeprefix("options."): each.description for each in found.wrong}


def sentence(text="abc", **options):
    return resolved(**options).sentence(Segment(text, TOKENIZER.encode([text])[0]))


def term(source="a", target="b"):
    return Term(source, target)


def target(text):
    return tuple(ord(c) + 10 + OFFSET for c in text)


def test_nothing_set_is_greedy_search():
    assert resolved().decoding == DecodingOptions(max_length=20, scores=False)
    assert resolved(return_token_scores=True).decoding == DecodingOptions(max_length=20)
    assert resolved(return_alternatives=True, num_hypotheses=2).decoding.scores


def test_beams():
    options = {"beam_size": 4, "num_hypotheses": 2, "length_penalty": 0.5, "early_stopping": True, "patience": 2}
    assert resolved(**options, coverage_penalty=0.25).decoding == DecodingOptions(
        max_length=20, beam_size=4, num_hypotheses=2, length_penalty=0.5, early_stopping=True, patience=2.0,
        coverage_penalty=0.25,
    )  # fmt: skip


def test_what_concerns_beams_has_no_effect_on_others():
    decoding = resolved(length_penalty=0.5, early_stopping=True, patience=2, coverage_penalty=1).decoding
    assert decoding == DecodingOptions(max_length=20, scores=False)
    assert not decoding.attention


@pytest.mark.parametrize(
    ("options", "sampling"),
    [
        ({"temperature": 0.5}, Sampling(7, temperature=0.5)),
        ({"top_k": 5}, Sampling(7, top_k=5)),
        ({"top_p": 0.5}, Sampling(7, top_p=0.5)),
        ({}, None),
    ],
)
def test_sampling(options, sampling):
    assert resolved(**options, seed=7).decoding.sampling == sampling


def test_constraints():
    found = resolved(
        repetition_penalty=1.5, no_repeat_ngram_size=3, min_length=2, max_length=9, suppress_unknown=True,
        suppressed_phrases=["e\u0301", "x"], replace_unknowns=True,
    )  # fmt: skip
    assert found.decoding == DecodingOptions(
        max_length=9, min_length=2, repetition_penalty=1.5, no_repeat_ngram_size=3, suppressed_ids=(UNKNOWN,),
        suppressed_phrases=("e\u0301".encode(), "\u00e9".encode(), b"x"), alignment=True,
        scores=False,
    )  # fmt: skip


def test_a_prefix_is_forced_and_shortens_what_is_generated():
    found = sentence(target_prefix="the fox ")
    assert found.forced_ids == target("the fox")
    assert found.word_follows
    assert found.options.max_length == 24 - 7
    assert not sentence(target_prefix="the fox").word_follows
    assert not sentence(target_prefix=" ").word_follows
    assert sentence(target_prefix="ab").options.max_length == 20


def test_a_prefix_leaves_room():
    assert sentence(target_prefix="x" * 23).options.max_length == 1
    assert wrong(target_prefix="x" * 24) == {"target_prefix": "has 24 tokens, at most 23 are accepted"}
    assert set(wrong(target_prefix="x" * 20, max_length=5)) == {"max_length"}
    assert set(wrong(target_prefix="x" * 20, min_length=5)) == {"min_length"}
    assert set(wrong(min_length=21)) == {"min_length"}


def test_what_the_vocabulary_cannot_spell():
    assert wrong(target_prefix="\u03c0") == {
        "target_prefix": "has characters that the model's vocabulary cannot spell",
    }
    assert sentence("a", terminology=[Term(source="a", target="b\u03c0")]).required_phrases == ()


def test_terms_that_occur_are_required():
    terms = [Term(source=a, target=b) for a, b in (("fox", "Fuchs"), ("dog", "Hund"), ("brown", " Fuchs "))]
    found = sentence("the brown fox", terminology=terms)
    assert [(phrase.text, phrase.token_ids) for phrase in found.required_phrases] == [(b"Fuchs", target("Fuchs"))]
    assert found.options.beam_size == 4


def test_a_text_without_terms_is_decoded_as_if_there_were_none():
    terms = [Term(source="fox", target="Fuchs"), Term(source="cat", target="\u03c0")]
    for text in ("the dog", "the cat"):
        assert sentence(text, terminology=terms).options == sentence(text).options
    assert sentence("the dog", terminology=terms, num_hypotheses=3).options.beam_size == 4
    assert sentence("the dog", terminology=terms, beam_size=2).options.beam_size == 2


def test_a_phrase_cannot_be_both_required_and_suppressed():
    terms = [Term(source="a", target="xy"), Term(source="b", target="Hund")]
    assert wrong(terminology=terms, suppressed_phrases=["z", "un"]) == {
        "suppressed_phrases[1]": "occurs in terminology[1].target"
    }


@pytest.mark.parametrize("asked", [False, True])
def test_a_shortlist_takes_a_bundle_that_has_one(asked):
    with_one = make_manifest().model_copy(update={"shortlist": "a shortlist"})
    assert resolved(manifest=with_one, use_shortlist=asked).decoding.shortlist is asked
    assert list(wrong(use_shortlist=asked)) == ["use_shortlist"][: int(asked)]


def test_every_number_but_the_seed_has_a_range():
    numbers = {field.name for field in fields(Options) if field.type in ("int | None", "float | None")}
    assert ranges(limits()).keys() == numbers - {"seed"}


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
        ("min_length", [-1], [0, 20]),
        ("max_length", [-1, 0, 25], [1, 24]),
        ("top_k", [-1, 0], [1, 100_000]),
        ("top_p", [NAN, 0, -0.1, 1.01, INF], [0.01, 1]),
        ("temperature", [NAN, INF, 0, -1], [0.01, 5]),
    ],
)
def test_ranges(name, bad, good):
    assert name in ranges(limits())
    for value in bad:
        assert list(wrong(**{name: value})) == [name], value
    for value in good:
        assert wrong(**{name: value}) == {}, value


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
        ({"glossaries": ["x"], "beam_size": 1}, ["glossaries", "glossaries[0]"]),
        ({"glossaries": ["x"], "terminology": [term()], "top_k": 2}, ["terminology", "glossaries[0]"]),
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
    assert list(wrong(**options)) == fields


@pytest.mark.parametrize(
    ("name", "value", "none"),
    [("return_alignment", True, False), ("replace_unknowns", True, False), ("coverage_penalty", 1.0, 0.0)],
)
def test_alignment_needs_a_bundle_that_gives_it(name, value, none):
    without = make_manifest().model_copy(update={"alignment": None})
    assert wrong(**{name: value}) == {}
    assert list(wrong(manifest=without, **{name: value})) == [name]
    assert wrong(manifest=without, **{name: none}) == {}


def test_terminology_needs_a_server_with_beams():
    assert list(wrong(beams=1, terminology=[term()])) == ["terminology"]


def test_options_for_one_sentence_are_refused_where_texts_are_cut():
    options = {"return_alternatives": True, "num_hypotheses": 2, "target_prefix": "x"}
    assert list(wrong(**options, split_sentences=True)) == ["return_alternatives", "target_prefix"]
    assert wrong(**options, split_sentences=False) == {}
    assert wrong(split_sentences=True, num_hypotheses=1, target_prefix="", beam_size=4) == {}
