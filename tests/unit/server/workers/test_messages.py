"""What the server and its replicas tell each other arrives as it was sent, however it is cut."""

import random

import pytest

from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import (
    AlignedToken,
    CertainTokens,
    Hypothesis,
    Measurements,
    Sentence,
    SentenceResult,
    Task,
    Timing,
)
from translane_server.workers.interface import Report
from translane_server.workers.messages import (
    Frames,
    Orders,
    framed,
    pack_orders,
    pack_report,
    unpack_orders,
    unpack_report,
)

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
SCORED = Hypothesis((1, 2), -0.125, True, (-0.1, -0.2, -0.3), ALIGNMENT)
UNSCORED = Hypothesis((), None, False)


def through(message, cut=1 << 20):
    frames, data, received = Frames(), framed(message), []
    for start in range(0, len(data), cut):
        received += frames.feed(data[start : start + cut])
    (message,) = received
    return message


@pytest.mark.parametrize("streamed", [False, True])
def test_orders(streamed):
    orders = Orders([Task(12, -3, 17.25, streamed, PLAIN), Task(13, 0, 0.0, False, RICH)], [12, 4])
    found = unpack_orders(through(pack_orders(orders), cut=7))
    assert found == orders
    assert all(isinstance(task.sentence, Sentence) for task in found.tasks)
    assert found.tasks[1].rows == 3


def test_options_of_one_kind_are_one_object():
    tasks = [Task(number, 0, 0.0, False, Sentence([number], DecodingOptions(77))) for number in (4, 5)]
    first, second = (unpack_orders(through(pack_orders(Orders([task], ())))).tasks[0] for task in tasks)
    assert first.sentence.options is second.sentence.options


def test_reports():
    result = SentenceResult((SCORED, UNSCORED), Timing(0.1, 0.2, 0.3))
    certain = [(5, CertainTokens((1, 2), ALIGNMENT)), (6, CertainTokens((1,)))]
    measured = Measurements([(0.5, 12)], [0.5], [(0.001, 32)], [], [0.75])
    report = Report([(3, result)], [4], certain, measured)
    found = unpack_report(through(pack_report(report), cut=7))
    assert found == report
    assert isinstance(found.ended[0][1].hypotheses[0].alignment[0], AlignedToken)
    nothing = Report([], [], [], Measurements.none())
    assert unpack_report(through(pack_report(nothing))) == nothing


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
