"""The simulated dispatcher sends the same sentences to the same replicas as the server's own."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from translane_plan.profile import Length
from translane_plan.simulation.dispatcher import Dispatcher as SimulatedDispatcher
from translane_server.dispatch.dispatcher import Dispatcher
from translane_server.dispatch.submission import Submission
from translane_server.errors import QueueFullError
from translane_server.measurements import Measurements
from translane_server.options import DecodingOptions
from translane_server.replica.interface import Report
from translane_server.sentence import Hypothesis, Sentence, SentenceResult, Timing

OPTIONS = DecodingOptions(max_length=256, scores=False)
RESULT = SentenceResult((Hypothesis((1,), None, False),), Timing(0, 0, 0))


class Holder:
    """A replica that holds what it is sent."""

    is_responsive = True

    def __init__(self, rows):
        self.rows = rows
        self.numbers = []  # of tasks that have not ended
        self.sent = []

    def submit(self, task):
        self.numbers.append(task.number)
        self.sent.append((task.number, len(task.sentence.source_ids)))

    async def start(self, listener):
        self.listener = listener

    async def stop(self):
        pass

    def cancel(self, number):
        pass

    def take(self, count):
        """The oldest tasks, which end now."""
        ended, self.numbers = self.numbers[:count], self.numbers[count:]
        return ended


async def served(rows, limit, events):
    """What each replica of the server's dispatcher is sent, and which requests are refused."""
    replicas = [Holder(each) for each in rows]
    dispatcher = Dispatcher(replicas, waiting_limit=limit)
    await dispatcher.start()
    tasks, refused = [], []
    for number, (kind, value) in enumerate(events):
        if kind == "request":
            sentences = [Sentence([5] * length, OPTIONS) for length in value]
            try:
                dispatcher.check_room(len(sentences), str(number))
            except QueueFullError:
                refused.append(number)
                continue
            tasks.append(asyncio.create_task(dispatcher.decode(sentences, 0, str(number))))
            await asyncio.sleep(0)
        else:
            replica = replicas[value[0] % len(replicas)]
            ended = [(each, RESULT) for each in replica.take(value[1])]
            replica.listener.reported(replica, Report(ended, (), (), Measurements.none()))
    sent = [list(replica.sent) for replica in replicas]  # before the requests end: then others get their places
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return sent, refused


def simulated(rows, limit, events):
    replicas: list[Any] = [Holder(each) for each in rows]
    answered: list[Submission] = []
    dispatcher = SimulatedDispatcher(replicas, waiting_limit=limit, targets={}, answered=answered.append)
    refused = []
    for number, (kind, value) in enumerate(events):
        if kind == "request":
            request = Submission(len(value), streamed=False)
            if not dispatcher.accept(request, [Length(length, 1) for length in value], str(number)):
                refused.append(number)
        else:
            place = value[0] % len(replicas)
            dispatcher.ended(place, replicas[place].take(value[1]))
    return [replica.sent for replica in replicas], refused


REQUEST = st.tuples(st.just("request"), st.lists(st.integers(1, 200), min_size=1, max_size=6))
END = st.tuples(st.just("end"), st.tuples(st.integers(0, 3), st.integers(0, 4)))


@settings(max_examples=60)
@given(
    rows=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    limit=st.integers(6, 30),
    events=st.lists(st.one_of(REQUEST, END), max_size=60),
)
def test_replicas_get_the_same_sentences_in_the_same_order(rows, limit, events):
    assert simulated(rows, limit, events) == asyncio.run(served(rows, limit, events))


def test_a_request_is_answered_once_with_its_last_sentence():
    replica: Any = Holder(2)
    answered: list[Submission] = []
    dispatcher = SimulatedDispatcher([replica], waiting_limit=10, targets={}, answered=answered.append)
    request = Submission(3, streamed=False)
    assert dispatcher.accept(request, [Length(3, 5)] * 3)
    dispatcher.ended(0, replica.take(2))
    assert answered == []
    dispatcher.ended(0, replica.take(1))
    assert answered == [request]
