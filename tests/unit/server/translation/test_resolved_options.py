"""Options of the protocol to options of the engine, over a vocabulary of letters. Whatever is wrong is named."""

from dataclasses import fields

import pytest

from fakes.backend import OFFSET
from fakes.serving import FakeTokenizer, make_manifest
from translane.options import Options, Term, checked_options
from translane.requests import TranslationRequest
from translane_server.engine.options import DecodingOptions
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


def test_what_the_vocabulary_cannot_spell():
    assert wrong(target_prefix="\u03c0") == {
        "target_prefix": "has characters that the model's vocabulary cannot spell",
    }
    assert sentence("a", terminology=[Term(source="a", target="b\u03c0")]).required_phrases == ()


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


@pytest.mark.parametrize(
    ("text", "options", "longest"),
    [
        ("abc", {}, 8),  # four tokens with the end of the sentence
        ("a" * 19, {}, 20),
        ("abc", {"max_length": 15}, 15),
        ("abc", {"min_length": 11}, 11),
        ("abc", {"beam_size": 2}, 8),
    ],
)
def test_a_model_may_bound_translations_by_their_sources(text, options, longest):
    bounded = RequestLimits(4, 8, TokenLimits(32, 24, 20, default_factor=2.0), max_beam_size=6)
    plans = RequestPlans(make_manifest(), TOKENIZER, bounded)
    plan = plans.of(TranslationRequest([""], options=checked_options(options)))
    assert not plan.wrong
    (ids,) = TOKENIZER.encode([text])
    assert plan.sentence(Segment(text, ids)).options.max_length == longest
