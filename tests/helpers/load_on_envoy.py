"""Callers of servers behind Envoy: calls, large calls and streams, all the time, and what comes of each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from helpers.envoy import Envoy
from translane_client import Client, RetryPolicy, TranslaneError

SENTENCE = "我有一只猫。"
PAGE = "我有一只猫。他会说三种语言。明天会下雨吗？" * 10  # long enough to be broken off in the middle
# 120 KB: more than Envoy's buffer of a connection. A word without a translation stays as it is.
LARGE = ["x" * 3000] * 40

PATIENCE = 90.0  # [seconds]
_DEADLINE = 60.0  # of a call [seconds]
_CALLERS, _LARGE_CALLERS, _STREAMS = 4, 1, 2
_REST = 0.05  # of a caller after each call: Envoy and what starts have the processors [seconds]


@dataclass(frozen=True)
class Answers:
    """The right answer to each kind of call."""

    sentence: str
    page: str

    @classmethod
    def of(cls, address: str) -> Answers:
        """Those of the server at this address."""
        with Client(address) as client:
            return cls(client.translate(SENTENCE).text, client.translate(PAGE).text)


@dataclass(frozen=True)
class Ended:
    """A call that is over."""

    streamed: bool
    seconds: float
    lost: str
    """Why the call has no right answer; "" if it has one."""


@dataclass(frozen=True)
class Outcome:
    """What became of the calls around an event. `repeated` counts Envoy's repetitions, `continued` the client's."""

    event: str
    calls: int
    streams: int
    repeated: int
    continued: int
    slowest: float  # [seconds]
    lost: tuple[str, ...]
    """Why each lost call is lost."""


class Load:
    """Callers that call through Envoy until they are stopped; a context manager.

    All repetitions of calls are Envoy's: the client has one attempt. A stream whose beginning has arrived is the
    client's to go on with, because Envoy cannot take back what it has passed on.
    """

    def __init__(self, envoy: Envoy, answers: Answers) -> None:
        self._envoy = envoy
        self._stop = threading.Event()
        self._ended: list[Ended] = []
        self._continued = 0
        once = RetryPolicy(attempts=1)
        calls = Client(envoy.address, ca=envoy.authority.file, retry=once)
        streams = Client(envoy.address, ca=envoy.authority.file, sleep=self._pause)
        self._clients = (calls, streams)

        def sentence() -> bool:
            return calls.translate(SENTENCE, timeout=_DEADLINE).text == answers.sentence

        def large() -> bool:
            translations = calls.translate(LARGE, timeout=_DEADLINE, split_sentences=False)
            return [each.text for each in translations] == LARGE

        def page() -> bool:
            stream = streams.translate_stream(PAGE, timeout=_DEADLINE)
            return "".join(stream) == stream.result.text == answers.page

        kinds = [(sentence, False)] * _CALLERS + [(large, False)] * _LARGE_CALLERS + [(page, True)] * _STREAMS
        self._counts = [0] * len(kinds)  # calls that each caller has ended
        self._threads = [
            threading.Thread(target=self._call, args=(number, ask, streamed))
            for number, (ask, streamed) in enumerate(kinds)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        for client in self._clients:
            client.close()

    def around(
        self, event: str, act: Callable[[], object], *, calls: int, until: Callable[[], bool] = lambda: True
    ) -> Outcome:
        """Have an event happen, and say what came of the calls.

        Args:
            event: what it is called.
            act: has it happen.
            calls: how many calls are to end after it, beside all that were open when it happened.
            until: what must have come true, too.

        Raises:
            RuntimeError: the calls do not end, or `until` does not come true, within 90 seconds.
        """
        first, continued, repeated = len(self._ended), self._continued, self._repeated()
        act()
        counts, enough, end = list(self._counts), len(self._ended) + calls, time.monotonic() + PATIENCE
        while not (len(self._ended) >= enough and self._all_beyond(counts) and until()):
            if time.monotonic() > end:
                raise RuntimeError(f"{event}: {len(self._ended) - first} calls have ended, and others go on")
            time.sleep(0.2)
        ended = self._ended[first:]
        return Outcome(
            event,
            calls=len(ended),
            streams=sum(each.streamed for each in ended),
            repeated=self._repeated() - repeated,
            continued=self._continued - continued,
            slowest=max(each.seconds for each in ended),
            lost=tuple(each.lost for each in ended if each.lost),
        )

    def _all_beyond(self, counts: Sequence[int]) -> bool:
        """Whether every caller has ended a call since it had ended so many."""
        return all(now > before for now, before in zip(self._counts, counts, strict=True))

    def _repeated(self) -> int:
        return self._envoy.stats("cluster.translane.")["upstream_rq_retry"]

    def _pause(self, seconds: float) -> None:
        self._continued += 1
        time.sleep(seconds)

    def _call(self, number: int, ask: Callable[[], bool], streamed: bool) -> None:
        while not self._stop.is_set():
            begun, lost = time.monotonic(), ""
            try:
                lost = "" if ask() else "another answer"
            except TranslaneError as error:
                lost = str(error)
            self._ended.append(Ended(streamed, time.monotonic() - begun, lost))
            self._counts[number] += 1
            time.sleep(_REST)
