"""Four servers behind a real Envoy under load: one is killed, one hangs, one drains, and a fifth joins.

The servers share a name, as the pods of a headless service in Kubernetes do, and Envoy asks a name server for their
addresses. Envoy's files are those of deploy/envoy, but for the address of the name server and the limits of rates.
Callers make calls, large calls and streams all the time, and note what comes of each.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from helpers.envoy import NO_LIMIT, Envoy, running_envoy
from helpers.name_server import NameServer
from helpers.ports import free_port
from helpers.reliability.server_process import ServerProcess
from translane import Client, RetryPolicy, TranslaneError

CALLS = 60  # after each event

_SHARED = 150  # calls whose shares of the servers are measured

_NAME = "translane.test"
_ADDRESSES = [f"127.0.0.{number}" for number in range(11, 16)]
_FLAGS = ("--threads=1", "--replicas=1", "--max-batch-size=8")  # each server has the share of one core
_TRANSLATED = 'grpc_server_handled_total{grpc_code="OK",grpc_method="Translate'
_RESOLVER = "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig"

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


@dataclass(frozen=True)
class Run:
    """What the events led to."""

    outcomes: Sequence[Outcome]
    shares: Sequence[float]
    """The parts of the calls that the four servers had before the first event."""
    silent_connections: int
    """Connections that Envoy gave up because a ping had no answer."""


def run(folder: Path) -> Run:
    """Have all events happen one after the other.

    Raises:
        RuntimeError: a server or Envoy does not start, or calls do not end.
    """
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(*_ADDRESSES[:4]))
        fleet = _Fleet(folder, stack)
        servers = [fleet.start(address) for address in _ADDRESSES[:4]]
        killed, hanging, draining, _ = servers
        for server in servers:
            server.wait_until_it_serves()
        envoy = stack.enter_context(
            running_envoy(folder / "envoy", [f"{_NAME}:{fleet.port}"], changes=NO_LIMIT | _asking(names))
        )
        answers = Answers.of(servers[0].address)
        before = [_translated(server) for server in servers]
        load = stack.enter_context(Load(envoy, answers))

        def healthy(count: int) -> bool:
            return envoy.stats("cluster.translane.")["membership_healthy"] == count

        def kill() -> None:
            killed.process.kill()
            killed.process.wait()

        def drain() -> None:
            if (code := draining.terminate(60)) != 0:
                raise RuntimeError(f"the server that drains ended with exit code {code}")

        def join() -> None:
            joining.append(fleet.start(_ADDRESSES[4]))
            joining[0].wait_until_it_serves()
            names.addresses.append(_ADDRESSES[4])

        joining: list[ServerProcess] = []
        outcomes = [load.around("no fault", lambda: None, calls=_SHARED, until=lambda: healthy(4))]
        counts = [_translated(server) - then for server, then in zip(servers, before, strict=True)]
        outcomes += [
            load.around("one is killed", kill, calls=CALLS, until=lambda: healthy(3)),
            load.around(
                "one hangs", lambda: hanging.process.send_signal(signal.SIGSTOP), calls=CALLS, until=lambda: healthy(2)
            ),
            load.around(
                "it goes on",
                lambda: hanging.process.send_signal(signal.SIGCONT),
                calls=CALLS,
                until=_gets_calls(lambda: hanging),
            ),
            load.around("one drains", drain, calls=CALLS, until=lambda: healthy(2)),
            load.around("a fifth joins", join, calls=CALLS, until=_gets_calls(lambda: joining[0])),
        ]
        silent = envoy.stats("cluster.translane.")["http2.keepalive_timeout"]
        return Run(outcomes, [count / sum(counts) for count in counts], silent)


class _Fleet:
    """Servers on one port of several addresses; the stack stops them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self.port = free_port()

    def start(self, address: str) -> ServerProcess:
        log = self._folder / f"log-{address}"
        server = ServerProcess(log, [f"--port={self.port}", *_FLAGS], host=address)
        self._stack.callback(server.stop)
        return server


def _asking(names: NameServer) -> dict[str, str]:
    """The change of envoy.yaml that has Envoy ask this name server."""
    host, port = names.address.split(":")
    resolver = (
        "typed_dns_resolver_config: {name: envoy.network.dns_resolver.cares, typed_config: {"
        f'"@type": {_RESOLVER}, resolvers: [{{socket_address: {{address: {host}, port_value: {port}}}}}],'
        " dns_resolver_options: {no_default_search_domain: true}}}"
    )
    return {"type: STRICT_DNS  #": f"type: STRICT_DNS\n      {resolver}  #"}


def _gets_calls(server: Callable[[], ServerProcess]) -> Callable[[], bool]:
    """Whether the server has answered a call since it was asked about for the first time."""
    seen: list[float] = []

    def answers() -> bool:
        seen.append(_translated(server()))
        return seen[-1] > seen[0]

    return answers


def _translated(server: ServerProcess) -> float:
    return sum(value for name, value in server.metrics().items() if name.startswith(_TRANSLATED))
