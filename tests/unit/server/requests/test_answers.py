"""Which texts find an answer in the cache: those whose answer would be the same, for the same caller."""

import pytest

from translane.v1 import translation_pb2 as pb
from translane_server.manifest import SearchDefaults
from translane_server.requests.answers import AnswerCache
from translane_server.requests.kept_terms import MAX_REPORTS, MAX_REPORTS_OF_TEXT
from translane_server.text.stored_glossaries import StoredGlossaries

SAMPLED = {"temperature": 0.7, "top_k": 5, "top_p": 0.9}


def request(*texts, **fields):
    options = fields.pop("options", {})
    return pb.TranslateRequest(texts=texts or ["one"], options=pb.DecodingOptions(**options), **fields)


def stream(text="one", **fields):
    options = fields.pop("options", {})
    return pb.TranslateStreamRequest(text=text, options=pb.DecodingOptions(**options), **fields)


def translated(asked):
    texts = asked.texts if isinstance(asked, pb.TranslateRequest) else [asked.text]
    return [pb.Translation(hypotheses=[pb.Hypothesis(text=text.upper())], source_tokens=len(text)) for text in texts]


def answer(cache, asked, caller="me"):
    """Return the translations of a request, and how many of them were known."""
    recalled = cache.recall(asked, caller)
    whole = recalled.whole(translated(recalled.request))
    recalled.keep()
    return whole, recalled.count


def known(cache, asked, caller="me"):
    whole, count = answer(cache, asked, caller)
    assert whole == translated(asked)
    return count


@pytest.fixture
def cache():
    return AnswerCache(1_000_000)


def value_of(field):
    """A value of an option that is not its default."""
    if field.message_type:
        return [pb.Term(source="a", target="b")]
    value = "one" if field.type == field.TYPE_STRING else 1
    return [value] if field.is_repeated else value


@pytest.mark.parametrize("field", [*pb.DecodingOptions.DESCRIPTOR.fields], ids=lambda field: field.name)
def test_every_option_asks_for_another_answer(cache, field):
    seeded = {"seed": 0} if field.name in SAMPLED else {}
    other = request(options={field.name: value_of(field), **seeded})
    assert known(cache, request(options=seeded)) == 0
    assert known(cache, other) == 0
    assert known(cache, other) == 1
    assert known(cache, request(options=seeded)) == 1


@pytest.mark.parametrize("field", [*pb.TranslateRequest.DESCRIPTOR.fields], ids=lambda field: field.name)
def test_every_field_but_the_model_and_the_priority_asks_for_another_answer(cache, field):
    """A cache belongs to a model, so whichever way the request came to the model is the same."""
    values = {"texts": ["two"], "model": "m", "source_language": "zh", "target_language": "en", "priority": 3}
    values |= {"options": {"beam_size": 1}, "format": pb.FORMAT_HTML}
    other = request(**{field.name: values[field.name]}) if field.name != "texts" else request("two")
    assert known(cache, request()) == 0
    assert known(cache, other) == (1 if field.name in ("model", "priority") else 0)


def test_streams_have_the_fields_of_requests():
    """The key of a stream is made of the same fields."""
    fields = {field.name for field in pb.TranslateStreamRequest.DESCRIPTOR.fields}
    assert fields - {"text"} == {field.name for field in pb.TranslateRequest.DESCRIPTOR.fields} - {"texts"}


def test_an_option_that_is_set_to_zero_is_not_one_that_is_unset(cache):
    assert known(cache, request(options={"return_tokens": False})) == 0
    assert known(cache, request()) == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (request("bc", source_language="a"), request("c", source_language="ab")),
        (request("x", source_language="a", target_language="b"), request("x", source_language="ab")),
        (request("x", options={"target_prefix": "a"}), request("x", options={"suppressed_phrases": ["a"]})),
        (request("e\u0301"), request("\u00e9")),
        (request("a"), request("a ")),
    ],
)
def test_fields_do_not_flow_into_each_other(cache, one, other):
    assert known(cache, one) == 0
    assert known(cache, other) == 0


def test_the_request_of_the_caller_stays_as_it_is(cache):
    known(cache, request("one"))
    asked = request("one", "two")
    assert list(cache.recall(asked, "me").request.texts) == ["", "two"]
    assert asked == request("one", "two")


def test_a_request_gets_two_megabytes_of_answers_at_most():
    cache = AnswerCache(100_000_000)
    long = [pb.Translation(hypotheses=[pb.Hypothesis(text="x" * 600_000)])]
    first = cache.recall(request("one"), "me")
    first.whole(long)
    first.keep()
    recalled = cache.recall(request(*["one"] * 256), "me")
    assert recalled.count == 3
    assert isinstance(recalled.request, pb.TranslateRequest)
    assert recalled.request.texts == ["", "", "", *["one"] * 253]
    assert cache.recall(request("one"), "me").count == 1


def test_a_known_translation_may_be_changed(cache):
    """Requests through a third language change their messages."""
    known(cache, request())
    for _ in range(2):
        ((message,), count) = answer(cache, request())
        assert count == 1
        assert not message.HasField("treatment")
        message.treatment.pivot_language = "en"


def test_what_is_kept_is_the_message_before_anybody_changes_it(cache):
    recalled = cache.recall(request(), "me")
    (message,) = recalled.whole(translated(request()))
    recalled.keep()
    message.hypotheses[0].text = "changed"
    assert known(cache, request()) == 1


def test_streams_and_requests_share_answers(cache):
    assert known(cache, stream("one")) == 0
    assert known(cache, request("two", "one")) == 1
    assert known(cache, stream("two")) == 1
    assert cache.recall(stream("two"), "me").request == stream("")


def test_a_stream_that_is_to_be_refused_finds_nothing(cache):
    several = {"num_hypotheses": 2, "beam_size": 2}
    assert known(cache, request(options=several)) == 0
    assert known(cache, request(options=several)) == 1
    assert known(cache, stream(options=several)) == 0


def test_no_default_of_a_model_samples():
    assert not SAMPLED.keys() & SearchDefaults.model_fields.keys()


def test_a_change_of_glossaries_makes_requests_that_name_any_unknown():
    stored = StoredGlossaries()
    cache = AnswerCache(1_000_000, stored=lambda: stored)
    named = request(options={"glossaries": ["g"]})
    assert [known(cache, request()), known(cache, named), known(cache, named)] == [0, 0, 1]
    late = cache.recall(named, "late")
    stored = StoredGlossaries()
    late.whole(translated(named))
    late.keep()
    assert known(cache, named, "late") == 0
    assert [known(cache, request()), known(cache, named), known(cache, named)] == [1, 0, 1]


def test_reports_of_terms_depend_on_the_number_of_texts(cache):
    few, many = MAX_REPORTS // MAX_REPORTS_OF_TEXT, MAX_REPORTS // MAX_REPORTS_OF_TEXT + 1
    terms = {"terminology": [pb.Term(source="a", target="b")]}
    assert known(cache, request("x", options=terms)) == 0
    assert known(cache, request(*["x"] * few, options=terms)) == few
    assert known(cache, request(*["x"] * many, options=terms)) == 0
    assert known(cache, request("x")) == 0
    assert known(cache, request(*["x"] * many)) == many


def test_a_request_that_ends_after_its_version_leaves_nothing(cache):
    recalled = cache.recall(request(), "me")
    cache.close()
    recalled.whole(translated(request()))
    recalled.keep()
    assert len(cache.store) == 0


def test_a_key_is_short_however_long_the_text_is(cache):
    known(cache, request("x" * 100_000))
    assert all(len(key) == 32 for key in cache.store._answers)
