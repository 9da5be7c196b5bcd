"""Replicas that decode, on threads and behind real sockets, are one engine to their callers."""

import asyncio
import errno
import os
import random
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import patch

import pytest

from fakes.backend import EOS, OFFSET, FakeBackend
from fakes.replicas import ThreadHost, fake_replica, fake_setup
from helpers.http_calls import until
from translane_server.core.errors import BundleError, StartupError
from translane_server.engine.loop import ServerGoneError
from translane_server.engine.options import DecodingOptions
from translane_server.engine.sequence import EngineInput, EngineOutput, Sentence, Sequence
from translane_server.workers.connection import WorkerConnection, _cpu_ticks
from translane_server.workers.dispatcher import Dispatcher
from translane_server.workers.messages import Frames, Ready, framed, of_input, of_object, of_output, read_input
from translane_server.workers.worker import Worker
from translane_server.workers.worker_process import SocketLink


async def test_many_are_given_up_and_the_others_get_their_own():
    backends, pick = [FakeBackend(rows=8), FakeBackend(rows=8)], random.Random(1)
    engine = Dispatcher([fake_replica(each, number=number) for number, each in enumerate(backends)], waiting_limit=200)
    await engine.start()

    async def decoded(sources):
        """The tokens of each source."""
        sentences = [Sentence([*source, EOS], DecodingOptions(32)) for source in sources]
        results = await engine.decode(sentences, pick.randrange(3))
        return [list(result.hypotheses[0].token_ids) for result in results]

    requests = [[[pick.randrange(10, 900)] * pick.randrange(1, 9) for _ in range(3)] for _ in range(30)]
    for _ in range(5):
        tasks = [asyncio.create_task(decoded(sources)) for sources in requests]
        await asyncio.sleep(pick.random() / 100)
        given_up = [pick.random() < 0.4 for _ in tasks]
        for task, is_given_up in zip(tasks, given_up, strict=True):
            if is_given_up:
                task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome, sources, is_given_up in zip(outcomes, requests, given_up, strict=True):
            expected = [[token + OFFSET for token in source] for source in sources]
            assert outcome == expected or (is_given_up and isinstance(outcome, asyncio.CancelledError))
        await until(lambda: engine.active_rows == 0)
        assert engine.waiting == 0
    await engine.stop()
    assert all(backend.closed for backend in backends)


async def test_what_keeps_a_replica_from_starting_is_told():
    backend = FakeBackend(rows=8)

    def refuse():
        time.sleep(0.2)  # the other one is ready by then
        raise BundleError("model bundle x: its graphs do not run")

    refusing = Worker(lambda: WorkerConnection(SETUP, ThreadHost(refuse)))
    engine = Dispatcher([fake_replica(backend), refusing], waiting_limit=9)
    with pytest.raises(BundleError, match="model bundle x: its graphs do not run"):
        await engine.start()
    assert backend.closed, "the other one is stopped"


async def test_a_replica_that_is_stopped_before_it_is_launched_is_not_launched():
    replica = WorkerConnection(SETUP, NoHost())
    starting = asyncio.create_task(replica.start(never, never))
    await asyncio.sleep(0)
    await replica.stop()
    with pytest.raises(StartupError, match="was stopped before it started"):
        await starting


SETUP = fake_setup(rows=8)


class NoHost:
    """Has no room for a replica."""

    pid = -1

    def launch(self, connection):
        raise OSError(errno.EAGAIN, "whatever")

    def end(self, *, at_once):
        raise AssertionError("nothing was started")


async def test_a_replica_that_cannot_be_started_is_one_sentence():
    engine = Dispatcher([Worker(lambda: WorkerConnection(SETUP, NoHost()))], waiting_limit=9)
    with pytest.raises(StartupError, match=r"^replica 0 cannot be started: Resource temporarily unavailable$"):
        await engine.start()


class ObservedHost:
    """Is a replica that does nothing; tests read what it is sent."""

    pid = -1

    def launch(self, connection):
        self.connection = connection.dup()
        self.connection.settimeout(10)
        self._frames = Frames()
        self.connection.sendall(of_object(Ready()))

    def end(self, *, at_once):
        self.connection.close()
        return "is done"

    def messages(self, number):
        messages: list[bytearray] = []
        while len(messages) < number:
            messages += self._frames.feed(self.connection.recv(1 << 16))
        return messages


def never(*_news):
    raise AssertionError("the worker is there, and silent")


def sequence(number):
    return Sequence(number, 0, 0.0, False, Sentence([7, EOS], DecodingOptions(9)))


async def test_what_a_turn_of_the_event_loop_has_is_one_message_and_orders_after_an_output_wait_for_no_turn():
    host, loop = ObservedHost(), asyncio.get_running_loop()
    sent = loop.create_future()

    def look():
        try:
            sent.set_result(host.connection.recv(1 << 16))
        except BlockingIOError as error:
            sent.set_exception(error)

    def send_two_more(connection, _output):
        loop.call_soon(look)
        for number in (8, 9):
            connection.submit(sequence(number))

    replica = WorkerConnection(SETUP, host)
    await replica.start(send_two_more, never)
    await asyncio.to_thread(host.messages, 1)  # the setup
    replica.submit(sequence(1))
    replica.cancel(1)
    replica.submit(sequence(2))
    messages = await asyncio.to_thread(host.messages, 1)
    host.connection.setblocking(False)
    host.connection.sendall(of_output(EngineOutput()))
    messages += Frames().feed(await sent)
    told = [([each.number for each in inputs.sequences], inputs.cancelled) for inputs in map(read_input, messages)]
    assert told == [([1, 2], [1]), ([8, 9], [])]
    await replica.stop()


async def test_nothing_is_launched_later_for_a_replica_that_got_no_thread():
    """An executor that cannot start a thread raises, and yet runs the call when another thread is free."""
    with ThreadPoolExecutor(2) as executor:
        asyncio.get_running_loop().set_default_executor(executor)
        busy = threading.Event()
        executor.submit(busy.wait, 10)
        host = ObservedHost()
        replica = WorkerConnection(SETUP, host)
        no_thread = RuntimeError("can't start new thread")
        with patch.object(threading.Thread, "start", side_effect=no_thread), pytest.raises(RuntimeError):
            await replica.start(never, never)
        await replica.stop()
        busy.set()
    assert not hasattr(host, "connection")


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


# What a replica notices of the server's end.


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(5)
        yield ours, SocketLink(theirs)


def test_the_server_goes(ends):
    server, link = ends
    server.sendall(of_input(EngineInput([], [4, 9])))
    server.close()
    assert link.inputs(wait=False) == [EngineInput([], [4, 9])]
    with pytest.raises(ServerGoneError):
        link.inputs(wait=False)
    with pytest.raises(ServerGoneError):
        link.put(EngineOutput())


def test_the_server_goes_with_something_unread(ends):
    server, link = ends
    link.put(EngineOutput())
    server.close()
    with pytest.raises(ServerGoneError):
        link.inputs(wait=True)


def test_the_processor_time_of_a_process_is_that_of_the_system():
    """A replica that computes gets longer than one that hangs."""
    before, begun = _cpu_ticks(os.getpid()), time.process_time()
    while time.process_time() < begun + 0.1:
        pass
    assert _cpu_ticks(os.getpid()) - before >= 0.05 * os.sysconf("SC_CLK_TCK")
    assert _cpu_ticks(-1) == 0
