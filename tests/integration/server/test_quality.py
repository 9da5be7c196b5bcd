"""The estimated quality through the socket. The fake backend's token at position p has log-probability -(p + 1) / 8."""

import math

import pytest

from fakes.serving import make_model, serving
from translane.v1 import translation_pb2 as pb
from translane_server.core.quality_estimate import Calibration, estimated_quality

CALIBRATION = Calibration(1.5, -0.25)
ESTIMATION = {"weight": 1.5, "bias": -0.25, "fitted": 10, "tested": 10, "correlation": 0.5, "mean_error": 0.2}


def expected(start, end, calibration=CALIBRATION):
    """The estimate for the tokens at the positions `start` … `end` - 1."""
    return pytest.approx(estimated_quality([-(place + 1) / 8 for place in range(start, end)], calibration), rel=1e-5)


@pytest.fixture
def model():
    return make_model(quality_estimation=ESTIMATION)


async def translations(running, *texts, **options):
    request = pb.TranslateRequest(texts=texts, options=pb.DecodingOptions(**options))
    return (await running.stub.Translate(request, timeout=10)).translations


async def hypotheses(running, *texts, **options):
    return [each for found in await translations(running, *texts, **options) for each in found.hypotheses]


@pytest.mark.parametrize(
    ("text", "options", "positions", "score"),
    [
        ("abc", {}, (0, 4), None),
        ("abc", {"return_token_scores": True}, (0, 4), -10 / 8),
        ("abc", {"top_k": 1}, (0, 4), -10 / 8),
        ("abcd", {"target_prefix": "ab"}, (2, 5), None),  # the tokens of a prefix do not count
    ],
)
async def test_it_is_there_if_it_is_asked_for(model, text, options, positions, score):
    async with serving(model=model) as running:
        (plain,) = await hypotheses(running, text, **options)
        assert not plain.HasField("quality")
        (asked,) = await hypotheses(running, text, return_quality=True, **options)
        assert asked.quality == expected(*positions)
        assert (asked.score if asked.HasField("score") else None) == (score and pytest.approx(score))
        asked.ClearField("quality")
        assert asked == plain


async def test_a_bundle_without_calibration_gives_the_mean_probability():
    async with serving() as running:
        (found,) = await hypotheses(running, "abc", return_quality=True)
        mean = sum(math.exp(-(place + 1) / 8) for place in range(4)) / 4
        assert found.quality == pytest.approx(mean, rel=1e-5)


async def test_a_stream_ends_with_it(model):
    async with serving(model=model) as running:
        options = pb.DecodingOptions(return_quality=True)
        call = running.stub.TranslateStream(pb.TranslateStreamRequest(text="abc", options=options), timeout=10)
        messages = [message async for message in call]
        assert messages[-1].hypothesis.quality == expected(0, 4)
        assert not messages[-1].hypothesis.HasField("score")


async def test_a_text_of_sentences_has_their_mean_by_length(model):
    async with serving(model=model) as running:
        (found,) = await translations(running, "Abcdefg. Hi.", return_quality=True, split_sentences=True)
        (whole,) = found.hypotheses
        parts = await translations(running, "Abcdefg.", "Hi.", return_quality=True)
        lengths = [part.source_tokens for part in parts]
        assert found.source_tokens == sum(lengths)
        qualities = [part.hypotheses[0].quality for part in parts]
        mean = sum(quality * length for quality, length in zip(qualities, lengths, strict=True)) / sum(lengths)
        assert whole.quality == pytest.approx(mean, rel=1e-5)
        assert not whole.HasField("score")


async def test_nothing_can_be_wrong_in_an_empty_translation(model):
    async with serving(model=model) as running:
        for options in ({}, {"split_sentences": True}, {"beam_size": 2}):
            (found,) = await hypotheses(running, " ", return_quality=True, **options)
            assert found.quality == 1
            assert found.HasField("score") == ("beam_size" in options)
        (found,) = await hypotheses(running, " ")
        assert not found.HasField("quality")
