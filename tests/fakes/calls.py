"""Requests to an engine over fake backends, and waiting for what becomes of them."""

from __future__ import annotations

import queue
import random
import threading
import time

from fakes.backend import EOS, OFFSET
from translane_server.errors import CancelledError, QueueFullError
from translane_server.options import DecodingOptions
from translane_server.sentence import Request, Sentence

TIMEOUT = 10


class Call:
    """A request and a way to wait for its answer."""

    def __init__(self, engine, *sources, max_length=32, priority=0):
        self.sources = sources
        self.answers = queue.SimpleQueue()
        self.request = Request(
            [Sentence([*s, EOS], DecodingOptions(max_length)) for s in sources], self.answers.put, priority
        )
        engine.submit(self.request)

    def result(self):
        answer = self.answers.get(timeout=TIMEOUT)
        assert self.answers.empty(), "answered twice"
        if isinstance(answer, Exception):
            raise answer
        return answer

    def tokens(self):
        return [list(sentence.hypotheses[0].token_ids) for sentence in self.result()]

    def expected(self):
        return [[token + OFFSET for token in source] for source in self.sources]


def call_from_many_threads(engine, *, threads, calls, most_sources, priorities=1):
    """Submit requests, and cancel some, from each thread; return what was answered wrongly."""
    mistakes = []

    def caller(seed):
        rng = random.Random(seed)
        for _ in range(calls):
            sources = [[rng.randrange(10, 900)] * rng.randrange(6) for _ in range(rng.randint(1, most_sources))]
            try:
                call = Call(engine, *sources, priority=rng.randrange(priorities))
            except QueueFullError:
                continue
            cancelled = rng.random() < 0.3
            if cancelled:
                engine.cancel(call.request)
            try:
                if call.tokens() != call.expected():
                    mistakes.append(sources)
            except CancelledError:
                if not cancelled:
                    mistakes.append("cancelled by nobody")

    running = [threading.Thread(target=caller, args=(seed,)) for seed in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    return mistakes


def wait_until(condition):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, "did not happen"
        time.sleep(0.001)
