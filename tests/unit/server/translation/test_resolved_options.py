"""Options of the protocol to options of the engine, over a vocabulary of letters. Whatever is wrong is named."""

from dataclasses import fields

import pytest
from msgspec.structs import replace

from fakes.serving import FakeTokenizer, make_manifest
from translane.options import Options, Term, checked_options
from translane.requests import TranslationRequest
from translane_server.engine.options import DecodingOptions
from translane_server.translation.limits import RequestLimits, TokenLimits
from translane_server.translation.options import ranges
from translane_server.translation.plan import RequestPlans, Segment

TOKENIZER = FakeTokenizer()


def limits(beams=6, **tokens):
    return RequestLimits(4, 8, TokenLimits(32, 24, 20, **tokens), max_beam_size=beams)


def plan(*, manifest=None, of=None, **options):
    plans = RequestPlans(manifest or make_manifest(), TOKENIZER, of or limits())
    return plans.of(TranslationRequest([""], options=checked_options(options)))


def wrong(**options):
    found = plan(**options)
    assert (found.decoding is None) == bool(found.wrong)
    return {each.field.removeprefix("options."): each.description for each in found.wrong}


def test_nothing_set_is_greedy_search():
    assert plan().decoding == DecodingOptions(max_length=20, scores=False)
    assert plan(return_token_scores=True).decoding == DecodingOptions(max_length=20)
    assert plan(return_alternatives=True, num_hypotheses=2).decoding.scores


def test_a_prefix_that_the_vocabulary_cannot_spell():
    problem = "has characters that the model's vocabulary cannot spell"
    assert wrong(target_prefix="\u03c0") == {"target_prefix": problem}


def test_every_number_but_the_seed_has_a_range():
    numbers = {field.name for field in fields(Options) if field.type in ("int | None", "float | None")}
    assert ranges(limits()).keys() == numbers - {"seed"}


@pytest.mark.parametrize(
    ("name", "value", "none"),
    [("return_alignment", True, False), ("replace_unknowns", True, False), ("coverage_penalty", 1.0, 0.0)],
)
def test_alignment_needs_a_bundle_that_gives_it(name, value, none):
    whole = make_manifest()
    without = replace(whole, alignment=None, graphs=replace(whole.graphs, alignment=None))
    assert wrong(**{name: value}) == {}
    assert list(wrong(manifest=without, **{name: value})) == [name]
    assert wrong(manifest=without, **{name: none}) == {}


def test_terminology_needs_a_server_with_beams():
    assert list(wrong(of=limits(beams=1), terminology=[Term("a", "b")])) == ["terminology"]


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
    bounded = plan(of=limits(default_factor=2.0), **options)
    (ids,) = TOKENIZER.encode([text])
    assert bounded.sentence(Segment(text, ids)).options.max_length == longest
