"""Which texts find a translation in the cache: those that would get the same one. What it keeps, and what it takes."""

import math
import random
import sys
import tracemalloc
from dataclasses import fields
from typing import Any

import pytest

from translane.options import Format, Options, Term, checked_options
from translane.requests import TranslationRequest
from translane.results import AlignmentPoint, FinishReason, Hypothesis, TermOutcome, TermReport, Translation, Treatment
from translane_server.bundle.manifest import SearchDefaults
from translane_server.text.glossaries import StoredGlossaries
from translane_server.translation.cache import _LARGEST, _OVERHEAD, TranslationCache, TranslationStore
from translane_server.translation.terms import MAX_REPORTS, MAX_REPORTS_OF_TEXT

SAMPLED = {"temperature": 0.7, "top_k": 5, "top_p": 0.9}


def request(*texts, **fields):
    options = fields.pop("options", {})
    return TranslationRequest(texts or ["one"], options=checked_options(options), **fields)


def stream(text="one", **fields):
    return request(text, streamed=True, **fields)


def translated(asked):
    return [Translation((Hypothesis(text.upper(), None),), len(text)) for text in asked.texts]


def recall(cache, asked, caller="me"):
    recalled = cache.recall(asked, caller)
    assert recalled is not None
    return recalled


def known(cache, asked, caller="me"):
    """Ask for a request, and return how many of its translations were known."""
    recalled = recall(cache, asked, caller)
    assert recalled.whole(translated(recalled.request)) == translated(asked)
    recalled.keep()
    return recalled.count


@pytest.fixture
def cache():
    return TranslationCache(1_000_000)


def value_of(field):
    """A value of an option that is not its default."""
    values = {"int": 1, "float": 1.0, "bool": True, "str": "one", "tuple[str, ...]": ["one"]}
    return values.get(field.type.removesuffix(" | None"), [Term("a", "b")])


@pytest.mark.parametrize("field", fields(Options), ids=lambda field: field.name)
def test_every_option_asks_for_another_answer(cache, field):
    seeded = {"seed": 0} if field.name in SAMPLED else {}
    other = request(options={field.name: value_of(field), **seeded})
    assert known(cache, request(options=seeded)) == 0
    assert known(cache, other) == 0
    assert known(cache, other) == 1
    assert known(cache, request(options=seeded)) == 1


@pytest.mark.parametrize("field", fields(TranslationRequest), ids=lambda field: field.name)
def test_every_field_but_the_model_asks_for_another_answer(cache, field):
    """A cache belongs to a model, so whichever way the request came to the model is the same, and a stream, too."""
    values: dict[str, Any] = {
        "model": "m",
        "source_language": "zh",
        "target_language": "en",
        "options": {"beam_size": 1},
    }
    values |= {"format": Format.HTML, "streamed": True}
    other = request(**{field.name: values[field.name]}) if field.name != "texts" else request("two")
    assert known(cache, request()) == 0
    assert known(cache, other) == (1 if field.name in ("model", "streamed") else 0)


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


def test_a_request_gets_two_megabytes_of_answers_at_most():
    cache = TranslationCache(100_000_000)
    long = [Translation((Hypothesis("x" * 600_000, None),), 1)]
    first = recall(cache, request("one"))
    first.whole(long)
    first.keep()
    recalled = recall(cache, request(*["one"] * 256))
    assert recalled.count == 3
    assert list(recalled.request.texts) == ["", "", "", *["one"] * 253]
    assert recall(cache, request("one")).count == 1


def test_a_known_translation_is_the_one_that_was_kept(cache):
    """Cut, with terms, and with everything that a request can ask for."""
    whole = Translation(
        hypotheses=(
            Hypothesis(
                "one", -0.1, FinishReason.MAX_LENGTH, ("o", "ne"), (-0.1, -1e-30), (AlignmentPoint(0, 1, 0.3),), 0.9
            ),
            Hypothesis("\N{CAT}", -math.inf, token_log_probs=(-math.inf,)),
            Hypothesis("\0\ufffd", None),
        ),
        source_tokens=7,
        source_pieces=("a", "</s>"),
        treatment=Treatment(2, 1, 3, (TermReport("a", "b", TermOutcome.MISSED, "law"),)),
    )
    recalled = recall(cache, request())
    assert recalled.whole([whole]) == [whole]
    recalled.keep()
    recalled = recall(cache, request())
    assert (recalled.count, recalled.whole(translated(request("")))) == (1, [whole])


def test_a_stream_that_is_to_be_refused_finds_nothing(cache):
    several = {"num_hypotheses": 2, "beam_size": 2}
    assert known(cache, request(options=several)) == 0
    assert known(cache, request(options=several)) == 1
    assert cache.recall(stream(options=several), "me") is None


def test_no_default_of_a_model_samples():
    assert not SAMPLED.keys() & set(SearchDefaults.__struct_fields__)


def test_a_change_of_glossaries_makes_requests_that_name_any_unknown():
    stored = StoredGlossaries()
    cache = TranslationCache(1_000_000, stored=lambda: stored)
    named = request(options={"glossaries": ["g"]})
    assert [known(cache, request()), known(cache, named), known(cache, named)] == [0, 0, 1]
    late = recall(cache, named, "late")
    stored = StoredGlossaries()
    late.whole(translated(named))
    late.keep()
    assert known(cache, named, "late") == 0
    assert [known(cache, request()), known(cache, named), known(cache, named)] == [1, 0, 1]


def test_reports_of_terms_depend_on_the_number_of_texts(cache):
    few, many = MAX_REPORTS // MAX_REPORTS_OF_TEXT, MAX_REPORTS // MAX_REPORTS_OF_TEXT + 1
    terms = {"terminology": [Term("a", "b")]}
    assert known(cache, request("x", options=terms)) == 0
    assert known(cache, request(*["x"] * few, options=terms)) == few
    assert known(cache, request(*["x"] * many, options=terms)) == 0
    assert known(cache, request("x")) == 0
    assert known(cache, request(*["x"] * many)) == many


def test_a_request_that_ends_after_its_version_leaves_nothing(cache):
    recalled = recall(cache, request())
    cache.close()
    recalled.whole(translated(request()))
    recalled.keep()
    assert len(cache.store) == 0


def key(number):
    return number.to_bytes(32)


def size(answer):
    return sys.getsizeof(key(0)) + sys.getsizeof(answer) + _OVERHEAD


def test_an_answer_has_a_mebibyte_at_most():
    most = _LARGEST - size(b"")
    store = TranslationStore(100 * _LARGEST)
    store.put(key(1), bytes(most + 1))
    store.put(key(2), bytes(most))
    assert (len(store), store.bytes) == (1, _LARGEST)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_a_list_in_the_order_of_use(seed):
    pick = random.Random(seed)
    limit = pick.choice([0, pick.randrange(2000, 20_000), 8 * size(bytes(700)), 8 * size(bytes(700)) - 1])
    forgotten: list[int] = []
    store = TranslationStore(limit, forgotten.append)
    expected: list[tuple[bytes, bytes]] = []  # the last one that was used comes last
    dropped = 0
    for _ in range(500):
        chosen = key(pick.randrange(40))
        found = next((answer for name, answer in expected if name == chosen), None)
        if pick.random() < 0.5:
            assert store.get(chosen) == found
            answer = found
        else:
            answer = pick.randbytes(pick.choice([0, 5, 100, 700, 3000]))
            store.put(chosen, answer)
            if 8 * size(answer) > limit:
                continue
        if answer is not None:
            expected = [entry for entry in expected if entry[0] != chosen] + [(chosen, answer)]
        while sum(size(each) for _, each in expected) > limit:
            expected.pop(0)
            dropped += 1
        assert sum(forgotten) == dropped
        assert len(store) == len(expected)
        assert store.bytes == sum(size(each) for _, each in expected) <= limit


@pytest.mark.parametrize("limit", [1_000_000, 100_000_000])
@pytest.mark.parametrize("length", [8, 60, 1000])
@pytest.mark.parametrize("count", [680, 690, 1360, 1370, 5500])
def test_the_bytes_are_the_memory_that_is_taken(count, length, limit):
    """A table of 683 or 1366 entries is full, and grows with the next one. With the lower limit, answers go again."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = TranslationStore(limit)
        for number in range(count):
            store.put(key(number), bytes(length))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.5 * store.bytes < taken <= store.bytes <= limit
