"""Everything that a caller can make long is measured before anything else looks at the request."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from fakes.serving import FakeTokenizer, make_manifest
from translane.conversions import scoring_request_of, stream_request_of, translation_request_of
from translane.options import Options, Term, checked_options
from translane.requests import ScoringRequest, TranslationRequest
from translane.v1 import translation_pb2 as pb
from translane_server.core.errors import InvalidRequestError
from translane_server.translation import languages
from translane_server.translation.limits import RequestLimits, TokenLimits, check_inputs, check_names, check_sizes
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
each_field = pytest.mark.parametrize(
    ("kind", "path"), FIELDS, ids=[f"{kind.DESCRIPTOR.name} {'.'.join(path)}" for kind, path in FIELDS]
)


def named(error: InvalidRequestError) -> list[str]:
    return [violation.field for violation in error.violations]


def test_all_fields_are_here():
    assert len(FIELDS) == 15 + 14 + 6
    assert (pb.TranslateRequest, ("options", "terminology", "source")) in FIELDS
    assert (pb.ScoreRequest, ("inputs", "target")) in FIELDS


@each_field
def test_every_field_has_a_limit(kind, path):
    request = oversized(kind, path)
    check_others = check_inputs if kind is pb.ScoreRequest else check_sizes
    check: Any = check_names if path[-1] in NAMES else partial(check_others, limits=LIMITS)
    with pytest.raises(InvalidRequestError) as caught:
        check(request)
    (field,) = named(caught.value)
    assert field.replace("[0]", "") == ".".join(filter(None, path))
    assert "at most" in caught.value.violations[0].description
    assert "xxx" not in str(caught.value)


@each_field
def test_nothing_else_looks_at_a_request_that_is_too_large(kind, path, monkeypatch):
    monkeypatch.setattr(languages, "lookup", None)
    reader: Any = ScoreReader if kind is pb.ScoreRequest else TranslateReader
    asked = check_names if path[-1] in NAMES else reader(make_manifest(), FakeTokenizer(), LIMITS).check
    with pytest.raises(InvalidRequestError):
        asked(oversized(kind, path))


def test_what_fits_is_accepted():
    term = Term("x" * 128, "x" * 128)
    options = Options(
        target_prefix="x" * 320,
        suppressed_phrases=("x" * 128,) * 64,
        terminology=(term,) * 1024,
        split_sentences=True,
    )
    check_sizes(TranslationRequest(["x" * 64 * 6 * 8] * 3, options=options), LIMITS)
    check_sizes(TranslationRequest(["x" * 64 * 6 * 8], streamed=True), LIMITS)
    check_sizes(TranslationRequest(["x"], options=Options(preserve=("x" * 512,) * 32), streamed=True), LIMITS)
    check_inputs(ScoringRequest([("x" * 384, "x" * 320)] * 3), LIMITS)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"terminology": [Term("", "")] * 1025}, "options.terminology"),
        ({"suppressed_phrases": [""] * 65}, "options.suppressed_phrases"),
        ({"suppressed_phrases": ["x" * 128, "x" * 129]}, "options.suppressed_phrases[1]"),
        ({"terminology": [Term("x", "x" * 129)]}, "options.terminology[0].target"),
        ({"glossaries": ["x"] * 9}, "options.glossaries"),
        ({"glossaries": ["x", "x" * 101]}, "options.glossaries[1]"),
        ({"target_prefix": "x" * 321}, "options.target_prefix"),
        ({"preserve": ["x" * 8] * 33}, "options.preserve"),
        ({"preserve": ["x", "x" * 513]}, "options.preserve[1]"),
    ],
)
def test_what_is_one_too_much_is_refused(options, field):
    with pytest.raises(InvalidRequestError) as caught:
        check_sizes(TranslationRequest(["x"], options=checked_options(options)), LIMITS)
    assert named(caught.value) == [field]


@pytest.mark.parametrize("options", [{"split_sentences": False}, {"target_prefix": "x"}, {"return_alternatives": True}])
def test_a_text_that_stays_whole_is_as_long_as_a_sentence(options):
    options = checked_options(options)
    check_sizes(TranslationRequest(["x" * 64 * 6], options=options), LIMITS)
    with pytest.raises(InvalidRequestError):
        check_sizes(TranslationRequest(["x" * (64 * 6 + 1)], options=options), LIMITS)


def test_texts_without_tokens_count_as_texts():
    reader = TranslateReader(make_manifest(), FakeTokenizer(), LIMITS)
    assert reader.check(TranslationRequest(["", " ", "x"])) == 3
    assert reader.check(TranslationRequest([""], streamed=True)) == 1
