"""A replica's ledger: what it reads and reports between two steps."""

import socket

import pytest

from translane_server.job import Job
from translane_server.options import DecodingOptions
from translane_server.replica.connected_ledger import ConnectedLedger
from translane_server.replica.messages import Frames, framed, pack_task, unpack_report
from translane_server.replica.seam import Progress
from translane_server.request import FinishReason, Hypothesis, Sentence, SentenceResult, Timing

FOUND = (Hypothesis((5,), None, FinishReason.END_OF_SENTENCE),)
RESULT = SentenceResult(FOUND, Timing(1.0, 2.0, 4.0))


@pytest.fixture
def server():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield ours, ConnectedLedger(theirs, Frames(), encode_tokens=100)


def task(number, on_progress=None):
    return pack_task(number, Job(Sentence([7, 3], DecodingOptions(9), on_progress=on_progress), 0, 1.5))


def finish(ledger, job):
    job.admitted_at, job.encoded_at = 2.5, 4.5
    ledger.finish([(job, FOUND)], now=8.5)


def reports(connection):
    return [unpack_report(message) for message in Frames().feed(connection.recv(1 << 16))]


def test_a_task_is_taken_and_its_result_is_reported(server):
    connection, ledger = server
    connection.sendall(framed([task(4), task(5)]))
    assert ledger.wait(busy=False)
    first, second = ledger.admit(rows=4, reserved=0)
    assert first.submitted_at == 1.5
    finish(ledger, second)
    ledger.recorder.stepped(0.5, 2)
    assert ledger.wait(busy=True)
    (report,) = reports(connection)
    assert report == ([(5, RESULT)], [], [("stepped", 0.5, 2)])


def test_measurements_alone_wait_until_there_is_nothing_to_do(server):
    connection, ledger = server
    ledger.recorder.stepped(0.5, 2)
    connection.setblocking(False)
    assert ledger.wait(busy=True)
    with pytest.raises(BlockingIOError):
        connection.recv(1)
    connection.sendall(framed([task(4)]))  # else it would wait for one
    assert ledger.wait(busy=False)
    assert [report.measurements for report in reports(connection)] == [[("stepped", 0.5, 2)]]


def test_of_progress_only_the_newest_is_reported_and_none_after_the_result(server):
    connection, ledger = server
    connection.sendall(framed([task(4, print), task(5, print)]))
    ledger.wait(busy=False)
    first, second = ledger.admit(rows=4, reserved=0)
    for job in (first, second):
        job.sentence.on_progress((1,), ())
        job.sentence.on_progress((1, 2), ())
    finish(ledger, second)
    ledger.wait(busy=True)
    (report,) = reports(connection)
    assert report.progress == [Progress(4, (1, 2), ())]


def test_a_cancelled_task_is_reported_without_a_result(server):
    connection, ledger = server
    connection.sendall(framed([task(4), 4, 9]))
    ledger.wait(busy=False)
    ledger.wait(busy=True)
    assert [report.ended for report in reports(connection)] == [[(4, None)]]


@pytest.mark.parametrize("finished", [False, True])
def test_it_stops_when_the_server_has_gone_whatever_that_has_sent_before(server, finished):
    connection, ledger = server
    connection.sendall(framed([task(4)]))
    ledger.wait(busy=False)
    (job,) = ledger.admit(rows=4, reserved=0)
    connection.sendall(framed([task(5)]))
    connection.close()
    if finished:
        finish(ledger, job)
    admitted = []
    while ledger.wait(busy=True):
        admitted += ledger.admit(rows=8, reserved=0)
    assert len(admitted) <= 1
    assert ledger.failed is None
