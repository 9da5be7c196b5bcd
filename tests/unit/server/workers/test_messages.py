"""Messages between the server and its replicas, and what either notices of the other's end."""

import random
import socket

import pytest

from translane_server.engine.loop import ServerGoneError
from translane_server.engine.options import DecodingOptions, RequiredPhrase, Sampling
from translane_server.engine.sequence import (
    AlignedToken,
    CommittedTokens,
    EngineInput,
    EngineOutput,
    Hypothesis,
    Sentence,
    SentenceResult,
    Sequence,
    StepStats,
    Timing,
)
from translane_server.workers.messages import Frames, framed, pack_input, pack_output, unpack_input, unpack_output
from translane_server.workers.worker_process import SocketLink

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
def test_inputs(streamed):
    told = EngineInput([Sequence(12, -3, 17.25, streamed, PLAIN), Sequence(13, 0, 0.0, False, RICH)], [12, 4])
    found = unpack_input(through(pack_input(told), cut=7))
    assert pack_input(found) == pack_input(told)
    assert all(isinstance(each.sentence, Sentence) for each in found.sequences)
    assert found.sequences[1].sentence.options.rows == 3


def test_options_of_one_kind_are_one_object():
    sequences = [Sequence(number, 0, 0.0, False, Sentence([number], DecodingOptions(77))) for number in (4, 5)]
    first, second = (unpack_input(through(pack_input(EngineInput([each], ())))).sequences[0] for each in sequences)
    assert first.sentence.options is second.sentence.options


def test_outputs():
    result = SentenceResult((SCORED, UNSCORED), Timing(0.1, 0.2, 0.3))
    committed = [(5, CommittedTokens((1, 2), ALIGNMENT)), (6, CommittedTokens((1,)))]
    measured = StepStats([(0.5, 12)], [0.5], [(0.001, 32)], [], [0.75])
    output = EngineOutput([(3, result)], [4], committed, measured, [5], is_starved=True)
    found = unpack_output(through(pack_output(output), cut=7))
    assert found == output
    assert isinstance(found.ended[0][1].hypotheses[0].alignment[0], AlignedToken)
    nothing = EngineOutput()
    assert unpack_output(through(pack_output(nothing))) == nothing


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


# A replica's end of its socket.


INPUT = EngineInput([Sequence(4, 0, 1.5, False, Sentence([7, 3], DecodingOptions(9)))], [4, 9])
NOTHING = EngineOutput()


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield ours, SocketLink(theirs)


def test_the_server_goes(ends):
    server, connection = ends
    server.sendall(framed(pack_input(INPUT)))
    server.close()
    assert [pack_input(each) for each in connection.inputs(wait=False)] == [pack_input(INPUT)]
    with pytest.raises(ServerGoneError):
        connection.inputs(wait=False)
    with pytest.raises(ServerGoneError):
        connection.put(NOTHING)


def test_the_server_goes_with_something_unread(ends):
    server, connection = ends
    connection.put(NOTHING)
    server.close()
    with pytest.raises(ServerGoneError):
        connection.inputs(wait=True)
