"""What a server says besides translations: the treatment of texts, quality, and the defaults of models."""

from __future__ import annotations

from typing import cast

import pytest
from unit.client.fake_server import FakeServer, answer

from translane.v1 import translation_pb2 as pb
from translane_client import Format, TermOutcome, TermReport, Treatment

TREATMENT = pb.Treatment(
    sentences=3,
    cut_sentences=1,
    preserved=2,
    terms=[
        pb.TermReport(source="猫", target="kitten", outcome=pb.TERM_OUTCOME_APPLIED, glossary="cats"),
        pb.TermReport(source="狗", target="🐶", outcome=cast(pb.TermOutcome, 99)),
    ],
    source_language="zh",
)
EXPECTED = Treatment(
    sentences=3,
    cut_sentences=1,
    preserved=2,
    terms=(
        TermReport("猫", "kitten", TermOutcome.APPLIED, "cats"),
        TermReport("狗", "🐶", TermOutcome.UNSPECIFIED),
    ),
    source_language="zh",
    pivot_language=None,
)


def test_a_translation_has_its_treatment_and_its_quality(server: FakeServer, connect):
    def behave(request, context):
        response = answer(request)
        response.translations[1].treatment.CopyFrom(TREATMENT)
        response.translations[1].hypotheses[0].quality = 0.25
        return response

    server.always = behave
    plain, treated = connect(server.address).translate(["a", "b"], return_quality=True)
    assert (plain.treatment, plain.hypotheses[0].quality) == (None, None)
    assert (treated.treatment, treated.hypotheses[0].quality) == (EXPECTED, 0.25)
    assert server.requests[0].options.return_quality


def test_a_stream_ends_with_its_treatment(server: FakeServer, connect):
    def behave(request, context):
        yield pb.TranslateStreamResponse(text_delta="a")
        yield pb.TranslateStreamResponse(hypothesis=pb.Hypothesis(text="a", quality=0.5), treatment=TREATMENT)

    server.always = behave
    with connect(server.address).translate_stream("a") as stream:
        assert list(stream) == ["a"]
    assert stream.result.treatment == EXPECTED
    assert stream.result.hypothesis.quality == 0.5


def test_every_outcome_of_the_protocol_is_known():
    numbers = set(pb.TermOutcome.values()) - {pb.TERM_OUTCOME_UNSPECIFIED}
    known = {pb.TermOutcome.Name(number).removeprefix("TERM_OUTCOME_").lower() for number in numbers}
    assert known | {"unspecified"} == {outcome.value for outcome in TermOutcome}


def test_a_model_has_its_defaults_and_its_glossaries(server: FakeServer, connect):
    server.decoding_defaults = pb.DecodingOptions(
        beam_size=6, length_penalty=0.6, early_stopping=True, suppressed_phrases=["a"]
    )
    server.glossaries = ["cats"]
    (model,) = connect(server.address).models()
    assert model.decoding_defaults == {
        "beam_size": 6,
        "length_penalty": 0.6,
        "early_stopping": True,
        "suppressed_phrases": ["a"],
    }
    assert model.glossaries == ("cats",)
    assert {model: 1}  # a model can be a key


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ("text", pb.FORMAT_UNSPECIFIED),
        ("html", pb.FORMAT_HTML),
        (Format.MARKDOWN, pb.FORMAT_MARKDOWN),
        (Format.XLIFF, pb.FORMAT_XLIFF),
    ],
)
def test_the_format_travels(server: FakeServer, connect, given, sent):
    client = connect(server.address)
    client.translate("a", format=given)
    client.translate(["a", "b"], format=given)
    assert len(list(client.translate_iter(["a"], format=given))) == 1
    with client.translate_stream("a", format=given) as stream:
        assert list(stream)
    assert [request.format for request in server.requests] == [sent] * 4


def test_a_wrong_format_names_the_choices(server: FakeServer, connect):
    client = connect(server.address)
    for call in (client.translate, client.translate_stream, lambda *a, **s: list(client.translate_iter(["a"], **s))):
        with pytest.raises(ValueError, match="format must be one of text, html, markdown, xliff, not 'docx'"):
            call("a", format="docx")
    assert server.requests == []
