"""All that a caller can make long is measured first; scores; and the defaults of a model."""

import itertools
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from msgspec.structs import replace

from fakes.serving import FakeTokenizer, make_manifest, make_settings
from translane.conversions import scoring_request_of, stream_request_of, translation_request_of
from translane.options import Options, Term, checked_options
from translane.requests import ScoringRequest, TranslationRequest
from translane.v1 import translation_pb2 as pb
from translane_server.core.budget import Budget, WorkEndedError
from translane_server.core.errors import InvalidRequestError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import Hypothesis, SentenceResult, Timing
from translane_server.translation import languages
from translane_server.translation.limits import (
    RequestLimits,
    TokenLimits,
    check_inputs,
    check_names,
    check_sizes,
    limits_of,
)
from translane_server.translation.options import decoding_defaults, ranges
from translane_server.translation.reader import TranslateReader
from translane_server.translation.score import ScoreReader

LIMITS = RequestLimits(3, 8, TokenLimits(6, 5, 5), max_beam_size=4)
REQUESTS: dict[Any, Any] = {
    pb.TranslateRequest: translation_request_of,
    pb.TranslateStreamRequest: stream_request_of,
    pb.ScoreRequest: scoring_request_of,
}
NAMES = {"model", "source_language", "target_language"}
LONG, MANY = "x" * 100_000, 5000


def long_fields(descriptor: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all fields that can be of any length: strings, bytes, and lists."""
    for field in descriptor.fields:
        here = (*path, field.name)
        if field.is_repeated or field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            yield here
        if field.message_type:
            yield from long_fields(field.message_type, here)
        elif field.is_repeated and field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            yield (*here, "")  # an entry


def oversized(kind: Any, path: tuple[str, ...]) -> Any:
    """A request of this kind whose field at `path` is too large."""
    request = kind()
    message: Any = request
    for place, name in enumerate(path):
        last = place == len(path) - 1
        field = message.DESCRIPTOR.fields_by_name[name]
        value = getattr(message, name)
        if last and field.is_repeated:
            for _ in range(MANY):
                value.append("x") if field.message_type is None else value.add()
        elif last:
            setattr(message, name, LONG)
        elif path[place + 1] == "":
            value.append(LONG)
            break
        else:
            message = value.add() if field.is_repeated else value
    return REQUESTS[kind](request)


FIELDS = [(kind, path) for kind in REQUESTS for path in long_fields(kind.DESCRIPTOR)]


@pytest.mark.parametrize(
    ("kind", "path"), FIELDS, ids=[f"{kind.DESCRIPTOR.name} {'.'.join(path)}" for kind, path in FIELDS]
)
def test_every_field_has_a_limit_and_nothing_else_looks_at_a_request_beyond_it(kind, path, monkeypatch):
    monkeypatch.setattr(languages, "lookup", None)
    reader: Any = ScoreReader if kind is pb.ScoreRequest else TranslateReader
    check = check_names if path[-1] in NAMES else reader(make_manifest(), FakeTokenizer(), LIMITS).check
    with pytest.raises(InvalidRequestError) as caught:
        check(oversized(kind, path))
    (violation,) = caught.value.violations
    assert violation.field.replace("[0]", "") == ".".join(filter(None, path))
    assert "at most" in violation.description
    assert "xxx" not in str(caught.value)


def test_what_fits_is_accepted():
    phrases, terms = ("x" * 128,) * 64, (Term("x" * 128, "x" * 128),) * 1024
    options = Options(target_prefix="x" * 320, suppressed_phrases=phrases, terminology=terms, split_sentences=True)
    check_sizes(TranslationRequest(["x" * 64 * 6 * 8] * 3, options=options), LIMITS)
    check_sizes(TranslationRequest(["x" * 64 * 6 * 8], streamed=True), LIMITS)
    check_sizes(TranslationRequest(["x"], options=Options(preserve=("x" * 512,) * 32), streamed=True), LIMITS)
    check_inputs(ScoringRequest([("x" * 384, "x" * 320)] * 3), LIMITS)


@pytest.mark.parametrize("options", [{"split_sentences": False}, {"target_prefix": "x"}, {"return_alternatives": True}])
def test_a_text_that_stays_whole_is_as_long_as_a_sentence(options):
    options = checked_options(options)
    check_sizes(TranslationRequest(["x" * 64 * 6], options=options), LIMITS)
    with pytest.raises(InvalidRequestError):
        check_sizes(TranslationRequest(["x" * (64 * 6 + 1)], options=options), LIMITS)


def test_texts_without_tokens_count_as_texts():
    assert TranslateReader(make_manifest(), FakeTokenizer(), LIMITS).check(TranslationRequest(["", " ", "x"])) == 3


def test_scores_are_read_within_the_time_and_built_until_the_caller_goes():
    reader = ScoreReader(make_manifest(), FakeTokenizer(), LIMITS)
    asked = ScoringRequest([("ab", "xy")])
    reader.check(asked)
    late, ended = Budget(0.0, clock=iter([1.0, 2.0]).__next__), Budget()
    late.start()
    ended.end()
    with pytest.raises(InvalidRequestError, match="inputs: takes more than 0 seconds to read"):
        reader.read(asked, late)
    with pytest.raises(WorkEndedError):
        reader.read(asked, ended)
    hypothesis = Hypothesis((1, 2), 0.0, True, (-0.1, -0.2, -0.3))
    with pytest.raises(WorkEndedError):
        reader.read(asked).scores([SentenceResult((hypothesis,), Timing(0, 0, 0))], False, ended)


# Requests that set nothing are searched as the model says, and no request is refused for what the model says.


DEFAULTS: dict[str, Any] = {
    "beam_size": 4,
    "length_penalty": 0.5,
    "early_stopping": True,
    "repetition_penalty": 1.25,
    "no_repeat_ngram_size": 3,
    "min_length": 6,
    "max_length": 12,
}


def limits(defaults=DEFAULTS, **settings):
    manifest = make_manifest(decoding_defaults={"max_length": 20, **defaults})
    return limits_of(make_settings(**settings).of_model("m"), manifest)


def decoding(defaults=DEFAULTS, *, text="abc", streamed=False, settings=None, manifest=None, **options):
    manifest = make_manifest(decoding_defaults={"max_length": 20, **defaults}, **(manifest or {}))
    reader = TranslateReader(manifest, FakeTokenizer(), limits(defaults, **(settings or {})))
    request = TranslationRequest([text], options=checked_options(options), streamed=streamed)
    reader.check(request)
    return reader.read(request).sentences[0].options


def test_scores_are_made_if_they_are_asked_for():
    assert decoding({}) == DecodingOptions(max_length=20, scores=False)
    assert decoding({}, return_token_scores=True).scores
    assert decoding({}, return_alternatives=True, num_hypotheses=2).scores


def test_a_prefix_that_the_vocabulary_cannot_spell():
    with pytest.raises(
        InvalidRequestError, match=r"^options.target_prefix: has characters that the model's vocabulary"
    ):
        decoding({}, target_prefix="\u03c0")


def test_every_number_but_the_seed_has_a_range():
    numbers = {field.name for field in fields(Options) if field.type in ("int | None", "float | None")}
    assert ranges(limits()).keys() == numbers - {"seed"}


@pytest.mark.parametrize(
    ("name", "value", "none"),
    [("return_alignment", True, False), ("replace_unknowns", True, False), ("coverage_penalty", 1.0, 0.0)],
)
def test_alignment_needs_a_bundle_that_gives_it(name, value, none):
    without = {"alignment": None, "graphs": replace(make_manifest().graphs, alignment=None)}
    assert decoding({}, **{name: value})
    assert decoding({}, manifest=without, **{name: none})
    with pytest.raises(InvalidRequestError, match=f"^options.{name}: "):
        decoding({}, manifest=without, **{name: value})


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
    assert decoding({"length_factor": 2.0}, text=text, **options).max_length == longest


def test_the_request_wins_field_by_field():
    assert decoding() == decoding(streamed=True) == DecodingOptions(**DEFAULTS)
    others = {"beam_size": 2, "length_penalty": 0.0, "early_stopping": False, "repetition_penalty": 1.0}
    others |= {"no_repeat_ngram_size": 0, "min_length": 0, "max_length": 9}
    for name, value in others.items():
        assert decoding(**{name: value}) == DecodingOptions(**DEFAULTS | {name: value})


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
    with pytest.raises(InvalidRequestError, match=r"^options.terminology: "):
        decoding(settings={"max_beam_size": 1}, terminology=terms)


def test_lengths_are_clamped():
    assert decoding(max_length=3).min_length == 3
    assert decoding({"min_length": 19}, settings={"max_target_tokens": 7}).min_length == 7
    found = decoding({"min_length": 10}, target_prefix="x" * 20)
    assert (found.min_length, found.max_length) == (4, 4)


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


def test_a_request_without_texts_is_checked_with_the_defaults():
    reader = TranslateReader(make_manifest(decoding_defaults=DEFAULTS), FakeTokenizer(), limits())
    with pytest.raises(InvalidRequestError, match=r"^texts: is empty; at least one is needed$"):
        reader.check(TranslationRequest([], options=Options(num_hypotheses=4)))
