"""What the server and its replicas tell each other arrives as it was sent, however it is cut."""

import random

import pytest

from translane_server.job import Job
from translane_server.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.replica.messages import (
    Frames,
    framed,
    pack_end,
    pack_report,
    pack_task,
    unpack_report,
    unpack_task,
)
from translane_server.replica.seam import Progress, Report
from translane_server.request import AlignedToken, FinishReason, Hypothesis, Sentence, SentenceResult, Timing

ALIGNMENT = (AlignedToken(0, 0.5), AlignedToken(3, 0.25))
PLAIN = Sentence([5, 6, 3], DecodingOptions(9))
RICH = Sentence(
    [5, 3],
    DecodingOptions(9, sampling=Sampling(7, 0.5, 3, 0.9), num_hypotheses=3, suppressed_phrases=(b"a", b"\xff")),
    forced_ids=(1, 2),
    counted_ids=1,
    word_follows=True,
    required_phrases=(RequiredPhrase(b"term", (4, 5)),),
)
SCORED = Hypothesis((1, 2), -0.125, FinishReason.END_OF_SENTENCE, (-0.1, -0.2, -0.3), ALIGNMENT)
UNSCORED = Hypothesis((), None, FinishReason.MAX_LENGTH)


def through(message, cut=1 << 20):
    frames, data, received = Frames(), framed(message), []
    for start in range(0, len(data), cut):
        received += frames.feed(data[start : start + cut])
    (message,) = received
    return message


def sent(number, sentence, priority=0, submitted_at=0.0, on_progress=None):
    return unpack_task(through(pack_task(number, Job(sentence, priority, submitted_at))), on_progress)


@pytest.mark.parametrize("sentence", [PLAIN, RICH])
def test_tasks(sentence):
    task = sent(12, sentence, -3, 17.25)
    assert (task.number, task.sentence, task.priority, task.submitted_at) == (12, sentence, -3, 17.25)
    assert (task.rows, task.source_length) == (sentence.options.rows, len(sentence.source_ids))
    assert not task.cancelled


def test_whether_somebody_listens_travels_in_place_of_who():
    heard = []
    task = sent(
        12, Sentence([5, 3], DecodingOptions(9), on_progress=print), on_progress=lambda *news: heard.append(news)
    )
    task.sentence.on_progress((7,), ())
    assert heard == [(12, (7,), ())]


def test_options_of_one_kind_are_one_object():
    first, second = (sent(n, Sentence([n], DecodingOptions(77))) for n in (4, 5))
    assert first.sentence.options is second.sentence.options


def test_reports():
    result = SentenceResult((SCORED, UNSCORED), Timing(0.1, 0.2, 0.3))
    progress = [Progress(5, (1, 2, 3), ALIGNMENT), Progress(6, (1,), ())]
    measurements = [("stepped", 0.001, 32), ("admitted", 0.5)]
    ended = [pack_end(3, *result), pack_end(4, None, Timing(0, 0, 0))]
    packed = pack_report(ended, progress, measurements)
    assert unpack_report(through(packed, cut=7)) == Report([(3, result), (4, None)], progress, measurements)
    assert unpack_report(through(pack_report([], [], []))) == Report([], [], [])


@pytest.mark.parametrize("seed", range(5))
def test_messages_are_whole_and_in_order_however_they_are_cut(seed):
    pick = random.Random(seed)
    messages = [bytes(pick.randrange(256) for _ in range(pick.choice([0, 1, 30, 3000]))) for _ in range(50)]
    data, received, frames = b"".join(map(framed, messages)), [], Frames()
    while data:
        size = pick.choice([1, 2, 3, 5, 100, 5000])
        received += frames.feed(data[:size])
        data = data[size:]
    assert received == messages
