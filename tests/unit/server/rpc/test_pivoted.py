"""The messages of the two steps of a pivoted request."""

from types import SimpleNamespace
from typing import Any

import pytest

from translane.v1 import translation_pb2 as pb
from translane_server.errors import FieldViolation, InvalidRequestError
from translane_server.models.pivots import Pivot
from translane_server.rpc.pivoted import (
    add_first_step,
    check_pivoted,
    first_step,
    of_the_text_between,
    renamed,
    second_step,
)


def model(name: str) -> Any:
    return SimpleNamespace(name=name)


PIVOT = Pivot(model("de-en"), model("en-zh"), "en")
CUT = pb.FINISH_REASON_MAX_LENGTH


def request(**options):
    return pb.TranslateRequest(
        texts=["a", "b"],
        source_language="de",
        target_language="zh",
        priority=3,
        format=pb.FORMAT_HTML,
        options=pb.DecodingOptions(**options),
    )


def answer(*texts):
    return pb.TranslateResponse(translations=[pb.Translation(hypotheses=[pb.Hypothesis(text=text)]) for text in texts])


def test_the_first_step_goes_to_the_first_model_with_the_options_of_the_source():
    first = first_step(request(beam_size=3, preserve=["x+"], target_prefix="p", max_length=4), PIVOT)
    assert (first.model, first.source_language, first.target_language) == ("de-en", "de", "en")
    assert (list(first.texts), first.priority, first.format) == (["a", "b"], 3, pb.FORMAT_HTML)
    assert first.options == pb.DecodingOptions(beam_size=3, preserve=["x+"])


@pytest.mark.parametrize("wanted", [True, False])
def test_both_steps_have_shortlists_or_neither(wanted: bool):
    asked = request(use_shortlist=wanted)
    assert first_step(asked, PIVOT).options == second_step(asked, PIVOT, answer("c", "d")).options == asked.options


def test_the_second_step_translates_the_translations_with_all_options():
    asked = request(beam_size=3, target_prefix="p")
    second = second_step(asked, PIVOT, answer("c", "d"))
    assert (second.model, second.source_language, second.target_language) == ("en-zh", "en", "zh")
    assert (list(second.texts), second.options) == (["c", "d"], asked.options)
    assert list(asked.texts) == ["a", "b"]


def test_the_second_step_of_a_stream_has_one_text():
    asked = pb.TranslateStreamRequest(text="a", source_language="de", target_language="zh")
    assert second_step(asked, PIVOT, answer("c")).text == "c"


@pytest.mark.parametrize("options", [{"terminology": [pb.Term(source="a", target="b")]}, {"glossaries": ["g"]}])
def test_terms_are_refused_because_no_step_sees_both_sides(options):
    with pytest.raises(InvalidRequestError, match="cannot be kept through a third language, en: the second model"):
        check_pivoted(pb.DecodingOptions(**options), PIVOT)


@pytest.mark.parametrize("reason", [pb.FINISH_REASON_END_OF_SENTENCE, CUT])
def test_a_translation_tells_of_both_steps(reason):
    first = pb.Translation(hypotheses=[pb.Hypothesis(finish_reason=reason)])
    first.treatment.sentences, first.treatment.cut_sentences, first.treatment.preserved = 2, 1, 4
    second = pb.Translation(hypotheses=[pb.Hypothesis(finish_reason=pb.FINISH_REASON_END_OF_SENTENCE)] * 2)
    second.treatment.cut_sentences, second.treatment.preserved = 5, 1
    add_first_step(second.hypotheses, second.treatment, first, PIVOT)
    assert {each.finish_reason for each in second.hypotheses} == {reason}
    assert second.treatment == pb.Treatment(pivot_language="en", sentences=2, cut_sentences=6, preserved=4)


def test_errors_of_the_second_step_name_the_text_between():
    wrong = [FieldViolation("texts[1]", "is long"), FieldViolation("options.seed", "is odd")]
    with pytest.raises(InvalidRequestError) as caught, of_the_text_between(PIVOT):
        raise InvalidRequestError(*wrong)
    assert list(caught.value.violations) == [
        FieldViolation("texts[1]", "its translation into en is long"),
        wrong[1],
    ]


def test_fields_of_a_step_are_renamed():
    with pytest.raises(InvalidRequestError) as caught, renamed(str.upper):
        raise InvalidRequestError(FieldViolation("text", "is long"))
    assert [each.field for each in caught.value.violations] == ["TEXT"]
