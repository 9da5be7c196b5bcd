"""Messages to plain types and back: no field is lost on the way; and how far long work is."""

import io
import os
import re
import select
from typing import Any

import pytest

from translane import conversions
from translane.progress import Progress
from translane.results import Delta, Scores, StreamedTranslation, Timing, Translations
from translane.v1 import translation_pb2 as pb

NO_TIME = Timing(0, 0, 0, 0)


def filled(message: Any) -> Any:
    """The message with a value in each of its fields, down to the last."""
    for number, field in enumerate(message.DESCRIPTOR.fields, start=1):
        if field.message_type and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["m"] = f"text {number}"
            continue
        if field.message_type:
            value = getattr(message, field.name)
            filled(value.add() if field.is_repeated else value)
            continue
        values = {field.CPPTYPE_STRING: f"text {number}", field.CPPTYPE_BOOL: True, field.CPPTYPE_ENUM: 1}
        value = values.get(field.cpp_type, number)
        if field.is_repeated:
            getattr(message, field.name).extend([value, value])
        else:
            setattr(message, field.name, value)
    return message


def test_options_come_back_and_one_that_is_set_to_nothing_is_set():
    messages = [filled(pb.DecodingOptions()), pb.DecodingOptions()]
    for field in pb.DecodingOptions.DESCRIPTOR.fields:
        if not field.is_repeated:
            messages.append(pb.DecodingOptions())
            setattr(messages[-1], field.name, type(getattr(messages[-1], field.name))())
    for message in messages:
        assert conversions.options_message(conversions.options_of(message)) == message


@pytest.mark.parametrize("several", [False, True])
def test_translations_come_back(several):
    message = filled(pb.TranslateResponse())
    message.timing.queue.nanos = 999_999_999
    if several:  # two models one after the other, or a model for each text
        message.model = ""
    else:
        del message.translations[0].models[:]
    (translation,) = conversions.translations_of(message)
    models = () if several else translation.models
    plain = Translations([translation], models, translation.timing or NO_TIME, translation.versions)
    assert conversions.translate_response(plain) == message


def test_what_is_not_there_stays_unset():
    message = pb.TranslateResponse(translations=[pb.Translation(hypotheses=[pb.Hypothesis(text="x")])], model="m")
    (translation,) = conversions.translations_of(message)
    response = conversions.translate_response(Translations([translation], ("m",), NO_TIME))
    assert response.translations == message.translations
    assert {field.name for field, _ in response.timing.ListFields()} == {"queue", "encode", "decode", "total"}


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 0.123456789, 0.9999999999, 1.0, 59.5, 86400.25])
def test_durations_are_told_to_the_nanosecond(seconds):
    duration = conversions.translate_response(Translations([], (), Timing(0, 0, 0, seconds))).timing.total
    assert duration.ToNanoseconds() == round(seconds * 1e9)
    assert 0 <= duration.nanos < 1_000_000_000


def test_the_end_of_a_stream_comes_back():
    message = filled(pb.TranslateStreamResponse())
    end = StreamedTranslation(
        conversions.hypothesis_of(message.hypothesis),
        conversions.timing_of(message),
        conversions.treatment_of(message),
        tuple(message.models),
        dict(message.model_versions),
    )
    assert conversions.stream_response(Delta(message.text_delta, end)) == message
    assert conversions.stream_response(Delta("x")) == pb.TranslateStreamResponse(text_delta="x")


def test_scores_come_back():
    message = filled(pb.ScoreResponse())
    (score,) = conversions.scores_of(message)
    scores = Scores([score], score.model, score.timing or NO_TIME, score.versions)
    assert conversions.score_response(scores) == message


def test_models_and_limits_come_back():
    message = filled(pb.ListModelsResponse())
    message.models[0].decoding_defaults.CopyFrom(pb.DecodingOptions(beam_size=4, length_penalty=0.5))
    assert conversions.list_models_response(conversions.server_info_of(message)) == message


# How far long work is, on a real terminal and elsewhere.


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("translane.progress.time.monotonic", lambda: now[0])
    return now


def drawn(clock: list[float], *, erase: bool = False, hung_up: bool = False) -> str:
    """What a terminal gets of work on a hundred sentences."""
    ours, theirs = os.openpty()
    terminal = os.fdopen(theirs, "w", encoding="utf-8")
    progress = Progress("sentences", total=100, stream=terminal, say=pytest.fail)
    if hung_up:
        os.close(ours)
    read = b""
    for _ in range(100):
        clock[0] += 1 / 16
        progress.add(1)
        if not hung_up:
            read += os.read(ours, 1 << 16) if select.select([ours], [], [], 0)[0] else b""
    progress.close(erase=erase)
    if hung_up:
        with pytest.raises(OSError, match="Input/output error"):
            terminal.close()
        return ""
    read += os.read(ours, 1 << 16)
    terminal.close()
    os.close(ours)
    return read.decode()


def test_a_terminal_has_a_bar_of_one_line(clock):
    text = drawn(clock)
    assert text.count("\n") == 1
    states = [state.removesuffix("\x1b[K") for state in text.strip().split("\r")]
    assert f"51 sentences  16/s   51% [{'#' * 12}{' ' * 12}]  0:03 left" in states
    assert states[-1] == f"100 sentences  16/s  100% [{'#' * 24}]  0:00 left"
    assert len(states) == 51  # every other one, and the last


def test_a_bar_can_be_taken_away(clock):
    assert re.search(r"\r\x1b\[K$", drawn(clock, erase=True))


def test_work_outlives_its_terminal(clock):
    drawn(clock, hung_up=True)


def test_elsewhere_there_is_a_line_now_and_then(clock):
    lines: list[str] = []
    note = "; 9.0% duplicates"
    progress = Progress("sources", total=10_000, done=1_000, stream=io.StringIO(), say=lines.append, note=note)
    for second in range(1, 31):
        clock[0] = float(second)
        progress.add(100)
    progress.close()
    assert lines == [
        "2,000 of 10,000 sources, 100 a second, 1:20 left; 9.0% duplicates",
        "3,000 of 10,000 sources, 100 a second, 1:10 left; 9.0% duplicates",
        "4,000 of 10,000 sources, 100 a second, 1:00 left; 9.0% duplicates",
    ]
    assert progress.seconds == 30.0
    lines.clear()
    reading = Progress("records read", say=lines.append)
    of_bytes = Progress("sentences", total=1_000, say=lines.append)
    clock[0] += 3600
    reading.add(0)
    of_bytes.add(7, 500)
    assert lines == ["0 records read, 0 a second", "7 sentences, 0 a second, 1:00:00 left"]
